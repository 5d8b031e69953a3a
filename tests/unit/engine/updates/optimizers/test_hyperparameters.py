# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Hyperparameters of optimizers as tensors, the way Keras computes them."""

from types import SimpleNamespace

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

from keras_parallax.engine.updates.optimizers import hyperparameters


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def optimizer(iterations=3, decay=0.0, rate=0.5):
    return SimpleNamespace(
        lr=tf.Variable(rate),
        decay=tf.Variable(decay),
        initial_decay=decay,
        iterations=tf.Variable(iterations, dtype=tf.int64),
    )


def run(tensor):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensor)


@pytest.mark.parametrize('decay, expected', [(0.0, 0.5), (0.5, 0.5 / 2.5)])
def test_the_learning_rate_decays_by_the_steps_before(decay, expected):
    assert run(hyperparameters.learning_rate(optimizer(3, decay))) == np.float32(expected)


def test_a_decay_that_a_script_switches_on_later_is_none_as_in_keras():
    later = optimizer(3)
    rate = hyperparameters.learning_rate(later)
    later.initial_decay = 0.5
    assert run(rate) == 0.5


def test_a_step_is_numbered_from_1_and_has_the_type_of_the_rate():
    number = hyperparameters.step_number(optimizer(0))
    assert number.dtype == tf.float32 and run(number) == 1


def test_a_number_that_a_script_has_put_in_place_of_a_variable_has_kerass_own_type():
    given = keras.optimizers.SGD()
    assert hyperparameters.dtype_of(given, 0.5) == tf.as_dtype(keras.backend.floatx())
    variable = tf.Variable(0.5, dtype=tf.float64)
    assert hyperparameters.dtype_of(given, variable) == tf.float64


def test_powers_are_computed_in_single_precision():
    found = hyperparameters.float32_power(0.999, 2)
    assert found.dtype == np.float32 and found == np.float32(0.999) ** np.float32(2)
    # Whose difference from 1 has so few digits that it is another number.
    assert 1 - found != np.float32(1 - 0.999**2)


def test_options_that_do_not_matter_are_not_asked_for():
    assert hyperparameters.always(None) and hyperparameters.slots(2)(None) == 2
