# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Adamax."""

from typing import Any, Dict, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.fused_kernels import FusedKernel
from keras_parallax.engine.updates.optimizers.hyperparameters import (
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


class Hyperparameters(NamedTuple):
    """What the formula takes.

    Attributes:
        rate: the learning rate, corrected for a mean that starts at zero.
        beta_1, beta_2: how much of the mean and of the largest gradient stays in a step.
        one_minus_beta_1: how much of the gradient comes into the mean.
        epsilon: what is added to the divisor.
    """

    rate: Any
    beta_1: Any
    beta_2: Any
    one_minus_beta_1: Any
    epsilon: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots: mean and largest gradient."""
    mean = of.beta_1 * slots[0] + of.one_minus_beta_1 * gradient
    largest = tf.maximum(of.beta_2 * slots[1], tf.abs(gradient))
    return of.rate * mean / (largest + of.epsilon), [mean, largest]


def _of_keras(optimizer: Any) -> Hyperparameters:
    beta_1 = optimizer.beta_1
    rate = learning_rate(optimizer) / (1.0 - tf.pow(beta_1, step_number(optimizer)))
    return Hyperparameters(rate, beta_1, optimizer.beta_2, 1.0 - beta_1, optimizer.epsilon)


def _of_coefficients(of: Dict[str, tf.Tensor]) -> Hyperparameters:
    return Hyperparameters(
        -of['neg_scaled_lr'],
        of['beta_1_t'],
        of['beta_2_t'],
        of['one_minus_beta_1_t'],
        of['epsilon'],
    )


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    beta_1, beta_2 = float(optimizer.beta_1), float(optimizer.beta_2)
    epsilon = float(optimizer.epsilon)

    def hyperparameters(rate: float, step: int) -> Hyperparameters:
        corrected = float(rate / (1 - float32_power(beta_1, step)))
        return Hyperparameters(corrected, beta_1, beta_2, 1.0 - beta_1, epsilon)

    slots_of_zeros = (('momentum', 0.0), ('norm', 0.0))
    return RowsOfKeras3(slots_of_zeros, formula, hyperparameters, moves_all_rows=True)


def _kernel_arguments(optimizer: Any) -> Dict[str, Any]:
    return dict(
        beta1_power=tf.pow(optimizer.beta_1, step_number(optimizer)),
        lr=learning_rate(optimizer),
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon,
    )


KNOWN = KnownOptimizer(
    keras={
        'Adamax': RowRule(
            formula,
            _of_keras,
            keeps=2,
            uses=slots(2),
            # TensorFlow 1.6 has no such kernel.
            kernel=FusedKernel('apply_ada_max', 2, _kernel_arguments),
        )
    },
    optimizer_v2={'Adamax': lambda optimizer: RowsOfV2(('m', 'v'), formula, _of_coefficients)},
    tensorflow={'AdaMaxOptimizer': RowsOfTensorFlow()},
    keras3={'Adamax': _of_keras3},
)
