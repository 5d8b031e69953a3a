# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Adagrad whose slot has one number for each row."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates.optimizers import rowwise_adagrad
from keras_parallax.engine.updates.optimizers.adagrad import Hyperparameters

RULE = rowwise_adagrad.KNOWN.keras['RowwiseAdagrad']


@pytest.mark.parametrize('row_shape', [(2,), (1, 2)])
def test_each_row_has_the_sum_of_its_mean_squares(row_shape):
    gradient = np.array([[3.0, 1.0], [0.0, 0.0]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, (total,) = rowwise_adagrad.formula(
            Hyperparameters(0.5, 0.25),
            tf.constant(gradient.reshape((2,) + row_shape)),
            [tf.constant([4.0, 9.0])],
        )
        decrease, total = session.run([decrease, total])
    assert total.tolist() == [4 + (9 + 1) / 2, 9]
    expected = 0.5 * gradient / (np.sqrt(total)[:, None] + 0.25)
    np.testing.assert_allclose(decrease.reshape(2, 2), expected, rtol=1e-6)


def test_its_slot_has_as_many_numbers_as_there_are_rows():
    assert RULE.slot_shape([7, 4, 2]) == [7]


def test_a_row_rests_at_a_gradient_of_zeros_if_there_is_an_epsilon():
    assert RULE.rests_at_zero(SimpleNamespace(epsilon=1e-7))
    assert not RULE.rests_at_zero(SimpleNamespace(epsilon=0.0))
