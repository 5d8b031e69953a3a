# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Callbacks of Keras 3 in a `fit` of several workers."""

from typing import Any, Callable, List

from keras_parallax.callbacks import fit_output
from keras_parallax.callbacks.epoch_reports import (
    check_equal_batches,
    check_equal_calls,
    check_equal_epochs,
)
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.errors import PlanError
from keras_parallax.keras3.model_checkpoint import Keras3Checkpoint, of_keras3
from keras_parallax.keras3.scope import Keras3Scope

#: Starts the names of the modules of our callbacks.
_OUR_CALLBACKS = 'keras_parallax.callbacks.'


def install(rank_of: Callable[[Any], int]) -> None:
    """Has the files of `BackupAndRestore` written and removed by rank 0 alone.

    Args:
        rank_of: function from a model to its worker's rank, 0 if it is not trained by several.
    """

    def by_rank_0(original: Callable[..., None]) -> Callable[..., None]:
        def act(self: Any, *args: Any, **kwargs: Any) -> None:
            if rank_of(self.model) == 0:
                original(self, *args, **kwargs)

        return act

    for name in ('_save_model', 'on_train_end'):
        keras3_api.replace_method(
            'BackupAndRestore.' + name, keras.callbacks.BackupAndRestore, by_rank_0
        )


class _FitAgreement(keras.callbacks.Callback):
    """Compares the workers' numbers of batches and epochs, and callbacks, before the first batch.

    Args:
        scope: the scope of the model's strategy.
        initial_epoch: that of `fit`.
        calls: the callbacks in which workers wait for each other, in words.
    """

    def __init__(self, scope: Keras3Scope, initial_epoch: int, calls: List[str]) -> None:
        super().__init__()
        self._scope, self._initial_epoch, self._calls = scope, initial_epoch, calls

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises `UnequalBatchesError` or `MetricMismatchError` if the workers have others."""
        params = self.params or {}
        # `BackupAndRestore` says in the model where it begins.
        epochs = [self.model._initial_epoch or self._initial_epoch, params.get('epochs', 1)]
        with self._scope.job.call('fit'):
            found = self._scope.job.gather([params.get('steps'), epochs, self._calls])
        check_equal_calls([calls for _, _, calls in found])
        check_equal_epochs([of_rank for _, of_rank, _ in found])
        steps = [of_rank for of_rank, _, _ in found]
        if None not in steps:
            check_equal_batches(steps)


def _written_once(callbacks: List[Any], scope: Keras3Scope) -> List[Any]:
    """Callbacks without those that write what one of rank 0 writes. A collective call."""
    if scope.job.size == 1:
        return callbacks
    with scope.job.call('fit'):
        of_rank_0 = scope.job.gather(fit_output.outputs(callbacks))[0]
    silent, _ = fit_output.left_to(of_rank_0, callbacks)
    return [one for one in callbacks if scope.job.rank == 0 or one not in silent]


def with_agreement(given: Any, scope: Keras3Scope, initial_epoch: int) -> Any:
    """The callbacks that `fit` is given, and one that has the workers agree, after all others.

    Of those that write the same files, rank 0's alone are left. A collective call.

    Args:
        given: the argument of `fit`.
        scope: the scope of the model's strategy.
        initial_epoch: that of `fit`.

    Raises:
        PlanError: one of the callbacks is not supported.
    """
    callbacks = getattr(given, 'callbacks', given)
    own: List[Any] = list(callbacks) if isinstance(callbacks, (list, tuple)) else []
    own = own or [callbacks] * (callbacks is not None and not isinstance(callbacks, (list, tuple)))
    own = [of_keras3(one) if isinstance(one, ModelCheckpoint) else one for one in own]
    for callback in own:
        if any(cls.__module__.startswith(_OUR_CALLBACKS) for cls in type(callback).__mro__):
            raise PlanError(
                'kp.callbacks.%s is not supported with Keras 3 yet; use a callback of Keras, or '
                'train a model of Keras 2 (docs/keras3.md).' % type(callback).__name__
            )
    own = _written_once(own, scope)
    calls = [one.joint_act for one in own if isinstance(one, Keras3Checkpoint)]
    agreement = _FitAgreement(scope, initial_epoch, list(filter(None, calls)))
    if isinstance(given, keras.callbacks.CallbackList):
        given.append(agreement)
        return given
    return [*own, agreement]
