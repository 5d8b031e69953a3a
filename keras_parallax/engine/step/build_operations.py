# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Builds the operations of a training step: gradients, exchange, updates, barrier."""

import functools
import itertools
import random
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import hosts
from keras_parallax.engine.job.collectives import stored
from keras_parallax.engine.job.job_interface import Workers
from keras_parallax.engine.step import asynchronous, local_aggregation, push_queues
from keras_parallax.engine.step.accumulation import Accumulated, OneBatch
from keras_parallax.engine.step.barrier import End, end_of_step
from keras_parallax.engine.step.density import DensityMeter, meter_of
from keras_parallax.engine.step.dynamic_tables import turned_over
from keras_parallax.engine.step.exchange import Exchange
from keras_parallax.engine.step.gradients import StepGradients, build_gradients
from keras_parallax.engine.step.operations import Runnable, StepOperations
from keras_parallax.engine.step.other_reads import other_reads
from keras_parallax.engine.step.own_gradients import Treatment
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy
from keras_parallax.engine.tables import loss_analysis, sharding
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates import (
    clipping,
    gradient_pairs,
    step_updates,
    table_updates,
    update_dependencies,
)
from keras_parallax.engine.updates.part_updates import PartUpdate
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Variable
from keras_parallax.planning.plan_request import Request

#: Every worker builds its training steps in the same order, so the numbers agree between workers.
_numbers = itertools.count()

Tables = Dict[tf.Variable, Table]


def build_operations(spec: StepSpec, request: Request, tables: Tables) -> StepOperations:
    """The `StepOperations` of a step that follows a plan.

    Args:
        spec: what the step is built of.
        request: the request that is followed.
        tables: dict from variables to tables, which have the shards of the plan.

    Raises:
        PlanError: the optimizer cannot update the tables as they lie.
    """
    first = tensorflow_api.operation_id(tf.no_op())
    prefix = '%s.%d' % (spec.settings.name, next(_numbers))
    are_sharded = any(table.shards for table in tables.values())
    exchange = _exchange_of(spec, prefix, are_sharded and request.local_aggregation)
    members = _members(spec, tables, are_sharded)
    slices = spec.takes_slices(
        loss_analysis.described(loss_analysis.describe(spec.loss, spec.variables, spec.records))
    )
    if slices:
        tables = _without_tables(spec, tables)
    dense = [variable for variable in spec.variables if variable not in tables]
    if not spec.timing.sync:
        asynchronous.check_clipping(spec.optimizer, spec.package.clip_together, dense)
        asynchronous.check_loss_scale(spec.adapter.loss_scale)
    bounds = spec.adapter.bounds
    if bounds is not None and bounds.clips:
        _require_no_penalties(tables.values(), spec.adapter.name)
    steps = spec.settings.accumulate_steps
    batches = Accumulated(spec.trained, steps, prefix) if steps > 1 else OneBatch(spec.trained)
    gradients = build_gradients(
        spec.trained,
        dense,
        tables.values(),
        members,
        exchange,
        spec.timing.sync,
        Treatment(slices, bounds, spec.adapter.loss_scale, spec.adapter.needs_touched_rows),
        batches,
        other_reads(spec.loss, spec.beside, _storage_of(dense, tables)),
    )
    methods = {table: _method(spec, table) for table in tables.values()}
    applied, operations = _updated(spec, prefix, gradients, tables, methods, dense, slices)
    operations += turned_over(tables.values(), spec, applied.state, operations)
    meter = None
    if are_sharded:
        meter = meter_of(tables.values(), request.density or {}, gradients.touched, spec.job.rank)
    runnable = _ended(
        spec, prefix, gradients, operations, meter, applied, exchange, tables, are_sharded
    )
    if isinstance(batches, Accumulated):
        runnable = _apart(runnable, batches, meter, spec.adapter.name)
    of_tables = {
        table.variable: method.optimizer for table, method in methods.items() if method.optimizer
    }
    span = first, tensorflow_api.operation_id(tf.no_op())
    return StepOperations(spec, prefix, gradients, applied, of_tables, meter, runnable, span)


def _exchange_of(spec: StepSpec, prefix: str, aggregates: bool) -> Exchange:
    """The `Exchange`, which has a `HostWorkers` where rows go through the host's leader."""
    host, ranks = None, job_of_strategy(spec).hosts if aggregates else ()
    if aggregates and hosts.aggregation_helps(ranks):
        host = local_aggregation.HostWorkers(ranks, spec.job.rank, prefix)
    return Exchange(
        spec.job.rank,
        spec.job.size,
        spec.settings.sparse_reduction,
        spec.settings.compression,
        spec.settings.pull_compression,
        prefix,
        host,
    )


def _members(spec: StepSpec, tables: Tables, are_sharded: bool) -> Set[Operation]:
    """The operations that the loss depends on, once the penalties of tables read shards."""
    members = loss_analysis.members_of(spec.loss, spec.records)
    if not are_sharded:
        return members
    readers = members | graph_queries.ancestors([spec.trained], leaves=members)
    for table in tables.values():
        sharding.redirect_penalties(table, readers)
    return loss_analysis.members_of(spec.loss, spec.records)


def _without_tables(spec: StepSpec, tables: Tables) -> Tables:
    """Refuses shards for a formula that takes gradients as they come; returns no tables."""
    if spec.settings.tables.all():
        raise PlanError(
            'tables and per_table go with formulas that take gradients as tensors, but %s '
            'takes the rows of gradients as they come.' % spec.adapter.name
        )
    for table in tables.values():
        _method(spec, table)  # It may be refused.
    sharded = [table.name for table in tables.values() if table.shards]
    if sharded:
        raise PlanError(
            '%s computes with the rows of gradients as they come, repeats and all, which every '
            'worker must have of all tables, but %s has shards. Have it make tensors of its '
            'gradients first (tf.convert_to_tensor), or compile this model first.'
            % (spec.adapter.name, ', '.join(sharded))
        )
    return {}


def _updated(
    spec: StepSpec,
    prefix: str,
    gradients: StepGradients,
    tables: Tables,
    methods: Dict[Table, table_updates.UpdateMethod],
    dense: Sequence[tf.Variable],
    slices: bool,
) -> Tuple[step_updates.Applied, List[tf.Operation]]:
    """Builds the updates of everything that this worker updates.

    Returns:
        The `Applied`, and a list of operations that push gradients and apply them.
    """
    reduced, gate = gradients.reduced, tensorflow_api.operation_id(tf.no_op())
    bounds = spec.adapter.bounds
    parts = [
        table_updates.with_penalty(
            part,
            gradients.penalty_factor(part.part.table),
            methods[part.part.table],
            spec.adapter.takes_rows,
            bounds and bounds.clipvalue,
        )
        for part in gradients.parts
    ]
    clip: Any = None
    clipped = functools.partial(_clipped, spec, gradients, dense, reduced, parts)
    if not slices and bounds is None and spec.adapter.rule is None:
        # Where a user's formula asks for clipped gradients, if it does.
        clip = clipped
    elif not slices:
        by_variable, parts = (
            clipped(spec.optimizer)
            if bounds is None
            else clipping.clipped_as_they_come(
                dict(zip(dense, reduced)),
                parts,
                bounds,
                gradients.row_squares,
                gradients.looked_up,
            )
        )
        reduced = [by_variable[variable] for variable in dense]
        clip = lambda optimizer: (by_variable, parts)  # noqa: E731
    since = tensorflow_api.operation_id(tf.no_op())
    rank, size = spec.job.rank, spec.job.size
    applied = step_updates.build_updates(
        spec.optimizer,
        spec.keras_updates,
        spec.variables,
        dict(zip(dense, reduced)),
        gradient_pairs.TablesOfRank(
            tables, methods, parts, prefix, rank, size, spec.timing.sync, spec.kept_slots
        ),
        spec.loss,
        clip,
        gradients.finite,
    )
    _agree_on_draws(spec.job, update_dependencies.draws(applied.own, since))
    operations = gradients.pushes + graph_queries.as_operations(applied.operations)
    graph_queries.write_after_reads(operations, since=gate)
    return applied, operations


def _method(spec: StepSpec, table: Table) -> table_updates.UpdateMethod:
    """The `UpdateMethod` of a table."""
    if not table.by_row:
        return table_updates.UpdateMethod(None, 'as any dense variable')
    return table_updates.method_of_table(
        spec.optimizer,
        spec.settings.tables,
        spec.settings.sparse_update,
        table.name,
        penalized=bool(table.penalties),
        constrained=loss_analysis.reach_of_constraint(table.constraint, len(table.plan.shape)),
    )


def _clipped(
    spec: StepSpec,
    gradients: StepGradients,
    dense: Sequence[tf.Variable],
    reduced: List[Gradient],
    parts: List[PartUpdate],
    optimizer: Optimizer,
) -> Tuple[Dict[Variable, Gradient], List[PartUpdate]]:
    """Gradients of dense variables, and of parts of tables, as an optimizer clips them."""
    reduced, parts = clipping.clipped(
        reduced, parts, optimizer, spec.package.clip_together, gradients.sum_over_owners
    )
    return dict(zip(dense, reduced)), parts


def _agree_on_draws(job: Workers, draws: Sequence[tf.Operation]) -> None:
    """Has a formula's random numbers the same on every worker, so that replicas stay equal."""
    if job.size == 1 or not draws:
        return
    seeds = [[draw.get_attr('seed'), draw.get_attr('seed2')] for draw in draws]
    # Without any, an operation would draw other numbers in each process.
    seeds = [pair if any(pair) else [0, random.randrange(1, 2**31)] for pair in seeds]
    for draw, pair in zip(draws, job.gather(seeds)[0]):
        tensorflow_api.set_seeds(draw, pair)


def _ended(
    spec: StepSpec,
    prefix: str,
    gradients: StepGradients,
    operations: List[tf.Operation],
    meter: Optional[DensityMeter],
    applied: step_updates.Applied,
    exchange: Exchange,
    tables: Tables,
    are_sharded: bool,
) -> Runnable:
    """What a step of one batch runs, which the workers end together where tables have shards."""
    if not are_sharded:
        return Runnable(operations, gradients.connections)
    if meter is not None and spec.settings.accumulate_steps == 1:
        operations = [*operations, meter.operation]
    end, first_tokens = _end(spec, prefix, gradients, operations, applied, exchange, tables)
    connections = gradients.connections
    interruptions = [push_queues.closing(gradients.queues + end.own_queues)]
    if exchange.host:
        connections = connections + exchange.host.connections
        interruptions.extend(exchange.host.interruptions())
    # Where a process is gone this may never end: so it comes last.
    interruptions.append(push_queues.closing(end.awaited))
    return Runnable([*operations, *end.operations], connections, interruptions, first_tokens)


def _end(
    spec: StepSpec,
    prefix: str,
    gradients: StepGradients,
    operations: List[tf.Operation],
    applied: step_updates.Applied,
    exchange: Exchange,
    tables: Tables,
) -> Tuple[End, Optional[tf.Operation]]:
    """The `End` of a step with servers, and what to run before the first one, or `None`."""
    timing, job = spec.timing, spec.job
    if timing.sync:
        replicas = applied.synced.values()
        end = end_of_step(tables.values(), operations, gradients.pushes, replicas, exchange)
        return end._replace(operations=end.operations + stored(gradients.totals, job.rank)), None
    if timing.max_staleness is None:
        return End([], [], []), None
    bound = asynchronous.StalenessBound(timing.max_staleness, job.rank, job.size, prefix)
    first_tokens = bound.start()
    return End(bound.end_step(operations), bound.queues, []), first_tokens


def _apart(
    runnable: Runnable, batches: Accumulated, meter: Optional[DensityMeter], name: str
) -> Runnable:
    """What a step runs whose batches are added up, and exchanged by a run of its own."""
    forget = tf.group(*batches.resets)
    update = tf.group(*runnable.operations, forget)
    batches.require_no_batch(update, name)
    return runnable._replace(
        operations=batches.additions + ([meter.operation] if meter else []),
        update=update,
        forget=forget,
        sums=list(batches.storage),
    )


def _storage_of(dense: Sequence[tf.Variable], tables: Tables) -> Iterator[tf.Variable]:
    """The variables that hold what a step trains: dense ones, tables, and shards of tables."""
    for table in tables.values():
        yield from table.shards or [table.variable]
    yield from dense


def _require_no_penalties(tables: Iterable[Table], name: str) -> None:
    """Refuses a bound of gradients of rows to which a regularizer adds.

    Keras bounds the parts of such a gradient one by one, as often as the regularizer reads the
    table (2.15 and 2.21; `tests/unit/compat/test_keras_optimizers.py`).
    """
    penalized = [table.name for table in tables if table.by_row and table.penalties]
    if penalized:
        raise PlanError(
            '%s has a bound (clipnorm, clipvalue or global_clipnorm), and %s a regularizer. With '
            'TensorFlow 2 the two are not there together yet; take one of them away.'
            % (name, ', '.join(penalized))
        )
