# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Nadam. It keeps the product of its momenta, which only its own update of all variables writes."""

from typing import Any, Dict, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizers.hyperparameters import (
    float32_power,
    slots,
    step_number,
)
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowRule,
    RowsOfKeras3,
    RowsOfV2,
)


class Hyperparameters(NamedTuple):
    """What the formula takes.

    Attributes:
        rate: the learning rate.
        beta_1, beta_2: how much of the mean and of the mean square stays in a step.
        one_minus_beta_1, one_minus_beta_2: how much of the gradient and of its square comes in.
        epsilon: what is added to the divisor.
        gradient_share, mean_share: the shares of the gradient and of the mean in the step.
        gradient_divisor, mean_divisor, square_divisor: what the gradient, the mean and the mean
            square are divided by, because means start at zero.
    """

    rate: Any
    beta_1: Any
    beta_2: Any
    one_minus_beta_1: Any
    one_minus_beta_2: Any
    epsilon: Any
    gradient_share: Any
    mean_share: Any
    gradient_divisor: Any
    mean_divisor: Any
    square_divisor: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots: mean and mean square."""
    mean = of.beta_1 * slots[0] + of.one_minus_beta_1 * gradient
    square = of.beta_2 * slots[1] + of.one_minus_beta_2 * tf.square(gradient)
    blend = of.gradient_share * (gradient / of.gradient_divisor) + of.mean_share * (
        mean / of.mean_divisor
    )
    spread = tf.sqrt(square / of.square_divisor) + of.epsilon
    return of.rate * blend / spread, [mean, square]


def _of_keras(optimizer: Any) -> Hyperparameters:
    number = step_number(optimizer)
    beta_1, beta_2 = optimizer.beta_1, optimizer.beta_2
    base = tf.constant(0.96, number.dtype)
    now, ahead = [
        beta_1 * (1.0 - 0.5 * tf.pow(base, (number + later) * optimizer.schedule_decay))
        for later in (0, 1)
    ]
    schedule = optimizer.m_schedule * now
    return Hyperparameters(
        optimizer.lr,
        beta_1,
        beta_2,
        1.0 - beta_1,
        1.0 - beta_2,
        optimizer.epsilon,
        gradient_share=1.0 - now,
        mean_share=ahead,
        gradient_divisor=1.0 - schedule,
        mean_divisor=1.0 - schedule * ahead,
        square_divisor=1.0 - tf.pow(beta_2, number),
    )


def _of_coefficients(of: Dict[str, tf.Tensor]) -> Hyperparameters:
    return Hyperparameters(
        of['lr_t'],
        of['beta_1_t'],
        of['beta_2_t'],
        of['one_minus_beta_1_t'],
        of['one_minus_beta_2_t'],
        of['epsilon'],
        gradient_share=of['one_minus_m_t'],
        mean_share=of['m_t_1'],
        gradient_divisor=of['one_minus_m_schedule_new'],
        mean_divisor=of['one_minus_m_schedule_next'],
        square_divisor=of['v_t_prime_denominator'],
    )


def _of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(('m', 'v'), formula, _of_coefficients, moves_all_rows=True, keeps_numbers=True)


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    beta_1, beta_2 = float(optimizer.beta_1), float(optimizer.beta_2)
    epsilon, products = float(optimizer.epsilon), [1.0]

    def momentum(step: int) -> float:
        return beta_1 * (1.0 - 0.5 * 0.96**step)

    def hyperparameters(rate: float, step: int) -> Hyperparameters:
        while len(products) <= step:
            products.append(products[-1] * momentum(len(products)))
        now, ahead = momentum(step), momentum(step + 1)
        return Hyperparameters(
            rate,
            beta_1,
            beta_2,
            1.0 - beta_1,
            1.0 - beta_2,
            epsilon,
            gradient_share=1.0 - now,
            mean_share=ahead,
            gradient_divisor=1.0 - products[step],
            mean_divisor=1.0 - products[step] * ahead,
            square_divisor=float(1 - float32_power(beta_2, step)),
        )

    slots_of_zeros = (('momentum', 0.0), ('velocity', 0.0))
    return RowsOfKeras3(slots_of_zeros, formula, hyperparameters, moves_all_rows=True)


KNOWN = KnownOptimizer(
    keras={'Nadam': RowRule(formula, _of_keras, keeps=2, uses=slots(2), keeps_numbers=True)},
    optimizer_v2={'Nadam': _of_v2},
    # `NadamOptimizer` of `tf.contrib.opt` is not listed. It adds the rows of a gradient to all rows
    # of the mean, which fails unless there are as many or there is one (TF 1.11; proven by
    # `tests/unit/engine/updates/optimizers/test_tensorflow.py`).
    keras3={'Nadam': _of_keras3},
)
