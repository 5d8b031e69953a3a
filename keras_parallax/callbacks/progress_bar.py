# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A progress bar for the whole job."""

import sys
import time
from typing import Any, Callable, Dict, Optional, Tuple

import tqdm

from keras_parallax.callbacks.epoch_reports import batches_per_epoch, numbers
from keras_parallax.compat import keras_api
from keras_parallax.framework_types import Logs
from keras_parallax.observing.step_measures import is_in_bars


class ProgressBar(keras_api.callbacks.Callback):
    """Shows one bar for the job, and a line for each epoch, on rank 0's standard output.

    Keras's own bar prints a line for each batch wherever its output is no terminal, and under
    `horovodrun` it never is one. With this one, `fit` of a model of a strategy shows no other,
    unless `verbose` is given. Give it to every worker or to rank 0, after callbacks that add
    metrics.

    Args:
        unit: what is counted, in plural.
        per_sample: how many of them a sample stands for.
        describe: function of an epoch's logs that returns the rest of the epoch's line; if `None`,
            that is all its metrics.
        samples: number of samples of an epoch on this worker; if `None`, as many as Keras says, and
            for a generator its batches times the samples of the first one.
        interval: seconds from one drawing to the next, at least.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> bar = kp.callbacks.ProgressBar('words', per_sample=20)
        ```
    """

    def __init__(
        self,
        unit: str = 'samples',
        per_sample: float = 1,
        describe: Optional[Callable[[Dict[str, Any]], str]] = None,
        samples: Optional[int] = None,
        interval: float = 1.0,
    ) -> None:
        super().__init__()
        self.unit, self.per_sample, self.describe = unit, per_sample, describe
        self.samples, self.interval = samples, interval
        self._drawn: Optional[_Drawn] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Asks which worker this is."""
        step = getattr(self.model.optimizer, '_parallax_step', None)
        self._drawn = None
        if step is None or step.job.rank == 0:
            # In an object of its own, which no checkpoint brings back.
            self._drawn = _Drawn(self, 1 if step is None else step.job.size)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Draws the bar, the first time, and begins to count."""
        if self._drawn is not None:
            self._drawn.begin_epoch(epoch)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the batch's samples."""
        if self._drawn is not None:
            self._drawn.count((logs or {}).get('size', 1))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the epoch's line."""
        if self._drawn is not None:
            self._drawn.end_epoch(epoch, logs or {})

    def on_train_end(self, logs: Logs = None) -> None:
        """Leaves the bar as it is in the end."""
        if self._drawn is not None:
            self._drawn.close()


class _Drawn:
    """The bar of one `fit`; `size` workers train as many samples as this one."""

    def __init__(self, callback: ProgressBar, size: int) -> None:
        self._callback, self._per_sample = callback, callback.per_sample * size
        self._bar: Any = None
        params = callback.params
        # Where batches are counted, Keras 2.15 says their number there, too.
        self._samples = callback.samples or (None if params.get('steps') else params.get('samples'))

    def begin_epoch(self, epoch: int) -> None:
        if self._bar is None:
            total, begin = self._whole(epoch)
            self._bar, self._first = self._open(total, begin), epoch
        self._began, self._counted, self._seconds = time.perf_counter(), 0, 0.0

    def _open(self, total: Optional[float], begin: float) -> Any:
        return tqdm.tqdm(
            total=total,
            initial=begin,
            unit=' ' + self._callback.unit,
            unit_scale=True,
            mininterval=self._callback.interval,
            ncols=79,
            ascii=True,  # horovodrun 0.19.5 may cut other signs in two, and stops there.
            file=sys.stdout,
        )

    def _whole(self, epoch: int) -> Tuple[Optional[float], float]:
        """What `fit` comes to, `None` if it is not known, and what is over when an epoch begins."""
        of_epoch = (self._samples or 0) * self._per_sample
        return self._callback.params['epochs'] * of_epoch or None, epoch * of_epoch

    def count(self, samples: int) -> None:
        if not self._samples:
            batches = batches_per_epoch(self._callback.params)
            self._samples = batches and batches * samples
            self._bar.total, self._bar.initial = self._whole(self._first)
            self._bar.n = self._bar.initial
        # What other callbacks take is not in the rate.
        self._seconds = time.perf_counter() - self._began
        self._counted += samples
        self._bar.update(samples * self._per_sample)

    def end_epoch(self, epoch: int, logs: Logs) -> None:
        rate = self._counted * self._per_sample / (self._seconds or 1.0)
        words = (self._callback.describe or _metrics_in_words)(logs)
        if self._samples:
            # Batches that were over before, or a last one that was smaller than the first.
            self._bar.n = (epoch + 1) * self._samples * self._per_sample
        line = 'epoch {}: {:,.0f} {}/s, {}'.format(epoch + 1, rate, self._callback.unit, words)
        tqdm.tqdm.write(line, file=sys.stdout)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _metrics_in_words(logs: Logs) -> str:
    """All metrics of an epoch but those of `StepMetrics` that bars leave out.

    Example:
        ```python
        >>> _metrics_in_words({'loss': 0.25, 'val_loss': 123.456})
        'loss 0.25, val_loss 123.5'
        ```
    """
    shown = {name: value for name, value in numbers(logs).items() if is_in_bars(name)}
    return ', '.join('%s %.4g' % metric for metric in shown.items())
