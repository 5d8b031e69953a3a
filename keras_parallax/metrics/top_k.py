# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How many of the items with the highest predictions are right ones."""

from typing import List, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Tensor
from keras_parallax.metrics.sums import SumMetric, totals


class _AtK(SumMetric):
    """A mean over samples of something about their `k` items with the highest predictions."""

    def __init__(self, k: int, name: str) -> None:
        if k < 1:
            raise PlanError('The metric %s needs a k of at least 1, but got %r.' % (name, k))
        super().__init__(name)
        self._k = k

    def shape_of(self, y_pred: Tensor) -> List[int]:
        """Samples by items."""
        items = y_pred.shape.as_list()[1] if y_pred.shape.ndims == 2 else None
        if items is None or items < self._k:
            raise self._misshapen(y_pred, 'at least %d predictions for each sample' % self._k)
        return [-1, items]

    def takes(self, predictions: Tensor) -> Tuple[Tensor, str]:
        """Any number."""
        return tf.reduce_all(tf.equal(predictions, predictions)), 'takes no prediction that is NaN'

    def _hits(self, labels: Tensor, predictions: Tensor) -> Tensor:
        """How many of each sample's first items are right."""
        _, first = tf.nn.top_k(predictions, self._k)
        chosen = tf.reduce_sum(tf.one_hot(first, labels.shape[1].value, dtype=tf.float64), 1)
        return tf.reduce_sum(chosen * labels, 1)


class PrecisionAtK(_AtK):
    """The share of right items among the `k` with the highest predictions, a mean over samples.

    A sample has a prediction, which may be any number, and a label for each item; of equal
    predictions the item that comes first counts as higher. It is of all samples of the job, and
    sample weights, masks and `model.evaluate` are as `AUC` says.

    Args:
        k: how many items count.
        name: its name in the logs.

    Raises:
        PlanError: `k` is less than 1; `compile` raises it if there are less items.
        DataError: in a batch, a label is not 0 or 1, or a prediction is NaN.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(3, input_shape=(2,))])
        ...     model.compile('sgd', 'mse', metrics=[kp.metrics.PrecisionAtK(2)])
        >>> x, y = np.array([[0, 1], [2, 0]]), np.array([[0, 1, 0], [1, 0, 1]])
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['loss', 'precision_at_k']
        ```
    """

    def __init__(self, k: int, name: str = 'precision_at_k') -> None:
        super().__init__(k, name)

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The samples' precisions, and the samples."""
        precisions = self._hits(labels, predictions) / self._k
        return totals(weights * precisions, weights)


class RecallAtK(_AtK):
    """The share of a sample's right items that are among the `k` with the highest predictions.

    It is a mean over the samples that have right items, of the whole job, and otherwise as
    `PrecisionAtK`. With one right item a sample, it is the top-k accuracy. If no sample has any,
    it is NaN.

    Args:
        k: how many items count.
        name: its name in the logs.

    Raises:
        PlanError: as `PrecisionAtK`.
        DataError: as `PrecisionAtK`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(3, input_shape=(2,))])
        ...     model.compile('sgd', 'mse', metrics=[kp.metrics.RecallAtK(2)])
        >>> x, y = np.array([[0, 1], [2, 0]]), np.array([[0, 1, 0], [1, 0, 1]])
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['loss', 'recall_at_k']
        ```
    """

    def __init__(self, k: int, name: str = 'recall_at_k') -> None:
        super().__init__(k, name)

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The samples' recalls, and the samples that have any."""
        right = tf.reduce_sum(labels, 1)
        weights = weights * tf.cast(right > 0, tf.float64)
        recalls = self._hits(labels, predictions) / tf.maximum(right, 1)
        return totals(weights * recalls, weights)
