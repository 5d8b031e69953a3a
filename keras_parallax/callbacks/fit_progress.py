# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How far `fit` has come: what is saved of it, and how another goes on from there.

Keras begins each epoch with its first batch. To go on within an epoch, Keras takes the batches that
are over from the data as ever, but nothing is computed of them, and no callback hears of them.
"""

import contextlib
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, cast

import numpy as np

from keras_parallax.callbacks.epoch_reports import numbers
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.checkpoint import random_state
from keras_parallax.checkpoint.fit_record import FitRecord, SavedFit
from keras_parallax.compat import keras_api, keras_metrics
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.framework_types import Array, Callback, Logs, Model


class FitProgress(keras_api.callbacks.Callback):
    """Comes before the user's callbacks.

    Args:
        callbacks: the user's callbacks.
        data: what `positions.described` says of the data.
        saved: the `SavedFit` to go on from, or `None`.
        passed: number of batches of the first epoch that are over.

    Attributes:
        epoch: number of epochs that are over.
        batch: number of batches that are over in the epoch.
        is_first: whether the epoch is the first of this `fit`.
    """

    def __init__(
        self,
        callbacks: List[Callback],
        data: Dict[str, Any],
        saved: Optional[SavedFit] = None,
        passed: int = 0,
    ) -> None:
        super().__init__()
        self._callbacks, self._data, self._saved, self._passed = callbacks, data, saved, passed
        self._keeps_begin = any(_saves_within_epochs(callback) for callback in callbacks)
        self._list: Any = None
        self._all: List[Callback] = []
        self._started: Optional[List[Dict[str, Any]]] = None
        self._begin: Any = None
        self._order: Optional[Array] = None
        self._counters: Sequence[Callable[[float], None]] = ()
        self.epoch, self.batch, self.is_first = 0, 0, True

    def bind(self, callback_list: Any, counters: Sequence[Callable[[float], None]] = ()) -> None:
        """Takes the list by which Keras calls all callbacks.

        Args:
            callback_list: the `CallbackList`, Keras's own callbacks in it.
            counters: functions that are told how many samples this worker need not train.
        """
        self._list, self._all, self._counters = callback_list, callback_list.callbacks, counters
        for callback in self._all:
            if isinstance(callback, ModelCheckpoint):
                callback.progress = self

    @contextlib.contextmanager
    def passing_over(self, model: Model) -> Iterator[None]:
        """While open, a model computes nothing for the batches that are over."""
        if not self._passed:
            yield
            return
        function, left = model.train_function, self._passed
        # What Keras takes for the loss and the metrics; nobody hears of them.
        nothing = [0.0] * len(model.metrics_names)

        def train(inputs: Any) -> Any:
            nonlocal left
            if left:
                left -= 1
                return list(nothing)
            return function(inputs)

        model.train_function = train
        try:
            yield
        finally:
            if model.train_function is train:
                model.train_function = function

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Goes on from what was saved, and takes note of how the epoch begins."""
        self.epoch, self.batch, self.is_first = epoch, 0, self._started is None
        if self.is_first:
            # All have begun to train by now, and do not set themselves back any more.
            self._started = [_plain(callback) for callback in self._callbacks]
            self._go_on()
        if self._keeps_begin:
            self._begin = random_state.current()
            order = keras_api.order_of_samples() if self._data.get('shuffles') else None
            self._order = None if order is None else np.copy(order)
        if self._passed:
            self._list.callbacks = [self]

    def _go_on(self) -> None:
        saved = self._saved
        if saved is None:
            return
        if self._passed and 'begin' in saved.own:
            random_state.restore(saved.own['begin'])
        if saved.order is not None:
            random_state.restore_order(saved.order)
        history = saved.job.get('history')
        if history:
            callback = self._of_keras('History')
            callback.epoch, callback.history = list(history['epoch']), dict(history['logs'])
        for callback, values in _pairs(self._callbacks, saved.job.get('callbacks', [])):
            own, plain = cast(Dict[str, Any], vars(callback)), _plain(callback)
            # A number does not take the place of something that is open.
            own.update({name: values[name] for name in values if name in plain or name not in own})

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts batches; with the last one that is over, the others may hear of the next."""
        self.batch = batch + 1
        if self._passed and self.batch == self._passed:
            self._passed = 0
            self._list.callbacks = self._all
            self._arrive()

    def _arrive(self) -> None:
        saved = cast(SavedFit, self._saved)  # Whose batches have been passed over.
        if 'random' in saved.own:
            random_state.restore(saved.own['random'])
        step = step_of(self.model)
        ranks = saved.job['ranks']
        is_known = len(ranks) == ranks[0]['data']['ranks']
        sums = sums_of_rank([one['sums'] for one in ranks], step.job.rank, step.job.size)
        logger, bar = self._of_keras('BaseLogger'), self._of_keras('ProgbarLogger')
        if is_known:
            self._set_states(sums.get('states'))
            logger.seen, logger.totals = sums['seen'], dict(sums['totals'])
            if len(ranks) != step.job.size:
                for name in set(logger.stateful_metrics).intersection(logger.totals):
                    del logger.totals[name]
            for count in self._counters:
                count(sums['seen'])
        if bar is not None:
            bar.seen = self.batch if bar.use_steps else logger.seen
            bar.log_values = []
            if bar.verbose and is_known:
                bar.progbar.update(bar.seen, self._averages(logger))

    def _averages(self, logger: Callback) -> List[Tuple[str, float]]:
        """The averages of the epoch so far, pairs of names and numbers, as a progress bar shows."""
        return [
            (name, logger.totals[name] / (1 if name in logger.stateful_metrics else logger.seen))
            for name in self.params['metrics']
            if name in logger.totals
        ]

    @property
    def of_rank(self) -> Dict[str, Any]:
        """What each worker has of its own: what it makes averages of, and its data; plain data."""
        logger, states = self._of_keras('BaseLogger'), keras_metrics.metric_states(self.model)
        values = step_of(self.model).spec.package.backend.batch_get_value(states) if states else []
        sums = {
            'seen': logger.seen,
            'totals': numbers(logger.totals),
            'states': [np.asarray(value).tolist() for value in values],
        }
        return {'sums': sums, 'data': self._data}

    def _set_states(self, values: Optional[Sequence[Any]]) -> None:
        states = keras_metrics.metric_states(self.model)
        if values is not None and len(values) == len(states):
            step_of(self.model).spec.package.backend.batch_set_value(list(zip(states, values)))

    def within_epoch(self, ranks: List[Dict[str, Any]]) -> FitRecord:
        """The `FitRecord` after a batch.

        Args:
            ranks: what is `of_rank` of each; of this one alone if that of others is not known.
        """
        job = {'batch': self.batch, 'ranks': ranks, 'history': self._history()}
        own = {'random': random_state.current(), 'begin': self._begin}
        return FitRecord(dict(job, callbacks=self._changed()), own, self._order)

    def after_epoch(self, logs: Logs) -> FitRecord:
        """The `FitRecord` after an epoch.

        Args:
            logs: the metrics of the epoch, which Keras takes down after the user's callbacks.
        """
        history, logs = self._history(), numbers(logs)
        history['epoch'].append(self.epoch)
        for name, value in logs.items():
            history['logs'].setdefault(name, []).append(value)
        job = {'history': history, 'callbacks': self._changed()}
        own = {'random': random_state.current()}
        return FitRecord(job, own, keras_api.order_of_samples())

    def _history(self) -> Dict[str, Any]:
        history = self._of_keras('History')
        logs = {name: [float(value) for value in of] for name, of in history.history.items()}
        return {'epoch': list(history.epoch), 'logs': logs}

    def _changed(self) -> List[List[Any]]:
        """What callbacks have come to since training began: pairs of their class and a dict."""
        changed = []
        for callback, started in zip(self._callbacks, self._started or ()):
            values = {
                name: value
                for name, value in _plain(callback).items()
                if name not in started or not _is_same(started[name], value)
            }
            changed.append([type(callback).__name__, values])
        return changed

    def _of_keras(self, name: str) -> Callback:
        """Keras's own callback of a class, or `None`."""
        own = [one for one in self._all if one not in self._callbacks]
        return next((one for one in own if type(one).__name__ == name), None)


def take_saved_fit(model: Model, initial_epoch: int) -> Optional[SavedFit]:
    """The `SavedFit` from which a call of `fit` goes on, or `None`; no later call does.

    Args:
        model: the model.
        initial_epoch: with which epoch `fit` begins. If it is not the one that was saved, no more
            goes on than the order of samples.
    """
    step = getattr(model.optimizer, '_parallax_step', None)
    if step is None:
        return None
    saved = step.fits.take()
    if saved is None:
        return None
    if initial_epoch == saved.epoch:
        return saved
    if not saved.batch:
        return saved._replace(job={})
    if step.job.rank == 0:
        warnings.warn(
            'The checkpoint was saved after batch %d of epoch %d, but fit begins with '
            'initial_epoch=%d, and so with the first batch; strategy.resume returns the '
            'initial_epoch to go on with.' % (saved.batch, saved.epoch + 1, initial_epoch),
            stacklevel=4,
        )
    return None


def sums_of_rank(sums: Sequence[Dict[str, Any]], rank: int, size: int) -> Dict[str, Any]:
    """The sums of which a worker goes on to make averages.

    If there are not as many workers as have saved, each has an equal part of them all.

    Args:
        sums: those of each worker that has saved.
        rank: the rank.
        size: the number of workers.

    Example:
        ```python
        >>> saved = [{'seen': 4, 'totals': {'loss': 2.0}}, {'seen': 4, 'totals': {'loss': 3.0}}]
        >>> sums_of_rank(saved, 1, 2)
        {'seen': 4, 'totals': {'loss': 3.0}}
        >>> sums_of_rank(saved, 0, 1)
        {'seen': 8.0, 'totals': {'loss': 5.0}}
        ```
    """
    if len(sums) == size:
        return sums[rank]
    names = sums[0]['totals']
    return {
        'seen': sum(one['seen'] for one in sums) / size,
        'totals': {
            name: sum(one['totals'].get(name, 0.0) for one in sums) / size for name in names
        },
    }


def _saves_within_epochs(callback: Callback) -> bool:
    return isinstance(callback, ModelCheckpoint) and callback.saves_within_epochs


def _plain(callback: Callback) -> Dict[str, Any]:
    """The attributes of a callback that are numbers, words, truth values or `None`, a dict."""
    found = {}
    for name, value in vars(callback).items():
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _pairs(
    callbacks: Sequence[Callback], saved: Iterable[Tuple[str, Dict[str, Any]]]
) -> Iterator[Tuple[Callback, Dict[str, Any]]]:
    """Callbacks, and what was saved of the one with the same class and place among those of it."""
    by_class: Dict[str, List[Dict[str, Any]]] = {}
    for name, values in saved:
        by_class.setdefault(name, []).append(values)
    for callback in callbacks:
        of_class = by_class.get(type(callback).__name__)
        if of_class:
            yield callback, of_class.pop(0)
