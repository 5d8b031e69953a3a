"""Learning rates that follow a schedule."""

import numbers
from typing import Any, Callable, Optional, Union

from keras_parallax.callbacks.late_backend import _LateBackend
from keras_parallax.compat import keras_api
from keras_parallax.compat.horovod_api import horovod_callbacks
from keras_parallax.errors import PlanError


def _check_order(callback: str, first: str, value: Any, fits: bool) -> None:
    """Refuses arguments in the order of Horovod 0.28, which has `initial_lr` first.

    Args:
        callback: the name of the callback.
        first: the name of its first argument.
        value: an argument by whose kind the order is seen.
        fits: whether it is of the kind that it has in ours.

    Raises:
        PlanError: it is not.
    """
    if not fits:
        raise PlanError(
            '%s takes its arguments in the order of Horovod 0.19, %s first, but %r was given; give '
            'initial_lr by its name.' % (callback, first, value)
        )


class LearningRateScheduleCallback(
    _LateBackend, horovod_callbacks.LearningRateScheduleCallbackImpl, keras_api.callbacks.Callback
):
    """Multiplies the initial learning rate, epoch by epoch or batch by batch.

    The shards of sparse tables follow at the next step, as every worker runs the callback.

    Args:
        multiplier: a number, or a function from the epoch to one.
        start_epoch, end_epoch: the epochs in which it acts, `end_epoch` excluded.
        staircase: whether the rate changes at the start of an epoch only.
        momentum_correction: whether to scale the momentum of SGD with the rate.
        steps_per_epoch: number of batches in an epoch, found out if `None`.
        initial_lr: the rate to multiply, the optimizer's at the start of training if `None`.

    Raises:
        PlanError: `start_epoch` is no number of an epoch, as if `initial_lr` had come first.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.LearningRateScheduleCallback(0.1, start_epoch=5, initial_lr=0.2)
        ```
    """

    def __init__(
        self,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        initial_lr: Optional[float] = None,
    ) -> None:
        is_epoch = isinstance(start_epoch, numbers.Integral)
        _check_order('LearningRateScheduleCallback', 'multiplier', start_epoch, is_epoch)
        # By name, for Horovod 0.28 has them in another order; it takes a number for the base of an
        # exponential decay, and asks for a rate.
        super().__init__(
            None,
            multiplier=multiplier if callable(multiplier) else lambda epoch: multiplier,
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            staircase=staircase or not callable(multiplier),
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
            initial_lr=1.0,
        )
        self.initial_lr = initial_lr


class LearningRateWarmupCallback(
    _LateBackend, horovod_callbacks.LearningRateWarmupCallbackImpl, keras_api.callbacks.Callback
):
    """Raises the learning rate from `lr / size` to `lr` over the first epochs (Goyal et al. 2017).

    Args:
        warmup_epochs: number of epochs that it takes.
        momentum_correction: whether to scale the momentum of SGD with the rate.
        steps_per_epoch: number of batches in an epoch, found out if `None`.
        verbose: 1 to print the rate at the end.
        initial_lr: the rate to reach, the optimizer's at the start of training if `None`.

    Raises:
        PlanError: `warmup_epochs` is a fraction of one epoch, or `momentum_correction` a number of
            epochs, as if `initial_lr` had come first.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.LearningRateWarmupCallback(warmup_epochs=3, initial_lr=0.2)
        ```
    """

    def __init__(
        self,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
        initial_lr: Optional[float] = None,
    ) -> None:
        name = 'LearningRateWarmupCallback'
        _check_order(name, 'warmup_epochs', warmup_epochs, not 0 < warmup_epochs < 1)
        corrects = momentum_correction in (False, True)
        _check_order(name, 'warmup_epochs', momentum_correction, corrects)
        super().__init__(
            None,
            warmup_epochs=warmup_epochs,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
            verbose=verbose,
            initial_lr=1.0,
        )
        self.initial_lr = initial_lr
