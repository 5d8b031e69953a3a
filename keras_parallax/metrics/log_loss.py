# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How well predictions are probabilities: log loss, normalized entropy, calibration."""

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Tensor
from keras_parallax.metrics.sums import SumMetric, totals

#: How close to 0 and 1 a prediction counts at most, as in Keras's own losses.
_EPSILON = 1e-7


def _losses(labels: Tensor, predictions: Tensor) -> Tensor:
    """The log loss of each sample."""
    predictions = tf.clip_by_value(predictions, _EPSILON, 1 - _EPSILON)
    return -labels * tf.log(predictions) - (1 - labels) * tf.log(1 - predictions)


class LogLoss(SumMetric):
    """The mean of `-log(p)`, `p` the probability of the label that a sample has.

    It is of all samples of the job, and takes and refuses what `AUC` does. A prediction counts as
    no closer to 0 or 1 than 1e-7, as in Keras's `binary_crossentropy`.

    Args:
        name: its name in the logs.

    Raises:
        DataError: as `AUC`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.Dense(1, activation='sigmoid', input_shape=(2,)),
        ...     ])
        ...     model.compile('sgd', 'mse', metrics=[kp.metrics.LogLoss()])
        >>> x, y = np.array([[0, 1], [2, 0], [3, 1], [0, 4]]), np.array([0, 1, 1, 0])
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['log_loss', 'loss']
        ```
    """

    def __init__(self, name: str = 'log_loss') -> None:
        super().__init__(name)

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The losses, and the samples."""
        return totals(weights * _losses(labels, predictions), weights)


class NormalizedEntropy(SumMetric):
    """The log loss, divided by that of the share of positive samples as every prediction.

    Below 1, predictions tell more than that share does (He et al., "Practical lessons from
    predicting clicks on ads at Facebook", ADKDD 2014). It is of all samples of the job, and takes
    and refuses what `AUC` does. Without samples of both labels it is NaN.

    Args:
        name: its name in the logs.

    Raises:
        DataError: as `AUC`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.Dense(1, activation='sigmoid', input_shape=(2,)),
        ...     ])
        ...     model.compile('sgd', 'mse', metrics=[kp.metrics.NormalizedEntropy()])
        >>> x, y = np.array([[0, 1], [2, 0], [3, 1], [0, 4]]), np.array([0, 1, 1, 0])
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['loss', 'normalized_entropy']
        ```
    """

    size = 3

    def __init__(self, name: str = 'normalized_entropy') -> None:
        super().__init__(name)

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The losses, the samples, and the positive ones."""
        return totals(weights * _losses(labels, predictions), weights, weights * labels)

    def value_of(self, sums: Tensor) -> Tensor:
        """The loss of a sample, over the entropy of the labels."""
        share = sums[2] / sums[1]
        entropy = -share * tf.log(share) - (1 - share) * tf.log(1 - share)
        return sums[0] / sums[1] / entropy


class Calibration(SumMetric):
    """The sum of predictions over the number of positive samples: 1 if as many come as foretold.

    It is of all samples of the job, and takes and refuses what `AUC` does. Without a positive
    sample it is infinite, or NaN.

    Args:
        name: its name in the logs.

    Raises:
        DataError: as `AUC`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.Dense(1, activation='sigmoid', input_shape=(2,)),
        ...     ])
        ...     model.compile('sgd', 'mse', metrics=[kp.metrics.Calibration()])
        >>> x, y = np.array([[0, 1], [2, 0], [3, 1], [0, 4]]), np.array([0, 1, 1, 0])
        >>> sorted(model.fit(x, y, verbose=0).history)
        ['calibration', 'loss']
        ```
    """

    def __init__(self, name: str = 'calibration') -> None:
        super().__init__(name)

    def sums_of(self, labels: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
        """The predictions, and the positive samples."""
        return totals(weights * predictions, weights * labels)
