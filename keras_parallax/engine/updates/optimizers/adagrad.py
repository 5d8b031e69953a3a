# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Adagrad. A row without a gradient stands still, in Keras and here."""

from typing import Any, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizers.hyperparameters import always, learning_rate, slots
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowRule,
    RowsOfKeras3,
    RowsOfTensorFlow,
    RowsOfV2,
)


class Hyperparameters(NamedTuple):
    """What the formula takes: the learning rate, and what is added to the divisor."""

    rate: Any
    epsilon: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slot, the sum of squares."""
    total = slots[0] + tf.square(gradient)
    return of.rate * gradient / (tf.sqrt(total) + of.epsilon), [total]


def formula_of_keras3(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """As `formula`, with epsilon below the root."""
    total = slots[0] + tf.square(gradient)
    return of.rate * gradient / tf.sqrt(total + of.epsilon), [total]


def _of_keras(optimizer: Any) -> Hyperparameters:
    return Hyperparameters(learning_rate(optimizer), optimizer.epsilon)


def _of_v2(optimizer: Any) -> RowsOfV2:
    return RowsOfV2(
        ('accumulator',),
        formula,
        lambda of: Hyperparameters(of['lr_t'], of['epsilon']),
        takes_zero_for_none=True,
    )


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    epsilon = float(optimizer.epsilon)
    return RowsOfKeras3(
        (('accumulator', float(optimizer.initial_accumulator_value)),),
        formula_of_keras3,
        lambda rate, step: Hyperparameters(rate, epsilon),
    )


KNOWN = KnownOptimizer(
    keras={'Adagrad': RowRule(formula, _of_keras, keeps=1, uses=slots(1), exact_if=always)},
    optimizer_v2={'Adagrad': _of_v2},
    tensorflow={'AdagradOptimizer': RowsOfTensorFlow(takes_zero_for_none=True)},
    keras3={'Adagrad': _of_keras3},
)
