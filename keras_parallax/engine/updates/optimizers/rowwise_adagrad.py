# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.optimizers.RowwiseAdagrad`: Adagrad whose slot has one number for each row."""

from typing import Any, List

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizers.adagrad import Hyperparameters
from keras_parallax.engine.updates.optimizers.hyperparameters import always, learning_rate, slots
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowRule,
    RowsOfV2,
)

#: The names of its slots.
SLOTS = ('accumulator',)


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new numbers of the slot, the sum of the rows' mean squares."""
    of_row = list(range(1, gradient.shape.ndims))
    square = tf.reduce_mean(tf.square(gradient), of_row, keepdims=True)
    total = tf.reshape(slots[0], tf.shape(square)) + square
    decrease = of.rate * gradient / (tf.sqrt(total) + of.epsilon)
    return decrease, [tf.reshape(total, tf.shape(slots[0]))]


def _of_keras(optimizer: Any) -> Hyperparameters:
    return Hyperparameters(learning_rate(optimizer), optimizer.epsilon)


def _of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(SLOTS, formula, lambda of: _of_keras(optimizer.settings(of['lr_t'].dtype)))


KNOWN = KnownOptimizer(
    keras={
        'RowwiseAdagrad': RowRule(
            formula,
            _of_keras,
            keeps=1,
            uses=slots(1),
            exact_if=always,
            slot_shape=lambda shape: shape[:1],
            # Without an epsilon, 0 would be divided by 0.
            rests_at_zero=lambda optimizer: optimizer.epsilon > 0,
        )
    },
    optimizer_v2={'RowwiseAdagrad': _of_v2},
)
