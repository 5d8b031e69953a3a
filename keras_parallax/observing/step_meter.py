# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Counts and times the steps of a worker, in the graph: what `kp.callbacks.StepMetrics` logs.

Operations that only look run beside a step's, and only while somebody measures. They add up numbers
of rows, and moments at which something is there, in one variable, so that a step pays for no more
than an addition and whoever wants to know reads them as seldom as he likes.
"""

import time
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Sequence, cast

import numpy as np

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy, scope_of_strategy
from keras_parallax.engine.step.table_traffic import TableTraffic
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.table import make_storage
from keras_parallax.framework_types import Array, Operation, Tensor
from keras_parallax.observing.step_measures import MARKS, Measured, Route, Setting, measured
from keras_parallax.planning import costs, predict
from keras_parallax.planning.plan import Plan


class StepMeter:
    """Measures the runs of a step from now on.

    Args:
        step: the `TrainStep`.

    Attributes:
        setting: the `step_measures.Setting`.
        operation: the operation to run with each step.
        update_operation: the operation to run with what exchanges the gradients of several steps,
            or `None`.
    """

    _progress: 'Optional[_Progress]'
    update_operation: Operation

    def __init__(self, step: TrainStep) -> None:
        self._step, self._gradients = step, step.operations.gradients
        self._begun = self._ended = self._examples = 0.0
        tables = sorted(self._gradients.touched)
        table_traffic = self._gradients.table_traffic
        plan, self._spec = step.plan, step.spec
        cluster = (plan.cluster or costs.Cluster()).for_decisions()
        routes = [_route_of(traffic.table, plan, cluster, self._spec) for traffic in table_traffic]
        self.setting = Setting(
            routes,
            tables,
            _homes(job_of_strategy(self._spec), step.job.size),
            cluster.hosts + (plan.servers if cluster.dedicated_servers else 0),
            predict.dense_traffic(plan, cluster, plan.fp16),
        )
        # A number that stands for no more than the seconds since then keeps its digits.
        self._origin = time.time()
        with tf.control_dependencies(None), tf.name_scope(None), self._on_worker():
            touched = [_count(self._gradients.touched[name]) for name in tables]
            counts = [_counts_of(traffic, route) for traffic, route in zip(table_traffic, routes)]
            if step.operations.update is None:
                vectors = [_vector(1.0, self._marks(), touched, counts)]
            else:
                vectors = self._apart(touched, counts)
            self._variable = tf.Variable(
                tf.zeros(vectors[0].shape, tf.float64),
                trainable=False,
                # Local ones go along when the session moves to a server.
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                name='parallax/measured',
            )
            additions = [tf.assign_add(self._variable, vector).op for vector in vectors]
            self.operation, self.update_operation = (*additions, None)[:2]
            self._value = self._variable.read_value()
        self._progress = None
        if not step.synchronization.lockstep and step.spec.has_shards:
            self._progress = _Progress(step)
        self._run(self._variable.initializer)

    @property
    def waits(self) -> bool:
        """Whether all workers come to each step, so that they can exchange what they know."""
        return self._progress is None

    def _run(self, fetches: Any, feeds: Any = None) -> Any:
        return self._step.spec.package.backend.get_session().run(fetches, feeds)

    def _on_worker(self) -> ContextManager[Any]:
        # Only a server knows its name.
        sessions = scope_of_strategy(self._spec).sessions
        return tf.device(devices.shard_device(self._step.job.rank) if sessions.target else '/cpu:0')

    def _marks(self) -> List[Tensor]:
        """The moments of `MARKS`, since a moment of this worker's own."""
        computed, moments = [self._gradients.computed], self._moments()
        marks: List[Tensor] = []
        for name in MARKS:
            # None before the one before it, for some have nothing to wait for.
            before = [moment.op for moment in marks[:2]]
            marks.append(self._moment(before + moments[name] + computed * (name != MARKS[0])))
        return marks

    def _moments(self) -> Dict[str, List[Operation]]:
        """For each of `MARKS` the operations that have run then, besides those before."""
        gradients = self._gradients
        return {
            'pulled': [rows.op for traffic in gradients.table_traffic for rows in traffic.arrived],
            'computed': [gradients.computed],
            'pushed': gradients.pushes,
            'reduced': [tensor.op for tensor in gradients.sums],
        }

    def _apart(self, touched: List[Tensor], counts: List[List[Tensor]]) -> List[Tensor]:
        """What to count with a batch, and with an exchange of several, which has a run of its own.

        There the sums of moments grow by how long it takes.
        """
        moments, nothing = self._moments(), tf.constant(0.0, tf.float64)
        pulled = self._moment(moments['pulled'])
        computed = self._moment([pulled.op] + moments['computed'])
        # Of a table that every worker holds, nothing is pulled.
        halves = [len(of_route) // 2 for of_route in counts]
        of_batch = [
            of_route[:half] + [nothing] * (len(of_route) - half)
            for of_route, half in zip(counts, halves)
        ]
        of_update = [[nothing] * half + of_route[half:] for of_route, half in zip(counts, halves)]
        began = self._moment([])
        lasts = [self._moment([began.op] + moments[name]) - began for name in MARKS[2:]]
        return [
            _vector(1.0, [pulled] + [computed] * 3, touched, of_batch),
            _vector(0.0, [nothing] * 2 + lasts, [nothing] * len(touched), of_update),
        ]

    def _moment(self, operations: Iterable[Operation]) -> Tensor:
        usable = [one for one in operations if not tensorflow_api.is_in_control_flow(one)]
        with tf.control_dependencies(usable):
            return tf.timestamp() - self._origin

    def note_batch(self, seconds: float) -> None:
        """Notes that a batch has run, just now, for some seconds."""
        now = time.time() - self._origin
        self._begun += now - seconds
        self._ended += now

    def note_rest(self, seconds: float) -> None:
        """Notes that an exchange has followed the last run, and took some seconds."""
        self._ended += seconds

    def note_examples(self, examples: float) -> None:
        """Notes that it has trained so many samples."""
        self._examples += examples

    def sums(self) -> Array:
        """All that was counted so far, a vector that `of_rank` reads; differences are sums, too."""
        counted = self._run(self._value)
        times, clock = [self._begun, self._ended], time.time() - self._origin
        return np.concatenate([counted[:1], times, counted[1:], [self._examples, clock]])

    def of_rank(self, vector: Array) -> Measured:
        """The `step_measures.Measured` that a vector stands for."""
        return measured(vector, self.setting.routes, len(self.setting.tables))

    def progress(self, steps: float, examples: float) -> Dict[int, Any]:
        """How far all workers have come that do not wait for each other.

        Given what this one has trained since it measures, returns such pairs, a dict from all
        workers that have told any.
        """
        return cast(_Progress, self._progress).exchange(self._run, [steps, examples])


def measure(step: TrainStep) -> 'Measuring':
    """The `Measuring` of a `TrainStep`, which begins now. A step has one at a time.

    A `fit` that an exception has ended leaves one, which begins anew.
    """
    found = next((one for one in step.observers if isinstance(one, Measuring)), None)
    if found is None:
        found = Measuring(step)
        step.observers.append(found)
    found.moved()
    return found


class Measuring(StepObserver):
    """Measures the runs of a step, anew whenever it follows another plan.

    Args:
        step: the `TrainStep`.

    Attributes:
        meter: the `StepMeter` of now.
    """

    meter: StepMeter

    def __init__(self, step: TrainStep) -> None:
        self._step = step

    def moved(self) -> None:
        """As of `StepObserver`: what is measured begins anew."""
        graph = self._step.spec.loss.graph
        with lock_of(graph).held(), graph.as_default():
            self.meter = StepMeter(self._step)

    def beside_batch(self) -> Sequence[str]:
        """As of `StepObserver`."""
        return [self.meter.operation.name]

    def beside_update(self) -> Sequence[str]:
        """As of `StepObserver`."""
        return [self.meter.update_operation.name]

    def note_batch(self, seconds: float) -> None:
        """As of `StepObserver`."""
        self.meter.note_batch(seconds)

    def note_rest(self, seconds: float) -> None:
        """As of `StepObserver`."""
        self.meter.note_rest(seconds)

    def end(self) -> None:
        """Measures no more."""
        if self in self._step.observers:
            self._step.observers.remove(self)


def _homes(job: Job, size: int) -> List[int]:
    hosts = job.hosts
    if len(hosts) == 1:
        return list(range(size))
    home_of = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    return [home_of[rank] for rank in range(size)]


def _route_of(table: Exchanged, plan: Plan, cluster: costs.Cluster, spec: StepSpec) -> Route:
    """The `Route` of an `Exchanged`."""
    dtypes = [dtype.as_numpy_dtype for dtype in (table.dtype, table.stored_dtype)]
    of_tables = [spec.settings.fp16.row_bytes(width, *dtypes) for width in table.widths]
    pulled, pushed = map(sum, zip(*of_tables))
    shards = table.planned_shards
    ids = [costs.id_bytes_of(shard.rows) for shard in shards] or [costs.id_bytes_of(table.rows)]
    return Route(
        {one.name: one.widths[0] for one in table.tables},
        tuple(cluster.machine_of(shard.server, plan.servers) for shard in shards),
        tuple(ids),
        pulled,
        pushed,
    )


def _counts_of(traffic: TableTraffic, route: Route) -> List[Tensor]:
    """The numbers of rows that travel in a step, as `Route.counts` has them: scalars."""
    pushed = [_count(tf.size(rows)) for rows in traffic.pushed]
    shards = len(route.machines)
    nothing = tf.constant(0.0, tf.float64)
    if not shards:
        return pushed
    pulled = [
        [
            rows
            for rows in (of_pull[number] for of_pull in traffic.pulled)
            if not tensorflow_api.is_in_control_flow(rows)
        ]
        for number in range(shards)
    ]
    return [
        tf.add_n([_count(tf.size(rows)) for rows in of_shard]) if of_shard else nothing
        for of_shard in pulled
    ] + (pushed or [nothing] * shards)


def _vector(
    steps: float, marks: List[Tensor], touched: List[Tensor], counts: List[List[Tensor]]
) -> Tensor:
    """What is counted, in the order of `step_measures.measured`."""
    return tf.stack([tf.constant(steps, tf.float64)] + marks + touched + sum(counts, []))


def _count(size: Tensor) -> Tensor:
    return tf.cast(size, tf.float64)


class _Progress:
    """Numbers of each worker on the first server, for workers that do not wait for each other."""

    def __init__(self, step: TrainStep) -> None:
        table = next(table for table in step.tables.values() if table.shards)
        device, prefix = table.device_of(table.plan.shards[0]), step.operations.prefix
        with tf.control_dependencies(None):
            variables = [
                make_storage('%s/progress_of_%d' % (prefix, rank), device, [2], tf.float64)
                for rank in range(step.job.size)
            ]
            self._own = tf.placeholder(tf.float64, [2])
            with tf.device(device):
                self._write = variables[step.job.rank].assign(self._own).op
                self._known = [tf.is_variable_initialized(variable) for variable in variables]
            self._values = [variable.value() for variable in variables]

    def exchange(self, run: Callable[..., Any], own: Sequence[float]) -> Dict[int, Any]:
        """Tells this worker's two numbers, and returns those of all that have told any."""
        run(self._write, {self._own: own})
        known = run(self._known)
        values = {rank: self._values[rank] for rank, is_known in enumerate(known) if is_known}
        return dict(zip(values, run(list(values.values()))))
