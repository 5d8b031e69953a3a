# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""SGD, with momentum and Nesterov's momentum or without."""

from typing import Any, Dict, List, NamedTuple, Optional

from keras_parallax.compat import keras_api, keras_optimizers
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.fused_kernels import FusedKernel
from keras_parallax.engine.updates.optimizers.hyperparameters import dtype_of, learning_rate
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
        momentum: the momentum, or `None` if it is off and cannot be switched on.
        nesterov: whether the momentum is Nesterov's.
    """

    rate: Any
    momentum: Optional[Any] = None
    nesterov: bool = False


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slots; without momentum there are no slots."""
    if not slots:
        with tf.control_dependencies(_still_zero(of.momentum)):
            return of.rate * gradient, []
    velocity = of.momentum * slots[0] - of.rate * gradient
    if of.nesterov:
        return of.rate * gradient - of.momentum * velocity, [velocity]
    return -velocity, [velocity]


def _still_zero(momentum: Any) -> List[tf.Operation]:
    """Fails in a step in which the momentum is not zero: a callback may switch it on."""
    if momentum is None:
        return []
    words = 'SGD was compiled without momentum, and momentum is now'
    again = '; compile the model again after changing it.'
    return [tf.Assert(tf.equal(momentum, 0.0), [words, momentum, again])]


def _of_keras(optimizer: Any) -> Hyperparameters:
    return Hyperparameters(learning_rate(optimizer), optimizer.momentum, optimizer.nesterov)


def _has_no_momentum(optimizer: Any) -> bool:
    return float(keras_api.number_in(optimizer.momentum)) == 0.0


def _of_v2(optimizer: Any) -> RowsOfV2:
    if not keras_optimizers.has_momentum(optimizer):
        return RowsOfV2(
            (), formula, lambda of: Hyperparameters(of['lr_t']), takes_zero_for_none=True
        )
    return RowsOfV2(
        ('momentum',),
        formula,
        lambda of: Hyperparameters(of['lr_t'], of['momentum'], optimizer.nesterov),
    )


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    momentum = float(optimizer.momentum)
    if momentum == 0:
        return RowsOfKeras3((), formula, lambda rate, step: Hyperparameters(rate))
    return RowsOfKeras3(
        (('momentum', 0.0),),
        formula,
        lambda rate, step: Hyperparameters(rate, momentum, bool(optimizer.nesterov)),
        moves_all_rows=True,
    )


def _kernel_arguments(optimizer: Any) -> Dict[str, Any]:
    # The kernel sums gradients and multiplies by the rate what it subtracts. Keras's velocity is a
    # sum of steps, in which each gradient has had the rate of its time: so steps are given to the
    # kernel in place of gradients (`factor`), and it adds what it sums.
    return dict(
        lr=tf.constant(-1, dtype_of(optimizer, optimizer.lr)),
        momentum=optimizer.momentum,
        use_nesterov=optimizer.nesterov,
    )


KNOWN = KnownOptimizer(
    keras={
        'SGD': RowRule(
            formula,
            _of_keras,
            keeps=1,
            uses=lambda optimizer: 0 if _has_no_momentum(optimizer) else 1,
            exact_if=_has_no_momentum,
            kernel=FusedKernel(
                'apply_momentum',
                1,
                _kernel_arguments,
                factor=lambda optimizer: -learning_rate(optimizer),
            ),
        )
    },
    optimizer_v2={'SGD': _of_v2},
    tensorflow={
        'GradientDescentOptimizer': RowsOfTensorFlow(takes_zero_for_none=True),
        'MomentumOptimizer': RowsOfTensorFlow(),
    },
    keras3={'SGD': _of_keras3},
)
