# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Adadelta."""

from typing import Any, Dict, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.fused_kernels import FusedKernel
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
    """What the formula takes.

    Attributes:
        rate: the learning rate.
        rho: how much of the means stays in a step.
        epsilon: what is added under both roots.
    """

    rate: Any
    rho: Any
    epsilon: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots: mean squares of gradients and steps."""
    mean = of.rho * slots[0] + (1.0 - of.rho) * tf.square(gradient)
    update = gradient * tf.sqrt(slots[1] + of.epsilon) / tf.sqrt(mean + of.epsilon)
    steps = of.rho * slots[1] + (1.0 - of.rho) * tf.square(update)
    return of.rate * update, [mean, steps]


def _of_keras(optimizer: Any) -> Hyperparameters:
    return Hyperparameters(learning_rate(optimizer), optimizer.rho, optimizer.epsilon)


def _of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(
        ('accum_grad', 'accum_var'),
        formula,
        lambda of: Hyperparameters(of['lr_t'], of['rho'], of['epsilon']),
    )


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    rho, epsilon = float(optimizer.rho), float(optimizer.epsilon)
    return RowsOfKeras3(
        (('accumulated_grad', 0.0), ('accumulated_delta_var', 0.0)),
        formula,
        lambda rate, step: Hyperparameters(rate, rho, epsilon),
        moves_all_rows=True,
    )


def _kernel_arguments(optimizer: Any) -> Dict[str, Any]:
    return dict(lr=learning_rate(optimizer), rho=optimizer.rho, epsilon=optimizer.epsilon)


KNOWN = KnownOptimizer(
    keras={
        'Adadelta': RowRule(
            formula,
            _of_keras,
            keeps=2,
            uses=slots(2),
            kernel=FusedKernel('apply_adadelta', 2, _kernel_arguments, counted=False),
        )
    },
    optimizer_v2={'Adadelta': _of_v2},
    tensorflow={'AdadeltaOptimizer': RowsOfTensorFlow()},
    keras3={'Adadelta': _of_keras3},
)
