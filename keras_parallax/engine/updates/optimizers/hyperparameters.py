# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Hyperparameters of optimizers of Keras 2.2.4, as tensors, the way Keras computes them."""

import numbers
from typing import Any, Callable

import numpy as np

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf


def learning_rate(optimizer: Any) -> tf.Tensor:
    """The learning rate of a step, after decay."""
    if getattr(optimizer, 'initial_decay', 0) > 0:
        iterations = tf.cast(optimizer.iterations, dtype_of(optimizer, optimizer.decay))
        return optimizer.lr * (1.0 / (1.0 + optimizer.decay * iterations))
    return optimizer.lr + 0.0


def step_number(optimizer: Any) -> tf.Tensor:
    """The number of a step, from 1, of the dtype of the learning rate."""
    return tf.cast(optimizer.iterations, dtype_of(optimizer, optimizer.lr)) + 1


def dtype_of(optimizer: Any, hyperparameter: Any) -> tf.DType:
    """The dtype of a hyperparameter: a variable, or the Python number that a script put there."""
    if isinstance(hyperparameter, numbers.Number):
        return tf.as_dtype(keras_api.package_of(optimizer).backend.floatx())
    return hyperparameter.dtype.base_dtype


def always(optimizer: Any) -> bool:
    """Says yes, whatever the options of the optimizer are."""
    return True


def slots(number: int) -> Callable[[Any], int]:
    """A function that says the same number of slots for any options of the optimizer."""
    return lambda optimizer: number


def float32_power(base: float, exponent: int) -> np.float32:
    """A power as Keras 3 computes it on tensors of float32.

    In the first steps of Adam, `1 - beta_2**step` has so few digits that they show in the rows.
    """
    return np.power(np.float32(base), np.float32(exponent))
