# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Learning rates that follow a schedule."""

import numbers
from typing import Any, Callable, Optional, Tuple, Union

from keras_parallax.callbacks.late_backend import _LateBackend
from keras_parallax.compat import keras_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Logs


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


class _ScaledRate(_LateBackend, keras_api.callbacks.Callback):
    """Sets the rate of each batch: a multiple, by the epoch, of the rate that training starts with.

    Args:
        multiplier: function from the epoch, with a fraction unless `staircase`, to a number.
        epochs: the first epoch and the one after the last; `None` for no last one.
        staircase: whether the rate changes at the first batch of an epoch only.
        momentum_correction: whether an optimizer's momentum is scaled with the rate for the first
            batch that has it (Goyal et al. 2017, section 2.3).
        steps_per_epoch: number of batches in an epoch, found out if `None`.
        initial_lr: the rate, the optimizer's at the start of training if `None`.
    """

    def __init__(
        self,
        multiplier: Callable[[float], float],
        epochs: Tuple[float, Optional[float]],
        staircase: bool,
        momentum_correction: bool,
        steps_per_epoch: Optional[int],
        initial_lr: Optional[float],
    ) -> None:
        super().__init__()
        self.multiplier, self.staircase = multiplier, staircase
        self.start_epoch, self.end_epoch = epochs
        self.momentum_correction = momentum_correction
        self.steps_per_epoch, self.initial_lr = steps_per_epoch, initial_lr
        self._epoch = 0
        self._former_momentum: Optional[float] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Finds out what was not given."""
        if self.initial_lr is None:
            self.initial_lr = self._rate()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._steps()

    def _steps(self) -> int:
        if self.params.get('steps'):
            return self.params['steps']
        samples, batch_size = self.params.get('samples'), self.params.get('batch_size')
        if samples and batch_size:
            return samples // batch_size
        raise PlanError(
            '%s does not know the number of batches in an epoch; give it as steps_per_epoch.'
            % type(self).__name__
        )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Notes the epoch."""
        self._epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the rate of the batch."""
        is_over = self.end_epoch is not None and self._epoch >= self.end_epoch
        if self._epoch < self.start_epoch or is_over or (self.staircase and batch):
            return
        epoch: float = self._epoch
        if not self.staircase:
            epoch += batch / float(self.steps_per_epoch or 1)
        self._set_rate((self.initial_lr or 0) * self.multiplier(epoch))

    def _rate(self) -> float:
        return self.backend.get_value(self.model.optimizer.lr)

    def _set_rate(self, rate: float) -> None:
        former, optimizer = self._rate(), self.model.optimizer
        self.backend.set_value(optimizer.lr, rate)
        if self.momentum_correction and hasattr(optimizer, 'momentum'):
            momentum = self.backend.get_value(optimizer.momentum)
            self._former_momentum = momentum
            self.backend.set_value(optimizer.momentum, momentum * rate / former)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Gives the optimizer its momentum back."""
        if self._former_momentum:
            self.backend.set_value(self.model.optimizer.momentum, self._former_momentum)
            self._former_momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the rate as `lr`."""
        if logs is not None:
            logs['lr'] = self._rate()


class LearningRateScheduleCallback(_ScaledRate):
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
        super().__init__(
            multiplier if callable(multiplier) else lambda epoch: multiplier,
            (start_epoch, end_epoch),
            staircase or not callable(multiplier),
            momentum_correction,
            steps_per_epoch,
            initial_lr,
        )


class LearningRateWarmupCallback(_ScaledRate):
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
        self.warmup_epochs, self.verbose = warmup_epochs, verbose
        epochs = (0, warmup_epochs)
        super().__init__(
            self._share, epochs, False, momentum_correction, steps_per_epoch, initial_lr
        )

    def _share(self, epoch: float) -> float:
        # As if a batch later, so that the rate is round at the end of an epoch.
        share = (epoch + 1.0 / (self.steps_per_epoch or 1)) / self.warmup_epochs
        return (1 + share * (hvd.size() - 1)) / hvd.size()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the rate as `lr`, and prints it on rank 0 at the end of the last epoch."""
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and epoch == self.warmup_epochs - 1 and hvd.rank() == 0:
            rate = self._rate()
            print('\nEpoch %d: the learning rate has been raised to %g.' % (epoch + 1, rate))
