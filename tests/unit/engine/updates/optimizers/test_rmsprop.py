# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What RMSprop keeps and moves, by its options."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates.optimizers import rmsprop

OF = rmsprop.Hyperparameters(0.5, 0.9, 0.1, 0.25, 0.8)
GRADIENT = 2.0


def moved(formula, *slots):
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, new = formula(
            OF, tf.constant([GRADIENT]), [tf.constant([float(slot)]) for slot in slots]
        )
        return np.ravel(session.run([decrease] + new)).tolist()


SQUARE = 0.9 * 5 + 0.1 * 4
MEAN = 0.9 * 1 + 0.1 * 2
VARIANCE = SQUARE - MEAN**2


@pytest.mark.parametrize(
    'formula, slots, expected',
    [
        (rmsprop.formula, [5], [1 / (SQUARE**0.5 + 0.25), SQUARE]),
        (rmsprop.formula, [5, 1], [1 / (VARIANCE**0.5 + 0.25), SQUARE, MEAN]),
        (rmsprop.formula_of_keras3, [5], [1 / (SQUARE + 0.25) ** 0.5, SQUARE]),
        (
            rmsprop.with_momentum,
            [5, 3],
            [0.8 * 3 + 1 / (SQUARE + 0.25) ** 0.5, SQUARE, 0.8 * 3 + 1 / (SQUARE + 0.25) ** 0.5],
        ),
        (
            rmsprop.with_momentum,
            [5, 3, 1],
            [
                0.8 * 3 + 1 / (VARIANCE + 0.25) ** 0.5,
                SQUARE,
                0.8 * 3 + 1 / (VARIANCE + 0.25) ** 0.5,
                MEAN,
            ],
        ),
    ],
)
def test_epsilon_is_beside_the_root_or_below_it_and_a_mean_centers_the_square(
    formula, slots, expected
):
    np.testing.assert_allclose(moved(formula, *slots), expected, rtol=1e-6)


@pytest.mark.parametrize('centered', [False, True])
@pytest.mark.parametrize('momentum', [0.0, 0.8])
def test_slots_and_formulas_follow_from_the_options(centered, momentum):
    options = SimpleNamespace(
        centered=centered, momentum=momentum, _momentum=momentum > 0, rho=0.9, epsilon=0.25
    )
    of_v2 = rmsprop.KNOWN.optimizer_v2['RMSprop'](options)
    assert of_v2.slots == ('rms',) + ('momentum',) * (momentum > 0) + ('mg',) * centered
    assert of_v2.moves_all_rows == (momentum == 0)
    of_keras3 = rmsprop.KNOWN.keras3['RMSprop'](options)
    assert len(of_keras3.slots) == len(of_v2.slots)
    expected = rmsprop.with_momentum if momentum else rmsprop.formula_of_keras3
    assert of_keras3.formula is expected
