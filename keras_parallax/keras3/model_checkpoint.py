# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.callbacks.ModelCheckpoint` for models of Keras 3."""

import glob
import os
import shutil
import warnings
import weakref
from typing import Any, List, Optional

import numpy as np

from keras_parallax.atomic_files import why_unwritten
from keras_parallax.callbacks import model_checkpoint
from keras_parallax.callbacks.save_clock import SaveClock
from keras_parallax.checkpoint import path_patterns, resume
from keras_parallax.checkpoint.delta_chain import Limits
from keras_parallax.checkpoint.keras3_state import WEIGHTS
from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.errors import CheckpointError, PlanError
from keras_parallax.keras3 import checkpoints, optimizer_parts, saves_in_parts
from keras_parallax.keras3.checkpoints import Position
from keras_parallax.keras3.scope import Keras3Scope

#: From callbacks for Keras 2, as users make them, to those that serve a model of Keras 3.
_made: Any = weakref.WeakKeyDictionary()


def of_keras3(callback: model_checkpoint.ModelCheckpoint) -> 'Keras3Checkpoint':
    """The callback that does for a model of Keras 3 what a `kp.callbacks.ModelCheckpoint` is to do.

    Raises:
        PlanError: an argument is not supported.
    """
    if callback not in _made:
        _made[callback] = Keras3Checkpoint(callback)
    made: Keras3Checkpoint = _made[callback]
    return made


class Keras3Checkpoint(keras.callbacks.ModelCheckpoint):
    """Saves a model of Keras 3, and how far its job has come.

    Args:
        asked: the callback that says when to save, and where.
    """

    best: Any

    def __init__(self, asked: model_checkpoint.ModelCheckpoint) -> None:
        path = os.fspath(asked.filepath)
        is_file = path.endswith((WEIGHTS, '.keras'))
        if is_file and asked.sharded:
            raise PlanError(
                'With sharded=True or incremental=True, kp.callbacks.ModelCheckpoint writes a '
                'folder, but %r names a file; leave out the ending.' % path
            )
        if not is_file and not asked.sharded:
            raise PlanError(
                'With Keras 3, the path of kp.callbacks.ModelCheckpoint ends with .keras or %s, '
                'but %r was given.' % (WEIGHTS, path)
            )
        # Keras would have a folder end like a file.
        super().__init__(
            path + WEIGHTS * asked.sharded,
            asked.monitor,
            asked.verbose,
            asked.save_best_only,
            asked.sharded or path.endswith(WEIGHTS),
            asked.mode,
        )
        self.filepath = path
        self._asked, self._saves, self._batches, self._epoch = asked, 0, 0, 0
        seconds = asked.save_seconds
        self._clock = None if seconds is None else SaveClock(seconds)

    @property
    def joint_act(self) -> Optional[str]:
        """What workers wait for each other in, in words; `None` if rank 0 saves alone."""
        return model_checkpoint.joint_act(self._asked)

    @property
    def _limits(self) -> Optional[Limits]:
        if not self._asked.incremental:
            return None
        return Limits(self._asked.max_deltas, self._asked.max_delta_bytes)

    @property
    def _scope(self) -> Keras3Scope:
        scope: Keras3Scope = self.model.optimizer._parallax_scope
        return scope

    def on_train_begin(self, logs: Any = None) -> None:
        """Removes what a job that was killed has left, and takes the best value so far."""
        if self._clock is not None:
            self._clock.begin()
        rank, best = self._scope.job.rank, None
        if rank:
            self.verbose = 0
        else:
            _remove_leftovers(self.filepath)
            newest = resume.latest_checkpoint(self.filepath) if self.save_best_only else None
            best = resume.state_of(newest)['best'].get(self.monitor) if newest else None
        if self.save_best_only and self._asked.sharded:
            best = self._of_rank_0(best)
        if self.best is None and self.model in checkpoints.resumed:
            self.best = best

    def _of_rank_0(self, value: Any) -> Any:
        with self._scope.job.call(self.joint_act or 'ModelCheckpoint'):
            return self._scope.job.gather(value)[0]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Takes note of the number of the epoch."""
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves, if it is time to, where it saves after epochs."""
        if self._asked.saves_within_epochs:
            return
        self._saves += 1
        if self._saves % self._asked.period == 0:
            self._save(epoch, None, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves, if it is time to, where it saves within epochs."""
        if not self._asked.saves_within_epochs or self.model in checkpoints.passing:
            return
        job, steps = self._scope.job, self._asked.save_steps
        before, self._batches = self._batches, self._batches + self.model.steps_per_execution
        is_due = steps is not None and before // steps < self._batches // steps
        if self._clock is not None:
            with job.call('ModelCheckpoint(save_seconds=%r)' % self._asked.save_seconds):
                is_due = self._clock.is_due(job.gather) or is_due
        if is_due:
            self._save(self._epoch, batch, None)
            if self._clock is not None:
                self._clock.restart()

    def _save(self, epoch: int, batch: Optional[int], logs: Any) -> None:
        position = Position(epoch + 1, 0, [])
        if batch is not None:
            position = Position(epoch, batch + 1, _sums_of_metrics(self.model, self._scope))
        if self._asked.sharded:
            # All workers must come to the same decision.
            logs = self._of_rank_0({name: float(value) for name, value in (logs or {}).items()})
        elif self._scope.job.rank:
            return
        path = keras3_api.checkpoint_path(self, epoch, batch, logs or {})
        former = self.best
        if not keras3_api.should_save(self, epoch, batch, logs, path):
            return
        state = dict(
            position._asdict(),
            best={self.monitor: float(self.best)} if self.save_best_only else {},
            written=resume.record_of(self.filepath, path),
            optimizer=optimizer_parts.own_class(type(self.model.optimizer)).__name__,
        )
        try:
            if self._asked.sharded:
                with self._scope.job.call(self.joint_act or 'ModelCheckpoint'):
                    saves_in_parts.save(self.model, path, state, self._limits, self.filepath)
            else:
                checkpoints.save(self.model, path, state)
        except OSError as error:
            # The next epoch is to beat what is on the disk.
            self.best = former
            problem = error
            if not isinstance(error, CheckpointError):
                problem = CheckpointError(why_unwritten(path, error))
            if self._asked.on_save_error == 'raise':
                raise problem from error
            if not self._scope.job.rank:
                warnings.warn('No checkpoint: %s' % problem, stacklevel=2)
        if self._asked.max_to_keep is not None and not self._scope.job.rank:
            model_checkpoint.remove_old(self.filepath, self._asked.max_to_keep)


def _remove_leftovers(pattern: str) -> None:
    folder, name = os.path.split(pattern)
    for aside in glob.glob(path_patterns.wildcard(os.path.join(folder, '.%s.' % name)) + '*.part'):
        shutil.rmtree(aside, ignore_errors=True)


def _sums_of_metrics(model: Any, scope: Keras3Scope) -> List[Any]:
    """The sums over the workers of the states of metrics, lists. A collective call."""
    keras3_api.backend_module().sync_state(model)
    own = [keras.ops.convert_to_numpy(of.value) for of in model.metrics_variables]
    flat = np.concatenate([np.zeros(0)] + [value.ravel().astype(np.float64) for value in own])
    with scope.job.call('ModelCheckpoint'):
        scope.job.gather(flat.size)
        parts = np.split(scope.job.sum(flat), np.cumsum([value.size for value in own])[:-1])
    return [part.reshape(value.shape).tolist() for part, value in zip(parts, own)]
