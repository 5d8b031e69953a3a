# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The operations of a step: built once, and none of what is another's."""

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.compat import tensorflow_api
from keras_parallax.engine.step.train_step import step_of


@pytest.fixture
def step():
    with kp.ParallaxStrategy():
        layers = [
            keras.layers.Embedding(7, 2, input_length=3, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, name='out'),
        ]
        model = keras.models.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.1), 'mse')
    model.train_on_batch(np.zeros([2, 3]), np.ones([2, 1]))
    yield step_of(model)
    keras.backend.clear_session()


def test_what_is_broadcast_is_built_once_for_a_root_and_a_set_of_variables(step):
    operations, table = step.operations, step.spec.variables[0]
    first = operations.broadcast(0, ())
    assert operations.broadcast(0, ()) is first
    assert operations.broadcast(0, [table]) is not first
    assert operations.broadcast(1, ()) is not first
    assert operations.broadcast(0, ()) is first


def test_what_is_averaged_is_built_once_for_a_set_of_variables(step):
    operations, variables = step.operations, step.spec.variables
    first = operations.average(variables)
    assert operations.average(variables[::-1]) is first
    assert operations.average(variables[:1]) is not first


def test_what_is_about_to_be_freed_is_broadcast_no_more(step):
    operations, table = step.operations, step.spec.variables[0]
    before = operations.broadcast(0, ())
    operations.forget_synced([table])
    assert operations.broadcast(0, ()) is not before
    # As if the table were each worker's own.
    assert operations.broadcast(0, ()) is operations.broadcast(0, [table])


def test_the_weights_of_the_optimizer_are_those_that_keras_lists(step):
    weights = step.operations.weights
    slots = [weight for weight in weights if weight.shape.as_list() == [7, 2]]
    assert len(slots) >= 2 and step.operations.weights is weights


def test_everything_of_a_step_was_built_between_two_operations(step):
    first, last = step.operations.span
    numbers = [tensorflow_api.operation_id(operation) for operation in step.operations.operations]
    assert numbers and all(first < number < last for number in numbers)
    assert step.operations.computed in tf.get_default_graph().get_operations()
