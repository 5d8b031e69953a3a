# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics as means over the workers."""

import numpy as np

from keras_parallax.callbacks.epoch_reports import (
    mean,
    metrics_missing,
    numbers,
)
from keras_parallax.callbacks.late_backend import _LateBackend
from keras_parallax.callbacks.replicas import moving_statistics
from keras_parallax.compat import keras_api
from keras_parallax.engine.step.dense_values import average
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.errors import MetricMismatchError
from keras_parallax.framework_types import Logs


class MetricAverageCallback(_LateBackend, keras_api.callbacks.Callback):
    """Averages the metrics of an epoch over the workers, for the callbacks after it.

    `fit` of a model of a strategy does that by itself, before any callback; this one is for metrics
    that other callbacks before it have added, and for models without a strategy. It changes nothing
    about metrics that are averages already. Give it to every worker.

    Args:
        device: accepted for the sake of Horovod's callback.
        average_moving_statistics: whether to average the weights that a model updates without
            gradients too: the moving mean and variance of batch normalization. Each worker has
            those of its own batches, and otherwise rank 0 saves its own.

    Raises:
        MetricMismatchError: at the end of an epoch, if a worker lacks metrics that another has;
            when training begins, if a worker lacks the callback.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.MetricAverageCallback()
        ```
    """

    def __init__(self, device: str = '', average_moving_statistics: bool = False) -> None:
        super().__init__()
        self.device, self.average_moving_statistics = device, average_moving_statistics

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Averages."""
        step = step_of(self.model)
        if step.job.size == 1:
            return
        with step.job.call('MetricAverageCallback'):
            self._average(step, logs)

    def _average(self, step: TrainStep, logs: Logs) -> None:
        own = numbers(logs)
        of_ranks = step.job.gather(own)
        different = metrics_missing(of_ranks)
        if different:
            raise MetricMismatchError(
                '%s, so MetricAverageCallback cannot average them. Compute the same metrics on '
                'every worker.' % different
            )
        for name in own:
            logs[name] = np.float64(mean([metrics[name] for metrics in of_ranks]))
        if self.average_moving_statistics:
            average(step, moving_statistics(self.model))
