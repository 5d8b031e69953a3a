# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a training step costs, among the metrics of `fit`."""

import functools
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

import numpy as np

from keras_parallax.compat import keras_api
from keras_parallax.engine.step.dynamic_tables import fills_of
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.engine.tables.id_index import COUNTS
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Array, Callback, Logs
from keras_parallax.observing import step_measures
from keras_parallax.observing.step_meter import StepMeter, measure

#: The share of the time that looking may take, beside what is counted in each step.
_SHARE = 0.004


class StepMetrics(keras_api.callbacks.Callback):
    """Logs what a step sends, how long its parts take, and which worker the others wait for.

    The logs are those of Keras, so `History`, `CSVLogger`, `TensorBoard`, and the Keras callbacks
    of other trackers show them. Names are `GROUP/NAME`, where the group is the unit: TensorBoard
    shows each group in a scope of its own. Progress bars show `seconds/step` and
    `job/examples_per_second` alone.

    The logs of an epoch are the means over its steps, those of a batch over the steps since the
    workers have last told each other, which they do seldom enough to take less than 1 % of the
    time. Where tables have moved to other shards, they count from there on. Give it to every
    worker. It logs, as numbers of one step,

    - `rows/touched`: different rows of all tables in the batch of a worker, the mean over the
      workers;
    - `bytes/rows_sent`, `bytes/rows_received`: bytes of a host for rows of tables, their gradients
      and their numbers, the mean over the hosts. The workers of a job on one host count as if each
      were a host;
    - `bytes/dense_sent`, `bytes/dense_received`: the same for all other variables, as predicted;
    - `seconds/step`, and its parts, the mean over the workers: `seconds/pull` until the rows are
      there, `seconds/compute` until a worker has its gradients, `seconds/push` until those of rows
      are with their owners, at the same time `seconds/allreduce` until the sums of the dense ones
      are there, `seconds/barrier` until the owners have updated their shards; and
      `seconds/between` from a step to the next one, for data and callbacks;
    - `job/examples_per_second`, of the whole job;
    - `job/slowest_rank`, the worker that has its gradients last, and
      `seconds/slowest_rank_behind`, how much longer it takes than the others in the mean;
    - of each `DynamicEmbedding`, `rows/used/NAME`, `rows/given/NAME`, `rows/evicted/NAME` and
      `ids/left_out/NAME`, as its `row_counts` explains them, of all steps until then;
    - `job/steps_ahead`, where workers do not wait for each other (`sync=False` and no variable that
      is reduced): how many steps this worker is ahead of the slowest, the one that has come least
      far. Examples a second are then those of all since training began; times and rows are this
      worker's own, and bytes those of a job in which all are like it.

    Rows of a table that every worker holds, in a job without servers, are counted as those of
    tables on servers are. Tokens, requests and what Horovod says beside its data are not.

    Args:
        per_table: whether to log `rows/touched/NAME`, `bytes/rows_sent/NAME` and
            `bytes/rows_received/NAME` of each table, too. Of tables that travel together, each has
            its share by rows and width.
        every: number of steps after which the workers tell each other; if `None`, as many as it
            takes.

    Raises:
        ValueError: if `every` is not a number from 1.
        ScopeError: when training begins, if the model was not compiled in a strategy's scope.

    Example:
        ```python
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy():
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        ...     model.compile('sgd', 'mse')
        >>> metrics = kp.callbacks.StepMetrics()
        >>> history = model.fit([[0.0]], [[0.0]], verbose=0, callbacks=[metrics]).history
        >>> history['rows/touched'] == history['job/slowest_rank'] == [0.0]
        True
        ```
    """

    def __init__(self, per_table: bool = False, every: Optional[int] = None) -> None:
        super().__init__()
        if every is not None and not (isinstance(every, int) and every >= 1):
            raise ValueError('every must be a number of steps from 1, but %r was given.' % (every,))
        self.per_table, self.every = per_table, every
        self.bars: List[Callback] = []
        self._looks = cast(_Looks, None)  # Until training begins.

    def on_train_begin(self, logs: Logs = None) -> None:
        """Begins to measure."""
        step = step_of(self.model)
        if step.spec.scope is None:
            raise ScopeError(
                'StepMetrics is for a model that is compiled inside `with strategy:`; others have '
                'no steps that are measured.'
            )
        # In an object of its own, which no checkpoint brings back.
        self._looks = _Looks(step, self.per_table, self.every)
        self._show()

    def _show(self) -> None:
        """Has Keras's progress bar show few of the numbers, as they are, and not their means."""
        names = self._looks.names
        metrics = self.params.get('metrics')
        if metrics is not None:
            shown = [one for one in names if step_measures.is_in_bars(one) and one not in metrics]
            self.params['metrics'] = list(metrics) + shown
        for bar in self.bars:
            if bar.stateful_metrics is None:
                bar.stateful_metrics = {metric.name for metric in self.model.metrics}
            bar.stateful_metrics = {*bar.stateful_metrics, *names}
            # Keras 2.15 has the bar show all logs, whatever `metrics` says.
            bar.on_batch_end = _with_few_logs(bar.on_batch_end)
            bar.on_epoch_end = _with_few_logs(bar.on_epoch_end)
            if hasattr(bar, 'on_train_batch_end'):
                bar.on_train_batch_end = _with_few_logs(bar.on_train_batch_end)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins to count anew."""
        self._looks.begin_epoch()

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts, and tells what is known."""
        logs = {} if logs is None else logs
        self._looks.after_batch(logs.get('size', 0))
        logs.update(self._looks.shown)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Tells what is known of the epoch."""
        if logs is None:
            return
        logs.update(self._looks.end_epoch())
        for bar in self.bars:
            # It has been told which numbers are averages already, before these were there.
            if getattr(bar, 'progbar', None) is not None:
                bar.progbar.stateful_metrics = {*bar.progbar.stateful_metrics, *self._looks.names}

    def on_train_end(self, logs: Logs = None) -> None:
        """Measures no more."""
        if self._looks is not None:
            self._looks.end()


def _with_few_logs(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook of a progress bar, which gets the logs that bars show."""

    @functools.wraps(hook)
    def act(number: int, logs: Logs = None) -> None:
        given = logs or {}
        hook(number, {name: given[name] for name in given if step_measures.is_in_bars(name)})

    return act


class _Looks:
    """What the workers tell each other in one `fit`.

    Attributes:
        names: names of all logs.
        shown: the logs of the steps between the last two looks; empty at first.
    """

    def __init__(self, step: TrainStep, per_table: bool, every: Optional[int]) -> None:
        self._step, self._per_table, self._every = step, per_table, every
        self._meter, self._until_look = cast(StepMeter, None), 1  # Until `_begin` is called.
        # How long a look takes, but not the first one, for which the session learns what is new.
        self._costs: List[float] = []
        self.shown: Dict[str, Any] = {}
        self._measuring = measure(step)
        self._begin()
        nothing = [self._meter.of_rank(self._last * 0 + 1)] * step.job.size
        self.names = sorted({**self._logs_of(nothing), **self._row_counts()})
        self.names += self._names_of_progress

    @property
    def _names_of_progress(self) -> List[str]:
        return [] if self._meter.waits else ['job/steps_ahead']

    def _begin(self) -> None:
        """Begins to count, if the step is measured anew, for tables may have moved."""
        if self._meter is not self._measuring.meter:
            self._meter = self._measuring.meter
            self._last = self._at_epoch = self._first = self._meter.sums()

    def begin_epoch(self) -> None:
        self._begin()
        self._at_epoch = self._last = self._meter.sums()

    def after_batch(self, examples: int) -> None:
        self._begin()
        self._meter.note_examples(examples)
        self._until_look -= 1
        if self._until_look <= 0:
            logs, self._last = self._look(self._last)
            self.shown = logs or self.shown

    def end_epoch(self) -> Dict[str, Any]:
        self._begin()
        logs, self._last = self._look(self._at_epoch)
        # There was no step since tables have moved, after the last one.
        return logs or self.shown

    def _look(self, since: Array) -> Tuple[Dict[str, Any], Array]:
        """Logs of the steps since some sums, and what the sums are now. Collective."""
        began = time.perf_counter()
        now = self._meter.sums()
        # As long as all workers are here, so that they read the same.
        row_counts = self._row_counts()
        if self._meter.waits:
            with self._step.job.call('StepMetrics'):
                of_ranks = self._step.job.gather([list(now - since), self._cost])
        else:
            # All others are taken to be alike.
            of_ranks = [[now - since, self._cost]] * self._step.job.size
        ranks = [self._meter.of_rank(vector) for vector, _ in of_ranks]
        logs = self._logs_of(ranks)
        if logs and not self._meter.waits:
            logs.update(self._progress(now))
        if logs:
            logs.update(row_counts)
        seconds = ranks[0].seconds / max(1.0, ranks[0].steps)
        cost = max(cost for _, cost in of_ranks)
        self._until_look = self._every or step_measures.steps_until_look(cost, seconds, _SHARE)
        self._costs.append(time.perf_counter() - began)
        # As Keras's own logs are: the TensorBoard of TensorFlow 1.11 takes no others.
        return {name: np.float64(value) for name, value in logs.items()}, now

    def _row_counts(self) -> Dict[str, int]:
        return {
            # `rows_used` is `rows/used`.
            '%s/%s' % (count.replace('_', '/', 1), name): getattr(fill, count)
            for name, fill in fills_of(self._step).items()
            for count in COUNTS
        }

    @property
    def _cost(self) -> float:
        return min(self._costs[1:], default=0.0)

    def _logs_of(self, ranks: Sequence[Any]) -> Dict[str, float]:
        return step_measures.metrics(self._meter.setting, ranks, self._per_table)

    def _progress(self, now: Array) -> Dict[str, float]:
        own = self._meter.of_rank(now - self._first)
        known = self._meter.progress(own.steps, own.examples)
        slowest = min(known, key=lambda rank: known[rank][0])
        return {
            'job/steps_ahead': float(own.steps - known[slowest][0]),
            'job/slowest_rank': float(slowest),
            'job/examples_per_second': float(sum(examples for _, examples in known.values()))
            / max(1e-9, own.seconds),
        }

    def end(self) -> None:
        self._measuring.end()
