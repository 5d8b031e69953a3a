# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Adamax keeps and moves."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates.optimizers import adamax

OPTIONS = SimpleNamespace(beta_1=0.9, beta_2=0.5, epsilon=0.25)


@pytest.mark.parametrize('gradient, largest', [(-2.0, 2.0), (1.0, 1.5)])
def test_a_step_is_divided_by_the_largest_gradient_which_fades(gradient, largest):
    of = adamax.Hyperparameters(0.5, 0.9, 0.5, 0.1, 0.25)
    with tf.Graph().as_default(), tf.Session() as session:
        slots = [tf.constant([4.0]), tf.constant([3.0])]
        decrease, new = adamax.formula(of, tf.constant([gradient]), slots)
        found = np.ravel(session.run([decrease] + new))
    mean = 0.9 * 4 + 0.1 * gradient
    np.testing.assert_allclose(found, [0.5 * mean / (largest + 0.25), mean, largest], rtol=1e-6)


def test_the_rate_of_a_step_is_corrected_for_a_mean_that_starts_at_zero():
    of = adamax.KNOWN.keras3['Adamax'](OPTIONS).hyperparameters(0.5, 3)
    np.testing.assert_allclose(of.rate, 0.5 / (1 - 0.9**3), rtol=1e-5)


def test_a_row_without_a_gradient_moves_in_keras_3_and_rests_in_later_kerases_2():
    assert adamax.KNOWN.keras3['Adamax'](OPTIONS).moves_all_rows
    of_v2 = adamax.KNOWN.optimizer_v2['Adamax'](OPTIONS)
    assert not of_v2.moves_all_rows and not of_v2.takes_zero_for_none
    assert not adamax.KNOWN.keras['Adamax'].exact_if(OPTIONS)
