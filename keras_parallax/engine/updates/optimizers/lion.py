# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lion: each row moves by the learning rate, in the direction of the sign of a mean.

The formula is algorithm 2 of "Symbolic Discovery of Optimization Algorithms" (arXiv 2302.06675).
"""

from typing import Any, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    Moved,
    RowsOfKeras3,
)


class Hyperparameters(NamedTuple):
    """What the formula takes.

    Attributes:
        rate: the learning rate.
        beta_1: how much of the mean of gradients is in the direction of a step.
        beta_2: how much of the mean of gradients stays in a step.
    """

    rate: Any
    beta_1: Any
    beta_2: Any


def formula(of: Hyperparameters, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
    """The decrease of rows, and the new rows of the slot, the mean of gradients."""
    (mean,) = slots
    direction = of.beta_1 * mean + (1.0 - of.beta_1) * gradient
    return of.rate * tf.sign(direction), [of.beta_2 * mean + (1.0 - of.beta_2) * gradient]


def _of_keras3(optimizer: Any) -> RowsOfKeras3:
    beta_1, beta_2 = float(optimizer.beta_1), float(optimizer.beta_2)
    return RowsOfKeras3(
        (('momentum', 0.0),),
        formula,
        lambda rate, step: Hyperparameters(rate, beta_1, beta_2),
        moves_all_rows=True,
    )


KNOWN = KnownOptimizer(keras3={'Lion': _of_keras3})
