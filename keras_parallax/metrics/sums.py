# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What metrics have in common whose value follows from sums over samples."""

from typing import List, NoReturn, Optional, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.run_errors import BATCH_MARK
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Tensor


def totals(*values: Tensor) -> Tensor:
    """The sums of vectors, a vector."""
    return tf.stack(list(map(tf.reduce_sum, values)))


class SumMetric:
    """A metric whose value follows from sums over samples, which add up over workers.

    It says what is summed and what follows; `model.compile` makes of it, for each output, what its
    Keras package takes for a metric (`layers.py`).

    Args:
        name: the metric's name in the logs.

    Attributes:
        name: as given.
        size: how many sums there are.
    """

    size = 2

    def __init__(self, name: str) -> None:
        # Keras writes it to a file of the model, as it does with a function's.
        self.name = self.__name__ = name

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The sums over some samples, a vector of float64.

        Args:
            labels: a vector of float64, each 0 or 1.
            predictions: a vector as long, each in [0, 1].
            weights: a vector as long, what each sample counts.
        """
        raise NotImplementedError

    def value_of(self, sums: Tensor) -> Tensor:
        """The metric, a scalar, given the sums over all samples: the first over the second."""
        return sums[0] / sums[1]

    def __call__(self, y_true: Tensor, y_pred: Tensor) -> NoReturn:
        """Refuses to be called as a function, of whose values Keras would make a mean."""
        raise PlanError(
            'The metric %s is for models of a ParallaxStrategy: make the strategy before '
            'model.compile().' % self.name
        )

    def sums_of_batch(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Optional[Tensor] = None
    ) -> Tensor:
        """The sums over a batch, given Keras's tensors; a batch with bad values fails."""
        return self.sums_of(*self.checked(y_true, y_pred, sample_weight))

    def checked(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Labels, predictions and weights as `sums_of` takes them, given Keras's tensors.

        A batch with bad values fails.
        """
        shape = self.shape_of(y_pred)
        labels, predictions = tf.cast(y_true, tf.float64), tf.cast(y_pred, tf.float64)
        weights = tf.ones_like(predictions) if sample_weight is None else sample_weight
        checks = [
            self._check(
                tf.equal(tf.size(labels), tf.size(predictions)),
                'takes as many labels as predictions',
            ),
            self._check(
                tf.reduce_all(tf.equal(labels, 0) | tf.equal(labels, 1)),
                'takes labels that are 0 or 1',
            ),
            self._check(*self.takes(predictions)),
        ]
        with tf.control_dependencies(checks):
            labels, predictions = tf.reshape(labels, shape), tf.reshape(predictions, shape)
            # One weight for a sample, whatever its shape.
            weights = tf.reshape(tf.cast(weights, tf.float64), [tf.shape(labels)[0], -1])[:, 0]
            return labels, predictions, weights

    def shape_of(self, y_pred: Tensor) -> List[int]:
        """The shape in which `sums_of` gets labels and predictions.

        Raises:
            PlanError: the output of the model has another.
        """
        shape = [None] if y_pred.shape.ndims is None else y_pred.shape.as_list()
        if len(shape) > 2 or shape[1:] not in ([], [1], [None]):
            raise self._misshapen(y_pred, 'one prediction for each sample')
        return [-1]

    def takes(self, predictions: Tensor) -> Tuple[Tensor, str]:
        """Whether it takes all of some predictions, a tensor, and a sentence: which it takes."""
        # Nothing is true of NaN.
        good = (predictions >= 0) & (predictions <= 1)
        return tf.reduce_all(good), 'takes predictions from 0 to 1, of which none is NaN'

    def _misshapen(self, y_pred: Tensor, takes: str) -> PlanError:
        return PlanError(
            'The metric %s takes %s, but the output %s has the shape %s.'
            % (self.name, takes, y_pred.name.split('/')[0], y_pred.shape)
        )

    def _check(self, condition: Tensor, takes: str) -> Operation:
        return tf.Assert(condition, [BATCH_MARK, 'The metric %s %s' % (self.name, takes)])
