# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Adadelta keeps and moves."""

from types import SimpleNamespace

import numpy as np
from frameworks import tf

from keras_parallax.engine.updates.optimizers import adadelta

OPTIONS = SimpleNamespace(rho=0.9, epsilon=0.25)


def test_a_step_has_the_size_of_earlier_steps_and_is_divided_by_that_of_gradients():
    of = adadelta.Hyperparameters(0.5, 0.9, 0.25)
    with tf.Graph().as_default(), tf.Session() as session:
        slots = [tf.constant([5.0]), tf.constant([3.0])]
        decrease, new = adadelta.formula(of, tf.constant([2.0]), slots)
        found = np.ravel(session.run([decrease] + new))
    squares = 0.9 * 5 + 0.1 * 4
    update = 2 * (3 + 0.25) ** 0.5 / (squares + 0.25) ** 0.5
    expected = [0.5 * update, squares, 0.9 * 3 + 0.1 * update**2]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_its_means_fade_without_a_gradient_so_touched_rows_alone_are_not_exact():
    assert not adadelta.KNOWN.keras['Adadelta'].exact_if(OPTIONS)
    assert adadelta.KNOWN.keras3['Adadelta'](OPTIONS).moves_all_rows
    assert not adadelta.KNOWN.optimizer_v2['Adadelta'](OPTIONS).takes_zero_for_none


def test_keras_does_not_count_its_steps_among_its_weights():
    assert not adadelta.KNOWN.keras['Adadelta'].kernel.counted
