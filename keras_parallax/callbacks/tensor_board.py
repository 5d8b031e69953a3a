# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`TensorBoard`: Keras's own on rank 0, with samples of large tables."""

import inspect
import warnings
from typing import Any, Dict, Optional, Sequence, Union, cast

from keras_parallax.callbacks.projector import Projector
from keras_parallax.callbacks.sampled_model import SampledModel
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Callback, Logs, Model

#: What Keras's callbacks have counted, under the names that they give it. A checkpoint has the
#: numbers of this callback, so it has them too.
_COUNTS = (
    'samples_seen',
    'samples_seen_at_last_write',
    '_samples_seen',
    '_samples_seen_at_last_write',
    '_total_batches_seen',
    '_total_val_batches_seen',
)


class TensorBoard(keras_api.callbacks.Callback):
    """Writes what Keras's `TensorBoard` writes, on rank 0, and never reads a large table whole.

    Of a sharded table with more than `sampled_rows` rows, histograms and images show that many,
    drawn once by chance: the same ones in every epoch. All else is as Keras has it: the tags, the
    steps, and that histograms need `validation_data`. Give it to every worker or to rank 0; no
    worker waits for another in it.

    With `embeddings_freq`, TensorBoard's projector shows rows of embedding tables, or what the
    layers make of `embeddings_data` if that is given, as they are at the end of the epoch.

    Args:
        log_dir: where the files are, for `tensorboard --logdir`. What cannot be written there is
            warned of, and training goes on.
        histogram_freq: number of epochs between histograms of weights and outputs; 0 for none.
        batch_size: number of samples that are fed at once, of `embeddings_data`, and for
            histograms in `keras`.
        write_graph: whether to write the graph of rank 0.
        write_grads: whether there are histograms of gradients, too: of rank 0's validation data.
        write_images: whether to show weights as images.
        embeddings_freq: number of epochs between writes of embeddings; 0 for none.
        embeddings_layer_names: names of the layers of which; if `None`, of each `Embedding`.
        embeddings_metadata: path in `log_dir` of a file with a line for each row of the table, or
            each sample of `embeddings_data`, as TensorBoard has them; or a dict from names of
            layers to such paths. Of rows that are not shown, the lines are left out.
        embeddings_data: inputs of the model, as `predict` takes them.
        update_freq: `'batch'`, `'epoch'`, or a number of samples: how often losses and metrics of
            batches are written; if `None`, as the Keras package does by default.
        sampled_rows: number of rows of a table that are shown.

    Raises:
        ValueError: `sampled_rows` is no number above 0, or Keras's own callback refuses something.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> board = kp.callbacks.TensorBoard('logs', histogram_freq=1, embeddings_freq=1)
        ```
    """

    def __init__(
        self,
        log_dir: str = './logs',
        histogram_freq: int = 0,
        batch_size: int = 32,
        write_graph: bool = True,
        write_grads: bool = False,
        write_images: bool = False,
        embeddings_freq: int = 0,
        embeddings_layer_names: Optional[Sequence[str]] = None,
        embeddings_metadata: Union[None, str, Dict[str, str]] = None,
        embeddings_data: Any = None,
        update_freq: Union[None, int, str] = None,
        sampled_rows: int = 1000,
    ) -> None:
        super().__init__()
        is_number = isinstance(sampled_rows, int) and not isinstance(sampled_rows, bool)
        if not is_number or sampled_rows < 1:
            raise ValueError(
                'sampled_rows must be a whole number, 1 or more, but %r was given.'
                % (sampled_rows,)
            )
        self.log_dir, self.histogram_freq, self.batch_size = log_dir, histogram_freq, batch_size
        self.write_graph, self.write_grads = write_graph, write_grads
        self.write_images, self.embeddings_freq = write_images, embeddings_freq
        self.embeddings_layer_names = embeddings_layer_names
        self.embeddings_metadata = embeddings_metadata
        self.embeddings_data = embeddings_data
        self.update_freq, self.sampled_rows = update_freq, sampled_rows
        self._of_keras: Any = None
        self._projector: Optional[Projector] = None
        self._acts, self._knows_frequency, self._unwritten = False, True, 0

    def set_model(self, model: Model) -> None:
        """Takes the model, and on rank 0 builds what is written."""
        is_other = model is not self.model
        super().set_model(model)
        step = getattr(model.optimizer, '_parallax_step', None)
        self._acts = step is None or step.job.rank == 0
        if not self._acts:
            return
        if is_other:
            self._of_keras = self._made(model)
            self._projector = Projector(self, model) if self.embeddings_freq else None
        try:
            self._of_keras.set_model(SampledModel(model, self.sampled_rows))
        except (OSError, tf.errors.OpError) as error:
            self._acts = False
            warnings.warn(
                'TensorBoard could not write to %s: %s. Training goes on without it.'
                % (self.log_dir, getattr(error, 'message', error)),
                stacklevel=2,
            )

    def _made(self, model: Model) -> Callback:
        """Keras's own callback, of the package of a model."""
        cls = keras_api.package_of(model).tensor_board
        arguments: Dict[str, Any] = {
            'histogram_freq': self.histogram_freq,
            'batch_size': self.batch_size,
            'write_graph': self.write_graph,
            'write_grads': self.write_grads,
            'write_images': self.write_images,
        }
        known = inspect.signature(cls).parameters
        self._knows_frequency = 'update_freq' in known  # TensorFlow 1.11 writes each batch.
        if self.update_freq is not None and self._knows_frequency:
            arguments['update_freq'] = self.update_freq
        if 'profile_batch' in known:
            arguments['profile_batch'] = 0  # TensorFlow 2 would trace the second batch.
        return cls(self.log_dir, **arguments)

    def set_params(self, params: Any) -> None:
        """Takes what Keras says about the training to come."""
        super().set_params(params)
        self._tell('set_params', params)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Goes on counting where a checkpoint was."""
        for name in _COUNTS:
            if self._acts and name in vars(self) and hasattr(self._of_keras, name):
                setattr(self._of_keras, name, getattr(self, name))
        self._tell('on_train_begin', logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Has the histograms of the epoch made, if it is time to."""
        self._tell('on_epoch_begin', epoch, logs)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes the batch's loss and metrics, if it is time to."""
        if self._acts and self._writes_batch(logs or {}):
            self._tell('on_batch_end', batch, logs)
        for name in _COUNTS:
            if hasattr(self._of_keras, name):
                setattr(self, name, getattr(self._of_keras, name))

    def _writes_batch(self, logs: Logs) -> bool:
        """Counts a batch, and whether a callback that knows no `update_freq` is to write it."""
        if self.update_freq is None or self._knows_frequency:
            return True
        if self.update_freq == 'epoch':
            return False
        self._unwritten += logs.get('size', 1)
        # What is no string is a number.
        is_due = self.update_freq == 'batch' or self._unwritten >= cast(int, self.update_freq)
        self._unwritten *= not is_due
        return is_due

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the epoch's losses and metrics, histograms, and embeddings if it is time to."""
        self._tell('on_epoch_end', epoch, logs)
        if self._acts and self._projector and epoch % self.embeddings_freq == 0:
            self._projector.write()

    def on_train_end(self, logs: Logs = None) -> None:
        """Closes the files."""
        self._tell('on_train_end', logs)

    def _tell(self, hook: str, *arguments: Any) -> None:
        if self._acts:
            self._of_keras.validation_data = self.validation_data
            getattr(self._of_keras, hook)(*arguments)
