# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What SGD keeps and moves, with momentum and without."""

from types import SimpleNamespace

import numpy as np
import pytest
from any_keras import keras
from frameworks import TF2, tf

from keras_parallax.engine.updates.optimizers import sgd
from keras_parallax.engine.updates.optimizers.sgd import Hyperparameters

RULE = sgd.KNOWN.keras['SGD']


def moved(of, *slots):
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, new = sgd.formula(of, tf.constant([2.0]), [tf.constant([slot]) for slot in slots])
        return np.ravel(session.run([decrease] + new)).tolist()


def test_a_velocity_is_what_rows_move_by_and_nesterovs_looks_ahead():
    assert moved(Hyperparameters(0.5)) == [1.0]
    velocity = 0.9 * 3 - 0.5 * 2
    plain = moved(Hyperparameters(0.5, 0.9), 3.0)
    np.testing.assert_allclose(plain, [-velocity, velocity], rtol=1e-6)
    nesterov = moved(Hyperparameters(0.5, 0.9, True), 3.0)
    np.testing.assert_allclose(nesterov, [0.5 * 2 - 0.9 * velocity, velocity], rtol=1e-6)


def test_a_momentum_that_is_switched_on_later_fails_the_step():
    assert moved(Hyperparameters(0.5, 0.0)) == [1.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match='compiled without momentum'):
        moved(Hyperparameters(0.5, 0.9))


@pytest.mark.skipif(TF2, reason='the rule is one for the optimizers of Keras 2.2.4')
@pytest.mark.parametrize('momentum, count', [(0.0, 0), (0.9, 1)])
def test_touched_rows_alone_are_exact_without_a_momentum(momentum, count):
    optimizer = keras.optimizers.SGD(0.5, momentum=momentum)
    assert RULE.uses(optimizer) == count and RULE.exact_if(optimizer) == (count == 0)


@pytest.mark.parametrize('momentum, slots', [(0.0, ()), (0.9, ('momentum',))])
def test_the_slot_of_later_kerases_is_there_with_a_momentum_alone(momentum, slots):
    options = SimpleNamespace(momentum=momentum, _momentum=momentum > 0, nesterov=True)
    of_v2 = sgd.KNOWN.optimizer_v2['SGD'](options)
    assert of_v2.slots == slots and of_v2.takes_zero_for_none == (not slots)
    of_keras3 = sgd.KNOWN.keras3['SGD'](options)
    assert tuple(name for name, _ in of_keras3.slots) == slots
    assert of_keras3.moves_all_rows == bool(slots)
    assert of_keras3.hyperparameters(0.5, 1) == ((0.5, 0.9, True) if slots else (0.5, None, False))
