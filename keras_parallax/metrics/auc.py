# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The area under the ROC curve."""

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Tensor
from keras_parallax.metrics.sums import SumMetric


class AUC(SumMetric):
    """The area under the ROC curve, of all samples of the job.

    It counts positive and negative samples in intervals of their predictions. Where two samples are
    in one interval it cannot tell which is ahead, and counts one half, as for equal predictions.
    So it differs from the exact area by at most half the share of those pairs of a positive and a
    negative sample that are in one interval: by `0.5 * sum(p[i] * n[i])`, if interval `i` holds the
    shares `p[i]` of the positives and `n[i]` of the negatives. For the area is the share of pairs
    in which the positive one is ahead (Hanley and McNeil, "The meaning and use of the area under a
    receiver operating characteristic (ROC) curve", Radiology 143, 1982), and pairs of two intervals
    count exactly. If no interval holds more than a share `s` of the negatives, the error is at most
    `s / 2`. A model whose predictions are all close to 0 needs more thresholds than others.

    The value is that of all samples of an epoch, on every worker: in the logs of `fit` before any
    callback sees them, and in what `model.evaluate` returns, which every worker has to call then.
    At the end of a batch it is that of this worker's samples so far. Give it in `metrics`, where
    Keras does not weigh samples. In `weighted_metrics` `tf.keras` weighs them; `keras` 2.2.4 would
    multiply the value by the weights, so it is refused there. Samples that a mask hides are left
    out by `tf.keras`, and counted by `keras` 2.2.4. Without samples of both labels it is NaN.

    Args:
        num_thresholds: number of intervals of equal width into which [0, 1] is cut.
        name: its name in the logs.

    Raises:
        PlanError: there are less than 2 thresholds; `compile` raises it if an output has more than
            one prediction for a sample.
        DataError: in a batch, a label is not 0 or 1, a prediction is NaN or not in [0, 1], or there
            are not as many of these as of those.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.Dense(1, activation='sigmoid', input_shape=(2,)),
        ...     ])
        ...     model.compile('sgd', 'binary_crossentropy', metrics=[kp.metrics.AUC()])
        >>> x, y = np.array([[0, 1], [2, 0], [3, 1], [0, 4]]), np.array([0, 1, 1, 0])
        >>> history = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0).history
        >>> sorted(history)
        ['auc', 'loss', 'val_auc', 'val_loss']
        ```
    """

    def __init__(self, num_thresholds: int = 10000, name: str = 'auc') -> None:
        if num_thresholds < 2:
            raise PlanError('AUC needs at least 2 thresholds, but got %r.' % num_thresholds)
        super().__init__(name)
        self.size = 2 * num_thresholds
        self._intervals = num_thresholds

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """How many negative samples there are in each interval, and then how many positive ones."""
        intervals = tf.cast(predictions * self._intervals, tf.int32)
        intervals = tf.minimum(intervals, self._intervals - 1)
        places = intervals + tf.cast(labels, tf.int32) * self._intervals
        return tf.unsorted_segment_sum(weights, places, self.size)

    def value_of(self, sums: Tensor) -> Tensor:
        """The share of pairs in which the positive sample is ahead."""
        negatives, positives = tf.split(sums, 2)
        behind = tf.cumsum(negatives, exclusive=True) + negatives / 2
        pairs = tf.reduce_sum(negatives) * tf.reduce_sum(positives)
        return tf.reduce_sum(positives * behind) / pairs
