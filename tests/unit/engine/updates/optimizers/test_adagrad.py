# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Adagrad keeps and moves."""

from types import SimpleNamespace

import numpy as np
from frameworks import tf

from keras_parallax.engine.updates.optimizers import adagrad

OPTIONS = SimpleNamespace(epsilon=0.25, initial_accumulator_value=0.5)


def moved(formula, gradient):
    with tf.Graph().as_default(), tf.Session() as session:
        of = adagrad.Hyperparameters(0.5, 0.25)
        decrease, new = formula(of, tf.constant([gradient]), [tf.constant([5.0])])
        return np.ravel(session.run([decrease] + new)).tolist()


def test_epsilon_is_beside_the_root_and_in_keras_3_below_it():
    np.testing.assert_allclose(moved(adagrad.formula, 2.0), [1 / (3 + 0.25), 9])
    expected = [1 / (9 + 0.25) ** 0.5, 9]
    np.testing.assert_allclose(moved(adagrad.formula_of_keras3, 2.0), expected, rtol=1e-6)


def test_a_row_without_a_gradient_stands_still_in_every_family():
    assert moved(adagrad.formula, 0.0) == [0, 5]
    assert adagrad.KNOWN.keras['Adagrad'].exact_if(OPTIONS)
    of_v2 = adagrad.KNOWN.optimizer_v2['Adagrad'](OPTIONS)
    assert of_v2.takes_zero_for_none and not of_v2.moves_all_rows
    assert not adagrad.KNOWN.keras3['Adagrad'](OPTIONS).moves_all_rows


def test_the_sum_of_squares_starts_where_the_options_of_keras_3_say():
    assert adagrad.KNOWN.keras3['Adagrad'](OPTIONS).slots == (('accumulator', 0.5),)
