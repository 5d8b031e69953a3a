# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Adam keeps and moves, by its options."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates.optimizers import adam

OF = adam.Hyperparameters(0.5, 0.9, 0.99, 0.1, 0.01, 1e-3)


def options(amsgrad=False, **others):
    return SimpleNamespace(beta_1=0.9, beta_2=0.99, epsilon=1e-3, amsgrad=amsgrad, **others)


def moved(slots):
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, new = adam.formula(
            OF, tf.constant([2.0]), [tf.constant([float(slot)]) for slot in slots]
        )
        return np.ravel(session.run([decrease] + new)).tolist()


def test_with_amsgrad_a_step_is_divided_by_the_largest_mean_square_so_far():
    mean, square = 0.9 * 3 + 0.1 * 2, 0.99 * 5 + 0.01 * 4
    expected = [0.5 * mean / (square**0.5 + 1e-3), mean, square]
    np.testing.assert_allclose(moved([3, 5]), expected, rtol=1e-6)
    largest = [0.5 * mean / (9**0.5 + 1e-3), mean, square, 9]
    np.testing.assert_allclose(moved([3, 5, 9]), largest, rtol=1e-6)
    np.testing.assert_allclose(moved([3, 5, 1]), expected + [square], rtol=1e-6)


@pytest.mark.parametrize('amsgrad, count', [(False, 2), (True, 3)])
def test_amsgrad_has_a_third_slot_in_every_family_and_no_kernel(amsgrad, count):
    rule, chosen = adam.KNOWN.keras['Adam'], options(amsgrad)
    assert rule.uses(chosen) == count and rule.kernel.fits(chosen) == (not amsgrad)
    assert len(adam.KNOWN.optimizer_v2['Adam'](chosen).slots) == count
    assert len(adam.KNOWN.keras3['Adam'](chosen).slots) == count


def test_a_row_without_a_gradient_moves_with_adam_and_rests_with_the_lazy_one():
    known = adam.KNOWN
    assert not known.keras['Adam'].exact_if(options())
    assert known.keras['LazyAdam'].exact_if(options())
    assert known.optimizer_v2['Adam'](options()).moves_all_rows
    assert not known.optimizer_v2['LazyAdam'](options()).moves_all_rows
    assert known.keras3['Adam'](options()).moves_all_rows


def test_the_rate_of_a_step_is_corrected_for_means_that_start_at_zero():
    of = adam.KNOWN.keras3['Adam'](options()).hyperparameters(0.5, 2)
    expected = 0.5 * (1 - 0.99**2) ** 0.5 / (1 - 0.9**2)
    np.testing.assert_allclose(of.rate, expected, rtol=1e-5)
    assert (of.beta_1, of.epsilon) == (0.9, 1e-3)
