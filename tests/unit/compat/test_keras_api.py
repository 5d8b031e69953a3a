# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The two Keras packages are told apart."""

import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf


@pytest.mark.parametrize('name', KERAS_PACKAGES)
def test_layers_models_and_optimizers_know_their_package(name):
    module = keras_api.keras_package(name).module
    things = [
        module.layers.Dense(1),
        module.models.Sequential(),
        module.optimizers.SGD(),
    ]
    assert [keras_api.package_of(thing).name for thing in things] == [name] * 3


def test_what_is_of_neither_package_has_none():
    assert keras_api.found_package(object()) is None
    assert keras_api.found_package(tf.train.AdamOptimizer()) is None


@pytest.mark.parametrize('name', KERAS_PACKAGES)
def test_a_users_subclass_belongs_to_the_package_of_its_parent(name):
    class Mine(keras_api.keras_package(name).module.optimizers.SGD):
        pass

    assert keras_api.package_of(Mine()).name == name


@pytest.mark.parametrize('name', KERAS_PACKAGES)
def test_a_layer_in_models_and_wrappers_is_found_once(name):
    package = keras_api.keras_package(name)
    package.backend.clear_session()
    layers, models = package.module.layers, package.module.models
    shared = layers.Dense(3, name='shared')
    inner = models.Sequential([layers.TimeDistributed(shared, input_shape=(2, 3))], name='inner')
    first, second = layers.Input((2, 3)), layers.Input((2, 3))
    model = models.Model([first, second], layers.add([inner(first), inner(second)]))
    found = keras_api.layers_in(package, model)
    assert [layer.name for layer in found].count('shared') == 1
    assert len({id(layer) for layer in found}) == len(found)


def test_asking_for_the_session_of_a_package_opens_none():
    import keras

    for package in map(keras_api.keras_package, KERAS_PACKAGES):
        keras.backend.clear_session()
        package.backend.clear_session()
        graph = tf.Graph()
        assert keras_api.open_session_of(package, graph) is None
        with graph.as_default():
            session = package.backend.get_session()
            assert keras_api.open_session_of(package, graph) is session
        package.backend.clear_session()
