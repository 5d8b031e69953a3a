# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Traces of the steps of a job, of all workers in one file."""

import base64
import json
import os
import time
import warnings
import zlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, cast

from keras_parallax.atomic_files import written_aside
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Logs
from keras_parallax.observing import clock_offsets
from keras_parallax.observing import trace as traces
from keras_parallax.observing.phases import role_of_node
from keras_parallax.observing.traced_runs import Tracer, roles_of

#: In so many collectives the workers compare their clocks.
_ROUNDS = 10
#: Environment variable of Horovod's: where it writes its timeline, on rank 0.
_TIMELINE = 'HOROVOD_TIMELINE'


class Profile(keras_api.callbacks.Callback):
    """Traces some steps on all workers, and writes what each did when, in one file.

    Rank 0 writes `directory/trace-FIRST-LAST.json`, in the format of Perfetto and Chrome, which
    `keras-parallax timeline` draws: a process for each worker, and in it rows for its steps and
    their phases (pull, forward, backward, allreduce, push, wait for pushes, owner's update,
    barrier). The workers compare their clocks in collectives, so that times are those of rank 0's
    clock. With `HOROVOD_TIMELINE` set, what Horovod says of the same time is in it too. Each worker
    that is traced also writes a file of events to `directory/rank-N`, in which TensorBoard shows
    the graph with the times of its operations.

    Steps that are traced take longer, and one before them, too; in a job with servers, what draws
    random numbers in them, such as dropout, draws others. Give it to every worker. Where workers do
    not wait for each other (`sync=False` and no variable that is reduced), each writes a trace
    of its own, by its own clock: `trace-FIRST-LAST-rank-N.json`.

    What cannot be done is warned of, and training goes on: a directory that cannot be written,
    steps that training does not come to, workers that the job does not have.

    Args:
        directory: where the files go. It is made if it is not there.
        steps: pair of the first step and the one after the last, as `range` takes them: counted
            from 0 over all epochs of a `fit`.
        ranks: the workers to trace, a list; all if `None`.

    Raises:
        ValueError: if `steps` is no such pair.
        ScopeError: when training begins, if the model was not compiled in a strategy's scope.

    Example:
        ```python
        >>> import os, tempfile
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy():
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        ...     model.compile('sgd', 'mse')
        >>> folder = tempfile.mkdtemp()
        >>> profile = kp.callbacks.Profile(folder, steps=(1, 3))
        >>> _ = model.fit([[0.0]], [[0.0]], epochs=4, verbose=0, callbacks=[profile])
        >>> sorted(os.listdir(folder))
        ['rank-0', 'trace-1-2.json']
        ```
    """

    def __init__(
        self,
        directory: str,
        steps: Sequence[int] = (100, 110),
        ranks: Optional[Sequence[int]] = None,
    ) -> None:
        super().__init__()
        if not (
            len(steps) == 2
            and all(isinstance(step, int) and step >= 0 for step in steps)
            and steps[0] < steps[1]
        ):
            raise ValueError(
                'steps must be the first step and the one after the last, such as (100, 110), but '
                '%r was given.' % (steps,)
            )
        self.directory, self.steps, self.ranks = directory, tuple(steps), ranks
        self._window: Optional[_Window] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Looks whether there is something to do."""
        step = step_of(self.model)
        if step.spec.scope is None:
            raise ScopeError(
                'Profile is for a model that is compiled inside `with strategy:`; others have no '
                'steps that are traced.'
            )
        # In an object of its own, which no checkpoint brings back.
        self._window = _Window(self, step)

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Begins to trace, if it is time to."""
        if self._window is not None:
            self._window.begin_step()

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes, if all is traced."""
        if self._window is not None:
            self._window.end_step()

    def on_train_end(self, logs: Logs = None) -> None:
        """Writes what there is, if training has been so short."""
        if self._window is not None:
            self._window.end_training()


class _Window:
    """The steps of one `fit` that are traced."""

    def __init__(self, callback: Profile, step: TrainStep) -> None:
        self._directory, (self._first, self._end) = callback.directory, callback.steps
        self._step, self._number, self._over = step, 0, False
        self._tracer = Tracer()
        self._numbers: List[int] = []
        self._together = step.synchronization.lockstep or step.job.size == 1
        asked = range(step.job.size) if callback.ranks is None else callback.ranks
        self._is_traced = step.job.rank in asked
        unknown = [rank for rank in asked if rank not in range(step.job.size)]
        if unknown and step.job.rank == 0:
            _warn('the job has no rank %s: it has %d workers' % (unknown[0], step.job.size))
        problem = self._make_directory()
        if self._together:
            with step.job.call('Profile'):
                problem = step.job.gather(problem)[0]
        if problem is not None:
            self._over = True
            if step.job.rank == 0 or not self._together:
                _warn(problem)

    def _make_directory(self) -> Optional[str]:
        """Makes it on the worker that writes; returns what is wrong, or `None`."""
        if self._step.job.rank != 0 and self._together:
            return None
        try:
            os.makedirs(self._directory, exist_ok=True)
            with written_aside(self._path) as aside, open(aside, 'w') as file:
                file.write('{}')
            os.remove(self._path)
        except OSError as error:
            return 'it could not write to %s: %s' % (self._directory, error)
        return None

    @property
    def _path(self) -> str:
        suffix = '' if self._together else '-rank-%d' % self._step.job.rank
        name = 'trace-%d-%d%s.json' % (self._first, self._end - 1, suffix)
        return os.path.join(self._directory, name)

    def begin_step(self) -> None:
        # The one before prepares the session that traces.
        if not self._over and self._is_traced and self._first - 1 <= self._number < self._end:
            self._trace_no_more()
            self._step.observers.append(self._tracer)

    def end_step(self) -> None:
        number, self._number = self._number, self._number + 1
        self._trace_no_more()
        if self._over:
            return
        if number == self._first - 1:
            self._tracer.traced.clear()
        elif number >= self._first:
            # Of a batch, and of the exchange of several that may follow it.
            self._numbers += [number] * (len(self._tracer.traced) - len(self._numbers))
        if number == self._end - 1:
            self._write()

    def _trace_no_more(self) -> None:
        # A step that failed has left its tracer, which may be that of an earlier `fit`.
        observers = self._step.observers
        observers[:] = [one for one in observers if not isinstance(one, Tracer)]

    def end_training(self) -> None:
        self._trace_no_more()
        if self._over:
            return
        if self._step.job.rank == 0:
            _warn(
                'it was asked for the steps %d to %d, but training had %d'
                % (self._first, self._end - 1, self._number)
            )
        if self._number > self._first:
            self._write()
        self._tracer.close()

    def _write(self) -> None:
        self._over = True
        self._tracer.close()
        step, offsets = self._step, [clock_offsets.Offset(0.0, 0.0)] * self._step.job.size
        if self._is_traced:
            self._write_events()
        own = self._own_spans()
        if self._together:
            with step.job.call('Profile'):
                offsets = clock_offsets.offsets(self._compare_clocks())
                of_ranks = [_unpacked(packed) for packed in step.job.gather(_packed(own))]
        else:
            of_ranks = [own]
        if step.job.rank == 0 or not self._together:
            trace = _joined(of_ranks, step, offsets)
            self._write_trace(trace)

    def _compare_clocks(self) -> List[Any]:
        """For each collective when each worker came to it and left it."""
        own = []
        for _ in range(_ROUNDS):
            came = time.time()
            self._step.job.gather(None)
            own.append((came, time.time()))
        return list(zip(*self._step.job.gather(own)))

    def _own_spans(self) -> Dict[str, Any]:
        """What TensorFlow has noted on this worker: for each step its number, times and nodes."""
        roles = roles_of(self._step) if self._is_traced else {}
        found: List[List[Any]] = []
        for number, (begin, end, metadata) in zip(self._numbers, self._tracer.traced):
            if found and found[-1][0] == number:
                _, begin, _, before = found.pop()
            else:
                before = []
            nodes = before + [
                node
                for device in metadata.step_stats.dev_stats
                for node in _nodes_of(device, roles)
            ]
            found.append([number, begin, end, nodes])
        return {'rank': self._step.job.rank, 'steps': found}

    def _write_events(self) -> None:
        """Writes what TensorBoard shows; each worker does, to its own disk if that is another."""
        folder = os.path.join(self._directory, 'rank-%d' % self._step.job.rank)
        try:
            writer = tf.summary.FileWriter(folder, self._step.spec.loss.graph)
            tags = ['step %d' % number for number in self._numbers]
            for place, (number, (_, _, metadata)) in enumerate(
                zip(self._numbers, self._tracer.traced)
            ):
                tag = tags[place] + (', exchange' if tags[place] in tags[:place] else '')
                writer.add_run_metadata(metadata, tag, number)
            writer.close()
        except (OSError, tf.errors.OpError, ValueError) as error:
            _warn('it could not write for TensorBoard to %s: %s' % (folder, error))

    def _write_trace(self, trace: traces.Trace) -> None:
        if not trace.steps:
            _warn('no step of a worker was traced')
            return
        events = traces.to_chrome(trace, traces.folded_in(_horovods_events(), trace))
        try:
            with written_aside(self._path) as aside, open(aside, 'w') as file:
                json.dump(events, file)
        except OSError as error:
            _warn('it could not write to %s: %s' % (self._path, error))


def _nodes_of(device: Any, roles: Dict[str, Any]) -> Iterator[List[Any]]:
    """The nodes of a `DeviceStepStats` that are part of the step, as lists that JSON takes."""
    for node in device.node_stats:
        role = role_of_node(roles, node.node_name, node.timeline_label)
        if role is not None:
            begin = node.all_start_micros
            name = node.timeline_label if node.node_name == 'RecvTensor' else node.node_name
            yield [device.device, name[:200], list(role), begin, begin + node.all_end_rel_micros]


def _joined(
    of_ranks: Sequence[Dict[str, Any]], step: TrainStep, offsets: Sequence[clock_offsets.Offset]
) -> traces.Trace:
    """The `trace.Trace` of what workers have traced."""
    begins = [
        begin - offsets[found['rank']].seconds
        for found in of_ranks
        for _, begin, *_ in found['steps']
    ]
    origin, spans, steps = min(begins, default=0.0), [], {}
    for found in of_ranks:
        rank = found['rank']
        shift = offsets[rank].seconds + origin
        for number, begin, end, nodes in found['steps']:
            seconds = [offset.seconds for offset in offsets]
            own = traces.spans_of(nodes, rank, number, seconds, origin)
            # Before its first operation and after the last the trace itself takes time.
            begins, ends = [[span.begin for span in own], [span.end for span in own]]
            steps[rank, number] = (
                min(begins, default=1e6 * (begin - shift)),
                max(ends, default=1e6 * (end - shift)),
            )
            spans += own
    errors = [1e6 * offset.error for offset in offsets]
    job = cast(Job, step.spec.job)  # That of a strategy.
    return traces.Trace(job.token or 'one rank', step.job.size, spans, steps, errors)


def _packed(value: Any) -> str:
    """A value as short text, for it travels."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode('utf-8'))).decode('ascii')


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)).decode('utf-8'))


def _horovods_events() -> List[Any]:
    """Those of Horovod's own timeline, if there is one."""
    path = os.environ.get(_TIMELINE)
    if not path or not os.path.isfile(path):
        return []
    try:
        with open(path, errors='replace') as file:
            return traces.horovod_events(file.read())
    except OSError as error:
        _warn('it could not read the timeline of Horovod, %s: %s' % (path, error))
        return []


def _warn(problem: str) -> None:
    warnings.warn('Profile: %s. Training goes on.' % problem, stacklevel=3)
