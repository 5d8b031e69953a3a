# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Adam, with `amsgrad` or without, and `kp.optimizers.LazyAdam`, which moves touched rows only."""

from typing import Any, Dict, List, NamedTuple

import numpy as np

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.fused_kernels import FusedKernel
from keras_parallax.engine.updates.optimizers.hyperparameters import (
    always,
    float32_power,
    learning_rate,
    slots,
    step_number,
)
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowRule,
    RowsOfKeras3,
    RowsOfTensorFlow,
    RowsOfV2,
)

#: The names of the slots of `LazyAdam`, and of Adam without `amsgrad`.
SLOTS = ('m', 'v')


class Hyperparameters(NamedTuple):
    """What the formula takes.

    Attributes:
        rate: the learning rate, corrected for means that start at zero.
        beta_1, beta_2: how much of the mean and of the mean square stays in a step.
        one_minus_beta_1, one_minus_beta_2: how much of the gradient and of its square comes in.
        epsilon: what is added to the divisor.
    """

    rate: Any
    beta_1: Any
    beta_2: Any
    one_minus_beta_1: Any
    one_minus_beta_2: Any
    epsilon: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots; with `amsgrad` there are three."""
    mean = of.beta_1 * slots[0] + of.one_minus_beta_1 * gradient
    square = of.beta_2 * slots[1] + of.one_minus_beta_2 * tf.square(gradient)
    new_slots, spread = [mean, square], square
    if len(slots) == 3:
        spread = tf.maximum(slots[2], square)
        new_slots.append(spread)
    return of.rate * mean / (tf.sqrt(spread) + of.epsilon), new_slots


def _of_keras(optimizer: Any) -> Hyperparameters:
    number = step_number(optimizer)
    beta_1, beta_2 = optimizer.beta_1, optimizer.beta_2
    rate = learning_rate(optimizer) * (
        tf.sqrt(1.0 - tf.pow(beta_2, number)) / (1.0 - tf.pow(beta_1, number))
    )
    return Hyperparameters(rate, beta_1, beta_2, 1.0 - beta_1, 1.0 - beta_2, optimizer.epsilon)


def _of_coefficients(of: Dict[str, tf.Tensor]) -> Hyperparameters:
    return Hyperparameters(
        of['lr'],
        of['beta_1_t'],
        of['beta_2_t'],
        of['one_minus_beta_1_t'],
        of['one_minus_beta_2_t'],
        of['epsilon'],
    )


def _of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(
        SLOTS + ('vhat',) * bool(optimizer.amsgrad),
        formula,
        _of_coefficients,
        moves_all_rows=True,
        takes_zero_for_none=True,
    )


def _lazy_of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(SLOTS, formula, lambda of: _of_keras(optimizer.settings(of['lr_t'].dtype)))


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    beta_1, beta_2 = float(optimizer.beta_1), float(optimizer.beta_2)
    epsilon = float(optimizer.epsilon)

    def hyperparameters(rate: float, step: int) -> Hyperparameters:
        of_mean = 1 - float32_power(beta_1, step)
        corrected = float(rate * np.sqrt(1 - float32_power(beta_2, step)) / of_mean)
        return Hyperparameters(corrected, beta_1, beta_2, 1.0 - beta_1, 1.0 - beta_2, epsilon)

    names = ('momentum', 'velocity') + ('velocity_hat',) * bool(optimizer.amsgrad)
    slots_of_zeros = tuple((name, 0.0) for name in names)
    return RowsOfKeras3(slots_of_zeros, formula, hyperparameters, moves_all_rows=True)


def _kernel_arguments(optimizer: Any) -> Dict[str, Any]:
    number = step_number(optimizer)
    return dict(
        beta1_power=tf.pow(optimizer.beta_1, number),
        beta2_power=tf.pow(optimizer.beta_2, number),
        lr=learning_rate(optimizer),
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon,
    )


KNOWN = KnownOptimizer(
    keras={
        'Adam': RowRule(
            formula,
            _of_keras,
            # Without `amsgrad`, Keras keeps one number in place of the third slot.
            keeps=3,
            uses=lambda optimizer: 3 if optimizer.amsgrad else 2,
            kernel=FusedKernel(
                'apply_adam', 2, _kernel_arguments, fits=lambda optimizer: not optimizer.amsgrad
            ),
        ),
        'LazyAdam': RowRule(formula, _of_keras, keeps=2, uses=slots(2), exact_if=always),
    },
    optimizer_v2={'Adam': _of_v2, 'LazyAdam': _lazy_of_v2},
    tensorflow={
        'AdamOptimizer': RowsOfTensorFlow(takes_zero_for_none=True),
        'LazyAdamOptimizer': RowsOfTensorFlow(),
    },
    keras3={'Adam': _of_keras3},
)
