# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""RMSprop. Keras 2.2.4 has no centered RMSprop and no momentum in it; `OptimizerV2` has both."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from keras_parallax.compat import keras_optimizers
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizers.hyperparameters import learning_rate, slots
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowRule,
    RowsOfKeras3,
    RowsOfTensorFlow,
    RowsOfV2,
)


class Hyperparameters(NamedTuple):
    """What the formulas take.

    Attributes:
        rate: the learning rate.
        rho: how much of the means stays in a step.
        one_minus_rho: how much of the gradient comes in.
        epsilon: what is added to the divisor.
        momentum: the momentum, which only `with_momentum` uses.
    """

    rate: Any
    rho: Any
    one_minus_rho: Any
    epsilon: Any
    momentum: Optional[Any] = None


def _means(
    of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]
) -> Tuple[List[tf.Tensor], tf.Tensor]:
    """The new rows of the slots, and the variance that they stand for."""
    square = of.rho * slots[0] + of.one_minus_rho * tf.square(gradient)
    new_slots, spread = [square], square
    if len(slots) == 2:
        mean = of.rho * slots[1] + of.one_minus_rho * gradient
        new_slots.append(mean)
        spread = square - tf.square(mean)
    return new_slots, spread


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots; a second slot is the mean gradient."""
    new_slots, spread = _means(of, gradient, slots)
    return of.rate * gradient / (tf.sqrt(spread) + of.epsilon), new_slots


def with_momentum(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """As `formula`. Epsilon is under the root, as in TensorFlow's kernel, which Keras uses here."""
    square = of.rho * slots[0] + of.one_minus_rho * tf.square(gradient)
    new_slots, spread = [square], square
    if len(slots) == 3:
        mean = of.rho * slots[2] + of.one_minus_rho * gradient
        new_slots.append(mean)
        spread = square - tf.square(mean)
    step = of.momentum * slots[1] + of.rate * gradient * tf.rsqrt(spread + of.epsilon)
    return step, [square, step] + new_slots[1:]


def formula_of_keras3(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """As `formula`, with epsilon below the root."""
    new_slots, spread = _means(of, gradient, slots)
    return of.rate * gradient / tf.sqrt(spread + of.epsilon), new_slots


def _of_keras(optimizer: Any) -> Hyperparameters:
    rho = optimizer.rho
    return Hyperparameters(learning_rate(optimizer), rho, 1.0 - rho, optimizer.epsilon)


def _of_coefficients(of: Dict[str, tf.Tensor]) -> Hyperparameters:
    return Hyperparameters(
        of['lr_t'], of['rho'], of['one_minus_rho'], of['epsilon'], of['momentum']
    )


def _of_v2(optimizer: Any) -> RowsOfV2:
    centered = ('mg',) * bool(optimizer.centered)
    if keras_optimizers.has_momentum(optimizer):
        return RowsOfV2(('rms', 'momentum') + centered, with_momentum, _of_coefficients)
    return RowsOfV2(
        ('rms',) + centered,
        formula,
        _of_coefficients,
        moves_all_rows=True,
        takes_zero_for_none=True,
    )


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    rho, epsilon = float(optimizer.rho), float(optimizer.epsilon)
    momentum = float(optimizer.momentum)
    names = (
        ('velocity',)
        + ('momentum',) * (momentum > 0)
        + ('average_gradient',) * bool(optimizer.centered)
    )
    return RowsOfKeras3(
        tuple((name, 0.0) for name in names),
        with_momentum if momentum > 0 else formula_of_keras3,
        lambda rate, step: Hyperparameters(rate, rho, 1.0 - rho, epsilon, momentum),
        moves_all_rows=True,
    )


KNOWN = KnownOptimizer(
    keras={'RMSprop': RowRule(formula, _of_keras, keeps=1, uses=slots(1))},
    optimizer_v2={'RMSprop': _of_v2},
    tensorflow={'RMSPropOptimizer': RowsOfTensorFlow()},
    keras3={'RMSprop': _of_keras3},
)
