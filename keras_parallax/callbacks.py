"""Callbacks with the names and arguments of Horovod's and Keras's, for both Keras packages."""

import numpy as np

from keras_parallax import compat
from keras_parallax.compat import horovod_callbacks, tf
from keras_parallax.epoch_reports import (
    batches_per_epoch,
    check_equal_batches,
    mean,
    metrics_missing,
    numbers,
)
from keras_parallax.errors import MetricMismatchError, PlanError
from keras_parallax.model_checkpoint import ModelCheckpoint
from keras_parallax.optimizer import step_of
from keras_parallax.replicas import moving_statistics, own_states

__all__ = [
    'BroadcastGlobalVariablesCallback',
    'LearningRateScheduleCallback',
    'LearningRateWarmupCallback',
    'MetricAverageCallback',
    'ModelCheckpoint',
]


class _LateBackend:
    """A callback that learns from its model which Keras package it serves.

    Keras 2.2.4 asks a callback for its methods only, so a callback of `tf.keras` serves both.
    """

    def set_model(self, model):
        """Takes the model, and with it the backend of its package."""
        super().set_model(model)
        self.backend = compat.package_of(model).backend


class BroadcastGlobalVariablesCallback(_LateBackend, tf.keras.callbacks.Callback):
    """Gives every rank the start values of one rank when training begins.

    Dense variables and the optimizer's slots are broadcast; a sharded table has one value in the
    whole job already, that of rank 0. It also checks that all ranks have equal numbers of batches.

    `fit` of a model of a strategy does both by itself, with the `root_rank` of this callback, if it
    is given, and that of rank 0 otherwise. This one is for values that other callbacks before it
    have set, and for models without a strategy. Give it to every rank.

    Args:
        root_rank: the rank whose values count.
        device: accepted for the sake of Horovod's callback; operations stay on the worker's task.

    Raises:
        UnequalBatchesError: at the start of training, if the ranks have unequal numbers of batches.
        PlanError: `root_rank` is not 0 and a table is sharded.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.BroadcastGlobalVariablesCallback(0)
        ```
    """

    def __init__(self, root_rank, device=''):
        super().__init__()
        self.root_rank = root_rank
        self.device = device

    def on_train_begin(self, logs=None):
        """Checks the numbers of batches, and broadcasts."""
        step = step_of(self.model)
        if step.size == 1:
            return
        if self.root_rank != 0 and step.has_shards:
            raise PlanError(
                'BroadcastGlobalVariablesCallback was given root_rank=%r, but sharded tables start '
                'from the values of rank 0; use root_rank=0.' % self.root_rank
            )
        with step.call('BroadcastGlobalVariablesCallback'):
            check_equal_batches(step.gather(batches_per_epoch(self.params)))
            step.broadcast(self.root_rank, own_states(self.model))


class MetricAverageCallback(_LateBackend, tf.keras.callbacks.Callback):
    """Averages the metrics of an epoch over the ranks, for the callbacks after it.

    `fit` of a model of a strategy does that by itself, before any callback; this one is for metrics
    that other callbacks before it have added, and for models without a strategy. It changes nothing
    about metrics that are averages already. Give it to every rank.

    Args:
        device: accepted for the sake of Horovod's callback.
        average_moving_statistics: whether to average the weights that a model updates without
            gradients too: the moving mean and variance of batch normalization. Each rank has those
            of its own batches, and otherwise rank 0 saves its own.

    Raises:
        MetricMismatchError: at the end of an epoch, if a rank lacks metrics that another has; when
            training begins, if a rank lacks the callback.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.MetricAverageCallback()
        ```
    """

    def __init__(self, device='', average_moving_statistics=False):
        super().__init__()
        self.device, self.average_moving_statistics = device, average_moving_statistics

    def on_epoch_end(self, epoch, logs=None):
        """Averages."""
        step = step_of(self.model)
        if step.size == 1:
            return
        with step.call('MetricAverageCallback'):
            self._average(step, logs)

    def _average(self, step, logs):
        own = numbers(logs)
        of_ranks = step.gather(own)
        different = metrics_missing(of_ranks)
        if different:
            raise MetricMismatchError(
                '%s, so MetricAverageCallback cannot average them. Compute the same metrics on '
                'every rank.' % different
            )
        for name in own:
            logs[name] = np.float64(mean([metrics[name] for metrics in of_ranks]))
        if self.average_moving_statistics:
            step.average(moving_statistics(self.model))


class LearningRateScheduleCallback(
    _LateBackend, horovod_callbacks.LearningRateScheduleCallbackImpl, tf.keras.callbacks.Callback
):
    """Multiplies the initial learning rate, epoch by epoch or batch by batch.

    The shards of sparse tables follow at the next step, as every rank runs the callback.

    Args:
        multiplier: a number, or a function from the epoch to one.
        start_epoch, end_epoch: the epochs in which it acts, `end_epoch` excluded.
        staircase: whether the rate changes at the start of an epoch only.
        momentum_correction: whether to scale the momentum of SGD with the rate.
        steps_per_epoch: number of batches in an epoch, found out if `None`.
        initial_lr: the rate to multiply, the optimizer's at the start of training if `None`.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.LearningRateScheduleCallback(0.1, start_epoch=5, initial_lr=0.2)
        ```
    """

    def __init__(
        self,
        multiplier,
        start_epoch=0,
        end_epoch=None,
        staircase=True,
        momentum_correction=True,
        steps_per_epoch=None,
        initial_lr=None,
    ):
        super().__init__(
            None,
            multiplier,
            start_epoch,
            end_epoch,
            staircase,
            momentum_correction,
            steps_per_epoch,
            initial_lr,
        )


class LearningRateWarmupCallback(
    _LateBackend, horovod_callbacks.LearningRateWarmupCallbackImpl, tf.keras.callbacks.Callback
):
    """Raises the learning rate from `lr / size` to `lr` over the first epochs (Goyal et al. 2017).

    Args:
        warmup_epochs: number of epochs that it takes.
        momentum_correction: whether to scale the momentum of SGD with the rate.
        steps_per_epoch: number of batches in an epoch, found out if `None`.
        verbose: 1 to print the rate at the end.
        initial_lr: the rate to reach, the optimizer's at the start of training if `None`.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.LearningRateWarmupCallback(warmup_epochs=3, initial_lr=0.2)
        ```
    """

    def __init__(
        self,
        warmup_epochs=5,
        momentum_correction=True,
        steps_per_epoch=None,
        verbose=0,
        initial_lr=None,
    ):
        super().__init__(
            None, warmup_epochs, momentum_correction, steps_per_epoch, verbose, initial_lr
        )
