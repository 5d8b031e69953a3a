# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`ModelCheckpoint`: saves the whole job's state during training."""

import contextlib
import os
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union, cast

from typing_extensions import Protocol

from keras_parallax.callbacks.save_clock import SaveClock
from keras_parallax.checkpoint import (
    increments,
    keras_file_write,
    path_patterns,
    resume,
    save_parts,
)
from keras_parallax.checkpoint import save as save_module
from keras_parallax.checkpoint.delta_chain import MAX_DELTAS, Limits
from keras_parallax.checkpoint.fit_record import FitRecord
from keras_parallax.checkpoint.manifest import (
    is_sharded,
    remove_leftovers,
    remove_sharded,
    saved_under,
)
from keras_parallax.compat import keras_api
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import CheckpointError, PlanError
from keras_parallax.framework_types import Logs, Model
from keras_parallax.planning.plan_request import check_flag

_RAISE, _WARN = 'raise', 'warn'


class Progress(Protocol):
    """How far `fit` has come, and what is saved of it (`fit_progress.FitProgress`).

    Attributes:
        epoch, batch, is_first: as `FitProgress` has them.
    """

    epoch: int
    batch: int
    is_first: bool

    @property
    def of_rank(self) -> Dict[str, Any]:
        """What each worker has of its own, plain data."""

    def within_epoch(self, ranks: List[Dict[str, Any]]) -> FitRecord:
        """The `FitRecord` after a batch, given what is `of_rank` of each worker."""

    def after_epoch(self, logs: Logs) -> FitRecord:
        """The `FitRecord` after an epoch."""


class ModelCheckpoint(keras_api.callbacks.ModelCheckpoint):
    """Saves the job's whole state after epochs or batches: what `strategy.resume` continues from.

    That is every weight, the optimizer's slots, counters and rates, the number of epochs and of
    batches within one, the states of NumPy's and Python's global generators, the order into which
    `fit` has shuffled the samples, its `History`, and the numbers of other callbacks. The file is
    one that plain Keras loads. It appears under its name when it is complete; until then the one
    before stays. Folders on the way to it are made.

    In one file, rank 0 saves on its own: the callback may be given to every worker or to rank 0
    alone. Sharded, or with `save_steps` or `save_seconds`, give the callback to every worker.

    Args:
        filepath: path of the file, or of the folder if `sharded`. It may have fields for `epoch`
            and the names of metrics, as in Keras; with `save_steps` or `save_seconds` for `epoch`
            and `batch`.
        monitor: metric that `save_best_only` looks at. The metrics of rank 0 count;
            `MetricAverageCallback` before this one averages them over the workers.
        verbose: 1 to print a line for each save.
        save_best_only: whether to save only when the metric has improved. Training that goes on
            with `initial_epoch` has to beat the newest checkpoint under `filepath`.
        save_weights_only: whether to leave the optimizer's state out.
        mode: `'min'`, `'max'` or `'auto'`: what improvement means.
        period: number of epochs between saves.
        sharded: whether to save a folder to which every worker writes its own part, on storage that
            every host sees. It takes as many times less time as there are workers.
        max_to_keep: number of checkpoints to keep, the newest ones; `None` keeps all. Only what
            this callback has written is removed, also by the job before a restart: files know by
            which `filepath` and under which name they were written.
        on_save_error: `'raise'` ends training if a save fails, because the disk is full for
            instance; `'warn'` gives a warning, and training goes on.
        save_steps: number of batches between saves, counted over epochs. It saves after batches
            then, and not after epochs. `strategy.resume` and `fit` go on within the epoch. With
            `accumulate_steps` it saves after the next update.
        save_seconds: number of seconds between saves, by the clock of rank 0; as `save_steps`
            otherwise. Given both, it saves when either is over.
        incremental: whether to save only those rows of tables, and of their slots, that were
            written since the last save under `filepath`, beside all dense variables. It saves as
            `sharded` does. The first save of a job has all rows.
        max_deltas: with `incremental`, after how many such saves one has all rows again.
        max_delta_bytes: with `incremental`, after how many bytes of rows in them one has;
            `None` for as many as all rows have.

    With Keras 3 the path of a file ends with `.keras`, or with `.weights.h5`, whose file has no
    configuration of the model. Both have the optimizer's state. Of the above, the numbers of other
    callbacks, the `History` and the order of samples are not kept.

    Raises:
        ValueError: an argument is none of the above, or `filepath` has a field that is misspelled.
        PlanError: when training begins, if the optimizer keeps variables of which it is not known
            what they belong to; with Keras 3, if an argument is not supported.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.ModelCheckpoint('model-{epoch:02d}.h5', max_to_keep=3)
        >>> path = 'model-{epoch:02d}-{batch:06d}.h5'
        >>> callback = kp.callbacks.ModelCheckpoint(path, save_steps=1000, max_to_keep=3)
        >>> callback = kp.callbacks.ModelCheckpoint('model', save_steps=100, incremental=True)
        ```
    """

    def __init__(
        self,
        filepath: Union[str, 'os.PathLike[str]'],
        monitor: str = 'val_loss',
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = 'auto',
        period: int = 1,
        sharded: bool = False,
        max_to_keep: Optional[int] = None,
        on_save_error: str = _RAISE,
        save_steps: Optional[int] = None,
        save_seconds: Optional[float] = None,
        incremental: bool = False,
        max_deltas: int = MAX_DELTAS,
        max_delta_bytes: Optional[int] = None,
    ) -> None:
        path_patterns.check(os.fspath(filepath), ['epoch'])
        sharded = check_flag('sharded', sharded, ValueError)
        incremental = check_flag('incremental', incremental, ValueError)
        super().__init__(filepath, monitor, verbose, save_best_only, save_weights_only, mode)
        # The seventh argument of Keras 2.15 is a number of batches, and it warns of this one.
        self.period, self.mode = period, mode
        if on_save_error not in (_RAISE, _WARN):
            raise ValueError(
                "on_save_error must be 'raise' or 'warn', but %r was given." % (on_save_error,)
            )
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError('max_to_keep must be 1 or more, but %r was given.' % (max_to_keep,))
        for name, number in (('max_deltas', max_deltas), ('max_delta_bytes', max_delta_bytes)):
            if number is not None and not (_is_number(number, int) and number >= 1):
                raise ValueError(
                    '%s must be a whole number, 1 or more, but %r was given.' % (name, number)
                )
        self.sharded, self.max_to_keep = sharded or incremental, max_to_keep
        self.on_save_error, self.incremental = on_save_error, incremental
        self.max_deltas, self.max_delta_bytes = max_deltas, max_delta_bytes
        self.save_steps, self.save_seconds = save_steps, save_seconds
        if self.saves_within_epochs:
            _check_within_epochs(self)
        self._steps, self._clock = 0, None if save_seconds is None else SaveClock(save_seconds)
        self.progress = cast(Progress, None)  # Until `fit` begins.
        self._is_due = False

    @property
    def saves_within_epochs(self) -> bool:
        """Whether it saves after batches, and not after epochs."""
        return self.save_steps is not None or self.save_seconds is not None

    def set_model(self, model: Model) -> None:
        """Takes the model; Keras's own callback then saves by way of this one."""
        self._trained = model
        self.model = _Saver(self)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks that the state can be saved."""
        step, optimizer = step_of(self._trained), self._trained.optimizer
        keeps = not self.save_weights_only and (step.spec.has_shards or adapter_of(optimizer).inner)
        if step.operations.state is None and keeps:
            raise PlanError(
                'The state of %s cannot be saved, for it is not known which of its variables '
                'belong to which variable of the model; use another optimizer, or '
                'save_weights_only=True.' % adapter_of(optimizer).name
            )
        if self._clock is not None:
            self._clock.begin()
        if step.job.rank == 0:
            remove_leftovers(self.filepath)
        else:
            self.verbose = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Has training that goes on beat what is there."""
        if epoch and self.save_best_only and self.progress.is_first:
            self._restore_best(step_of(self._trained))

    def _restore_best(self, step: TrainStep) -> None:
        """Has the metric to beat be that of the newest checkpoint, when training goes on."""
        best = None
        if step.job.rank == 0:
            newest = resume.latest_checkpoint(self.filepath)
            saved = resume.state_of(newest)['best'] if newest else {}
            best = saved.get(self.monitor)
        if self.sharded:
            with step.job.call(joint_act(self) or 'ModelCheckpoint'):
                best = step.job.gather(best)[0]
        if best is not None:
            self.best = best

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves, if it is time to, where it saves within epochs.

        Where gradients of several batches are added up, it waits until they are applied.
        """
        if not self.saves_within_epochs:
            return
        self._steps += 1
        is_due = self.save_steps is not None and self._steps % self.save_steps == 0
        if self._clock is not None:
            is_due = self._clock.is_due(self._gather) or is_due
        self._is_due = self._is_due or is_due
        step = step_of(self._trained)
        if self._is_due and not step.runs.pending:
            self._is_due, place = False, _place(self.progress.epoch, batch)
            with step.job.call('%s %s' % (joint_act(self), place)):
                self._save_after_batch(step, place)
            if self._clock is not None:
                self._clock.restart()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """As Keras 2.15 calls it, which would count batches for a save of its own.

        Args:
            batch: the number of the batch in its epoch.
            logs: the dict of its loss and metrics.
        """
        self.on_batch_end(batch, logs)

    def _gather(self, value: Any) -> List[Any]:
        step = step_of(self._trained)
        if not step.synchronization.waits and not self.sharded:
            return [value]  # Rank 0 saves alone.
        with step.job.call(joint_act(self) or 'ModelCheckpoint'):
            return step.job.gather(value)

    def _save_after_batch(self, step: TrainStep, place: str) -> None:
        of_rank = self.progress.of_rank
        ranks = step.job.gather(of_rank) if step.synchronization.waits else [of_rank]
        if not self.sharded and step.job.rank != 0:
            return
        epoch, batch = self.progress.epoch, self.progress.batch
        path = self.filepath.format(epoch=epoch + 1, batch=batch)
        if self.verbose:
            print('\n%s: saving model to %s' % (place.capitalize(), path))
        with self._errors_told(step, place):
            fit = self.progress.within_epoch(ranks)
            self._save_job(path, epoch, fit, not self.save_weights_only)

    @contextlib.contextmanager
    def _errors_told(self, step: TrainStep, place: str) -> Iterator[None]:
        """While open, a save that fails ends training or not, as asked."""
        best = self.best
        try:
            yield
        except CheckpointError as error:
            # The next epoch is to beat what is on the disk.
            self.best = best
            if self.on_save_error == _RAISE:
                raise
            if step.job.rank == 0:
                warnings.warn('No checkpoint %s: %s' % (place, error), stacklevel=4)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves, if it is time to, where it saves after epochs."""
        if self.saves_within_epochs:
            return
        step = step_of(self._trained)
        if step.job.rank != 0 and not self.sharded:
            return
        with step.job.call('%s %s' % (joint_act(self) or 'ModelCheckpoint', _place(epoch))):
            if self.sharded:
                # All workers must come to the same decision.
                logs = {name: float(value) for name, value in (logs or {}).items()}
                logs = step.job.gather(logs)[0]
            self._logs = logs
            if self.epochs_since_last_save + 1 >= self.period:
                self._check_fields(dict(logs or {}, epoch=epoch))
            with self._errors_told(step, _place(epoch)):
                super().on_epoch_end(epoch, logs)

    def _check_fields(self, values: Dict[str, Any]) -> None:
        """Refuses fields of the path that are not in the logs, to which other callbacks may add."""
        lacking = path_patterns.missing(self.filepath, values)
        if lacking:
            raise CheckpointError(
                'The path %r has the field %s, but after an epoch there are %s.'
                % (self.filepath, ' and '.join(lacking), ', '.join(sorted(values)))
            )

    def _save(self, path: str, include_optimizer: bool) -> None:
        """Saves after an epoch, as Keras's callback asks."""
        fit = self.progress.after_epoch(self._logs)
        self._save_job(path, self.progress.epoch + 1, fit, include_optimizer)

    def _save_job(self, path: str, epochs: int, fit: FitRecord, include_optimizer: bool) -> None:
        best = {self.monitor: float(self.best)} if self.save_best_only else {}
        written = resume.record_of(self.filepath, path)
        arguments: Dict[str, Any] = {'best': best, 'written': written, 'fit': fit}
        save: Callable[..., None] = save_module.save
        if self.sharded:
            save = save_parts.save_parts
            arguments['increments'] = self._increments() if self.incremental else None
        save(self._trained, path, epochs, include_optimizer, **arguments)
        if self.max_to_keep is not None and step_of(self._trained).job.rank == 0:
            remove_old(self.filepath, self.max_to_keep)

    def _increments(self) -> increments.Increments:
        limits = Limits(self.max_deltas, self.max_delta_bytes)
        scope = keras_file_write.scope_of_model(self._trained)
        return increments.increments_of(scope, self.filepath, limits)


def joint_act(callback: ModelCheckpoint) -> Optional[str]:
    """What workers wait for each other in, as the user knows it; `None` if rank 0 acts alone.

    Args:
        callback: the `ModelCheckpoint`.
    """
    given = ['sharded=True'] if callback.sharded and not callback.incremental else []
    given += ['incremental=True'] if callback.incremental else []
    for name in ('save_steps', 'save_seconds'):
        if getattr(callback, name) is not None:
            given.append('%s=%r' % (name, getattr(callback, name)))
    return 'ModelCheckpoint(%s)' % ', '.join(given) if given else None


def _check_within_epochs(callback: ModelCheckpoint) -> None:
    """Refuses what has no meaning for a callback that saves after batches."""
    steps, seconds = callback.save_steps, callback.save_seconds
    if steps is not None and not (_is_number(steps, int) and steps >= 1):
        raise ValueError(
            'save_steps must be a number of batches, 1 or more, but %r was given.' % (steps,)
        )
    is_time = seconds is None or (_is_number(seconds, (int, float)) and 0 < seconds < float('inf'))
    if not is_time:
        raise ValueError(
            'save_seconds must be a number of seconds above 0, but %r was given.' % (seconds,)
        )
    within = 'save_steps' if seconds is None else 'save_seconds'
    for name, is_given in (
        ('save_best_only', callback.save_best_only),
        ('period', callback.period != 1),
    ):
        if is_given:
            raise ValueError(
                '%s looks at epochs, but with %s a callback saves after batches; give one '
                'kp.callbacks.ModelCheckpoint for each.' % (name, within)
            )
    others = path_patterns.fields(callback.filepath).difference(['epoch', 'batch'])
    if others:
        raise ValueError(
            'A path may have the fields epoch and batch with %s, but not %s, which is known after '
            'an epoch.' % (within, ' and '.join(sorted(others)))
        )


def _is_number(value: Any, kinds: Union[type, Tuple[type, ...]]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def remove_old(filepath: str, kept: int) -> None:
    """Removes all but the newest that a callback has written, before a restart too, and no more.

    Args:
        filepath: the callback's argument.
        kept: how many stay.
    """
    written = [path for path in saved_under(filepath) if resume.is_written_by(filepath, path)]
    for path in written[:-kept]:
        if is_sharded(path):
            remove_sharded(path)
        else:
            os.remove(path)


def _place(epoch: int, batch: Optional[int] = None) -> str:
    """Words for where in training it is."""
    of_epoch = 'epoch %d' % (epoch + 1)
    return 'after ' + (of_epoch if batch is None else 'batch %d of %s' % (batch + 1, of_epoch))


class _Saver:
    """What Keras's callback takes for the model that it saves."""

    #: As Keras 2.15 asks: `tf.distribute` has no part in the job.
    distribute_strategy = None

    def __init__(self, callback: ModelCheckpoint) -> None:
        self._callback = callback

    @staticmethod
    def _in_multi_worker_mode() -> bool:
        """As the Keras of TensorFlow 1.15 asks, to the same end."""
        return False

    def save(self, filepath: str, overwrite: bool = True, options: Any = None) -> None:
        self._callback._save(filepath, include_optimizer=True)

    def save_weights(self, filepath: str, overwrite: bool = True, options: Any = None) -> None:
        self._callback._save(filepath, include_optimizer=False)
