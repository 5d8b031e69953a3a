# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers of users that ask for gradients in their own ways, against plain Keras."""

import cases
import numpy as np
import ours
import own_optimizers
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@pytest.fixture(autouse=True)
def fresh_graphs():
    yield
    for package in KERAS_PACKAGES:
        cases.keras_module(package).backend.clear_session()


def case_of(optimizer, package):
    return cases.Case(
        cases.embed_and_sum(), optimizer, cases.ids_and_targets, wrap={'keras': package}
    )


def sgd(keras):
    return keras.optimizers.SGD(0.1)


@pytest.mark.parametrize('package, name', [
    # With the package with which `test_equality.py` does not compare it on several workers.
    (KERAS_PACKAGES[-1 if number % 3 == 0 else 0], name)
    for number, name in enumerate(own_optimizers.OWN)
])  # fmt: skip
def test_an_own_optimizer_gives_the_numbers_of_plain_keras(package, name):
    case, keras = case_of(own_optimizers.OWN[name], package), cases.keras_module(package)
    model, expected = ours.assert_equals_plain_keras(case, keras)
    assert (cases.start_weights(model)[0] != expected[0]).any()


@PACKAGES
def test_get_gradients_after_a_step_gives_the_gradients_of_what_is_asked(package):
    keras = cases.keras_module(package)
    model = ours.compiled(case_of(sgd, package), keras)
    batch = next(cases.joined_batches(case_of(sgd, package), 1))
    model.train_on_batch(*batch)
    kernel = model.get_layer('out').weights[0]
    (gradient,) = model.optimizer.get_gradients(keras.backend.sum(3 * kernel), [kernel])
    np.testing.assert_array_equal(keras.backend.get_value(gradient), np.full(kernel.shape, 3))


@PACKAGES
def test_tensorboard_writes_the_gradients_of_a_model(package, tmpdir):
    keras = cases.keras_module(package)
    model = ours.compiled(case_of(sgd, package), keras)
    ids, targets = cases.ids_and_targets(np.random.RandomState(3), 12)
    board = keras.callbacks.TensorBoard(str(tmpdir), histogram_freq=1, write_grads=True)
    model.fit(ids, targets, validation_data=(ids, targets), callbacks=[board], verbose=0)
    # TensorFlow 1.15 writes a profile beside it.
    (path,) = tmpdir.listdir('events.*')
    tags = {
        value.tag for event in tf.train.summary_iterator(str(path)) for value in event.summary.value
    }
    assert any('grad' in tag for tag in tags), tags


@PACKAGES
def test_an_object_whose_get_updates_was_replaced_is_refused(package):
    keras = cases.keras_module(package)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.get_updates = lambda loss, params: []
    with pytest.raises(ValueError, match='subclass'):
        kp.ParallaxOptimizer(optimizer)
