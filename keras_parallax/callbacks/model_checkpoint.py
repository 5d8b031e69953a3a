"""`ModelCheckpoint`: saves the whole job's state during training."""

import os
import warnings

from keras_parallax.checkpoint import random_state, resume
from keras_parallax.checkpoint import save as save_module
from keras_parallax.checkpoint.manifest import (
    is_sharded,
    remove_leftovers,
    remove_sharded,
    saved_under,
)
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import CheckpointError, PlanError
from keras_parallax.step.train_step import step_of
from keras_parallax.updates.optimizer_adapter import adapter_of

_RAISE, _WARN = 'raise', 'warn'


class ModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """Saves the job's whole state after epochs: what `strategy.resume` continues from.

    That is every weight, the optimizer's slots, counters and rates, the number of epochs, the
    states of NumPy's and Python's global generators, and the order into which `fit` has shuffled
    the samples. The file is one that plain Keras loads. It appears under its name when it is
    complete; until then the one before stays. Folders on the way to it are made.

    In one file, rank 0 saves on its own: the callback may be given to every rank or to rank 0
    alone. Sharded, every rank saves what it owns: give the callback to every rank.

    Args:
        filepath: path of the file, or of the folder if `sharded`. It may have fields for `epoch`
            and the names of metrics, as in Keras.
        monitor: metric that `save_best_only` looks at. The metrics of rank 0 count;
            `MetricAverageCallback` before this one averages them over the ranks.
        verbose: 1 to print a line for each save.
        save_best_only: whether to save only when the metric has improved. Training that goes on
            with `initial_epoch` has to beat the newest checkpoint under `filepath`.
        save_weights_only: whether to leave the optimizer's state out.
        mode: `'min'`, `'max'` or `'auto'`: what improvement means.
        period: number of epochs between saves.
        sharded: whether to save a folder to which every rank writes its own part, on storage that
            every host sees. It takes as many times less time as there are ranks.
        max_to_keep: number of checkpoints to keep, the newest ones; `None` keeps all. Only what
            this callback has written is removed, also by the job before a restart: files know by
            which `filepath` and under which name they were written.
        on_save_error: `'raise'` ends training if a save fails, because the disk is full for
            instance; `'warn'` gives a warning, and training goes on.

    Raises:
        ValueError: an argument is none of the above.
        PlanError: when training begins, if the optimizer keeps variables of which it is not known
            what they belong to.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.ModelCheckpoint('model-{epoch:02d}.h5', max_to_keep=3)
        ```
    """

    def __init__(
        self,
        filepath,
        monitor='val_loss',
        verbose=0,
        save_best_only=False,
        save_weights_only=False,
        mode='auto',
        period=1,
        sharded=False,
        max_to_keep=None,
        on_save_error=_RAISE,
    ):
        super().__init__(filepath, monitor, verbose, save_best_only, save_weights_only, mode)
        # The seventh argument of Keras 2.15 is a number of batches, and it warns of this one.
        self.period = period
        if on_save_error not in (_RAISE, _WARN):
            raise ValueError(
                "on_save_error must be 'raise' or 'warn', but %r was given." % (on_save_error,)
            )
        if max_to_keep is not None and max_to_keep < 1:
            raise ValueError('max_to_keep must be 1 or more, but %r was given.' % (max_to_keep,))
        self.sharded, self.max_to_keep, self.on_save_error = sharded, max_to_keep, on_save_error
        self._epochs = 0
        self._has_begun = False

    def set_model(self, model):
        """Takes the model; Keras's own callback then saves by way of this one."""
        self._trained = model
        self.model = _Saver(self)

    def on_train_begin(self, logs=None):
        """Checks that the state can be saved."""
        step, optimizer = step_of(self._trained), self._trained.optimizer
        keeps = not self.save_weights_only and (step.has_shards or adapter_of(optimizer).inner)
        if step.state is None and keeps:
            raise PlanError(
                'The state of %s cannot be saved, for it is not known which of its variables '
                'belong to which variable of the model; use another optimizer, or '
                'save_weights_only=True.' % adapter_of(optimizer).name
            )
        if step.rank == 0:
            remove_leftovers(self.filepath)
        else:
            self.verbose = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Has the first epoch after a resume go on from the order of samples before."""
        step = step_of(self._trained)
        if step.saved_order is not None:
            random_state.restore_order(step.saved_order)
            step.saved_order = None
        if epoch and not self._has_begun and self.save_best_only:
            self._restore_best(step)
        self._has_begun = True

    def _restore_best(self, step):
        """Has the metric to beat be that of the newest checkpoint, when training goes on."""
        best = None
        if step.rank == 0:
            newest = resume.latest_checkpoint(self.filepath)
            saved = resume.state_of(newest)['best'] if newest else {}
            best = saved.get(self.monitor)
        if self.sharded:
            with step.call('ModelCheckpoint(sharded=True)'):
                best = step.gather(best)[0]
        if best is not None:
            self.best = best

    def on_epoch_end(self, epoch, logs=None):
        """Saves, if it is time to."""
        step = step_of(self._trained)
        with step.call('ModelCheckpoint(sharded=True) after epoch %d' % (epoch + 1)):
            self._save_if_due(step, epoch, logs)

    def _save_if_due(self, step, epoch, logs):
        if self.sharded:
            # All ranks must come to the same decision.
            logs = {name: float(value) for name, value in (logs or {}).items()}
            logs = step.gather(logs)[0]
        elif step.rank != 0:
            return
        self._epochs, best = epoch + 1, self.best
        try:
            super().on_epoch_end(epoch, logs)
        except CheckpointError as error:
            # The next epoch is to beat what is on the disk.
            self.best = best
            if self.on_save_error == _RAISE:
                raise
            if step.rank == 0:
                message = 'No checkpoint after epoch %d: %s' % (epoch + 1, error)
                warnings.warn(message, stacklevel=2)

    def _save(self, path, include_optimizer):
        save = save_module.save_parts if self.sharded else save_module.save
        best = {self.monitor: float(self.best)} if self.save_best_only else {}
        written = resume.record_of(self.filepath, path)
        save(self._trained, path, self._epochs, include_optimizer, best=best, written=written)
        if self.max_to_keep is not None and step_of(self._trained).rank == 0:
            self._remove_old()

    def _remove_old(self):
        """Removes what this callback has written, before a restart of the job too, and no more."""
        written = [
            path for path in saved_under(self.filepath) if resume.is_written_by(self.filepath, path)
        ]
        for path in written[: -self.max_to_keep]:
            if is_sharded(path):
                remove_sharded(path)
            else:
                os.remove(path)


class _Saver:
    """What Keras's callback takes for the model that it saves."""

    #: As Keras 2.15 asks: `tf.distribute` has no part in the job.
    distribute_strategy = None

    def __init__(self, callback):
        self._callback = callback

    def save(self, filepath, overwrite=True, options=None):
        self._callback._save(filepath, include_optimizer=True)

    def save_weights(self, filepath, overwrite=True, options=None):
        self._callback._save(filepath, include_optimizer=False)
