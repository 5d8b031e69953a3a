"""Callbacks with the names and arguments of Horovod's and Keras's, for both Keras packages."""

from keras_parallax import compat
from keras_parallax.compat import horovod_callbacks, tf
from keras_parallax.errors import PlanError, UnequalBatchesError
from keras_parallax.model_checkpoint import ModelCheckpoint
from keras_parallax.optimizer import step_of

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
        check_equal_batches(step.gather(batches_per_epoch(self.params)))
        step.broadcast(self.root_rank)


def batches_per_epoch(params):
    """Number of batches in an epoch.

    Args:
        params: the dict that Keras gives to callbacks.

    Returns:
        An int, or `None` if it is not known.
    """
    if params.get('steps') is not None:
        return int(params['steps'])
    if params.get('samples') and params.get('batch_size'):
        return -(-int(params['samples']) // int(params['batch_size']))
    return None


def check_equal_batches(batches):
    """Compares the numbers of batches of the ranks.

    Args:
        batches: a list with each rank's number of batches in an epoch, or `None` where unknown.

    Raises:
        UnequalBatchesError: two known numbers differ.
    """
    known = [(number, rank) for rank, number in enumerate(batches) if number is not None]
    if len({number for number, _ in known}) > 1:
        raise UnequalBatchesError(
            'The ranks have unequal numbers of batches in an epoch: %s. Give every rank the same '
            'number, for instance by cutting the data to a multiple of the number of ranks.'
            % ', '.join('rank %d has %d' % (rank, number) for number, rank in known)
        )


class MetricAverageCallback(
    _LateBackend, horovod_callbacks.MetricAverageCallbackImpl, tf.keras.callbacks.Callback
):
    """Averages the metrics of an epoch over the ranks, for the callbacks after it.

    Args:
        device: as in Horovod's callback.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.MetricAverageCallback()
        ```
    """

    def __init__(self, device=''):
        super().__init__(None, device)


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
