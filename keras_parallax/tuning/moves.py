# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Moves variables, and an optimizer's state along, while a job is training.

Tables go to other shards, shards to every worker, and what every worker holds to shards.
"""

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.build_operations import build_operations
from keras_parallax.engine.step.carry_over import carry_over, rows_of
from keras_parallax.engine.step.dynamic_tables import index_rows
from keras_parallax.engine.step.operations import StepOperations
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy, scope_of_strategy
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables import initial_values, loss_analysis, row_transfer, sharding
from keras_parallax.engine.tables.id_index import IdIndex, index_of
from keras_parallax.engine.tables.initial_values import FillPlan
from keras_parallax.engine.tables.pull import pull_again, redirect_readers
from keras_parallax.engine.tables.row_transfer import Rows
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.sharding import forget_variable, remember_variable
from keras_parallax.engine.tables.table import Table, former_of
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Tensor, Variable
from keras_parallax.planning import architectures
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request
from keras_parallax.planning.planned_variables import PlannedVariable, Shard
from keras_parallax.planning.search_request import Search


def check_moves(spec: StepSpec, operations: StepOperations) -> None:
    """Refuses to move tables with an optimizer whose slots cannot follow them.

    Raises `PlanError` if its slots are not told apart, and the strategy searches for a number of
    shards, or makes tables dense after measuring them.
    """
    if operations.state is not None or not spec.has_shards:
        return
    if isinstance(spec.request.partitions, Search):
        moves, instead = "partitions='search'", '`partitions` as a number'
    elif spec.request.architecture == architectures.AUTO and operations.meter is not None:
        moves, instead = "architecture='auto'", '`density` for every table'
    else:
        return
    raise PlanError(
        '%s moves tables while they train, but the slots of %s are not told apart, so they '
        "cannot move along; use an optimizer of Keras's own or of TensorFlow's, or give %s."
        % (moves, spec.adapter.name, instead)
    )


def may_move(step: TrainStep, variables: Optional[Iterable[Variable]] = None) -> bool:
    """Whether variables can move: their slots are known, and no other step trains them.

    They are the step's tables, if it is not said which.
    """
    moving = set(step.tables if variables is None else variables)
    others = [other for other in scope_of_strategy(step.spec).runs.train_steps if other is not step]
    return step.operations.state is not None and all(
        moving.isdisjoint(other.spec.variables) for other in others
    )


def replan(step: TrainStep, request: Request, plan: Optional[Plan] = None) -> None:
    """Has a step follow another plan from now on; weights and slots stay. A collective call.

    Variables may get other shards, or none, or shards where they had none, if they `may_move`.

    Args:
        step: the `TrainStep`.
        request: the `plan_request.Request` to follow.
        plan: the `Plan`, or `None` for what follows from the request.
    """
    with lock_of(step.spec.loss.graph).held():
        follows = plan or step.spec.plan_for(request)
        step.follow(request, follows, lambda: reshard(step, request, follows))


def reshard(
    step: TrainStep, request: Request, plan: Plan
) -> Tuple[Dict[Variable, Table], StepOperations]:
    """Builds a step anew for another plan, if it `may_move`, with weights and slots. Collective.

    Returns the step's tables from now on, a dict from variables, and its `StepOperations`.
    """
    spec, rank, old_weights = step.spec, step.job.rank, list(step.operations.weights)
    tables: Dict[Variable, Table] = {}
    fills: Dict[Table, FillPlan] = {}
    moved: List[MovedTable] = []
    replicated: List[ReplicatedTable] = []
    counts = _row_counts_of(step, plan)
    with spec.loss.graph.as_default():
        members = loss_analysis.members_of(spec.loss, spec.records)
        for variable, planned in zip(spec.variables, plan.variables):
            table = step.tables.get(variable)
            if table is not None and table.shards:
                if not planned.shards:
                    replicated.append(ReplicatedTable(table, planned))
                elif table.plan.shards != planned.shards:
                    moved.append(MovedTable(table, planned, rank))
                    index = index_of(variable)
                    if index is not None:
                        moved += _moved_beside(table, index, rank)
            elif planned.shards or planned.kind == SPARSE:
                table = sharding.table_of(variable, planned, spec.scope)
                if planned.shards:
                    forget_variable(variable)
                    fills.update(
                        sharding.shard_tables({table: _REPLICAS}, members, rank, step.is_past)
                    )
            if table is not None and (planned.shards or planned.kind == SPARSE):
                tables[variable] = table
        # Slots would be kept whose storage is about to be freed.
        spec.forget_slots([table.variable for table in fills])
        gone: List[Union[MovedTable, ReplicatedTable]] = [*moved, *replicated]
        for of_all in gone:
            spec.forget_slots([of_all.table.variable, *of_all.old_shards])
        operations = build_operations(spec, request, tables)
        tensorflow_api.set_control_inputs(step.whole_step, operations.operations)
        weights = operations.weights if old_weights else []
        # Slots that every worker has for itself, and those of shards. A table that stays keeps its.
        old_storage = [held for held in step.operations.held if held not in operations.held]
        old_storage += step.operations.sums
        old_storage += [
            weight
            for weight in old_weights
            if isinstance(weight, tensorflow_api.VARIABLES) and weight not in weights
        ]
        # Slots of whole tables were global variables when the new step was built, so that it would
        # broadcast them (TF 2: `fitted_when_moved` of `tests/life_cycles.py`).
        operations.forget_synced(old_storage)
        release = [operation for of_table in gone for operation in of_table.release(rank)]
        for variable in old_storage:
            forget_variable(variable)
            release.append(tensorflow_api.memory_release(variable))
    new = [moved_table.table for moved_table in moved] + list(fills)
    operations.initialize(new, list(fills.values()))
    pairs = [moved_table.pair for moved_table in moved] + list(zip(old_weights, weights))
    scope, job = scope_of_strategy(spec), job_of_strategy(spec)
    carry_over(pairs, scope.session, rank, step.job.size, replicated)
    job.barrier()
    index_rows(new, scope.session, job, counts)
    scope.session.run(release)
    return tables, operations


def _row_counts_of(step: TrainStep, plan: Plan) -> Dict[IdIndex, Dict[str, int]]:
    """What has come of the rows of tables that are going to move: dict from `IdIndex`es."""
    moving = [
        index
        for variable, planned in zip(step.spec.variables, plan.variables)
        for index in [index_of(variable)]
        if index is not None and step.tables[variable].plan.shards != planned.shards
    ]
    fetches = {index: index.counts() for index in moving}
    return scope_of_strategy(step.spec).session.run(fetches) if fetches else {}


def _moved_beside(table: Table, index: IdIndex, rank: int) -> List['MovedTable']:
    """The `MovedTable`s of what lies beside the rows of a table that has moved."""
    beside = {}
    for name, weight in index.beside.items():
        of_name = weight.table
        beside[name] = MovedTable(of_name, of_name.plan._replace(shards=table.plan.shards), rank)
    tables = {name: moved.table for name, moved in beside.items()}
    index.follow(table, tables, rank)
    return list(beside.values())


#: Where the rows of a variable come from that every worker has held: rank 0 copies its own.
_REPLICAS = initial_values.ValueSource(held=True, initializer=None)


class ReplicatedTable:
    """A table that every worker holds from now on, and its shards, until its rows are copied.

    Every model of its graph reads the worker's own variable from now on, so that a session which
    has run it must be opened anew.

    Attributes:
        pair: `Rows` of the shards, and of this worker's variable; `None` of a single number.
        emptied: the operation that gives the variable, whose memory was freed, rows of zeros.
        number: of a single number the shard, a placeholder, and what assigns it to the variable.
    """

    pair: Optional[Tuple[Rows, Rows]]
    emptied: Optional[Operation]
    number: Optional[Tuple[Any, Tensor, Operation]]

    def __init__(self, table: Table, planned: PlannedVariable) -> None:
        self.table, self._planned, self.old_shards = table, table.plan.shards, table.shards
        variable = table.variable
        old = _weight(table)
        table.follow(planned)
        ShardedVariable.give_back(variable)
        remember_variable(variable)
        former_of(table).rebuild()
        self.pair = self.emptied = self.number = None
        with former_of(table).own():
            if planned.shape:
                self.pair = old, rows_of(variable)
                (self.emptied,) = row_transfer.emptied([variable])
                self.pair[1].make_writer()
            else:
                value = tf.placeholder(table.dtype, [])
                self.number = old, value, tensorflow_api.assign_freed(variable, value)
            again = [tensorflow_api.looked_up(variable, pulled.split.ids) for pulled in table.pulls]
        for pulled, looked_up in zip(table.pulls, again):
            redirect_readers(pulled.rows, looked_up)
        table.pulls[:] = [
            pulled._replace(rows=looked_up) for pulled, looked_up in zip(table.pulls, again)
        ]
        for penalty in table.former_penalties:
            redirect_readers(penalty, table.penalties[-1])

    def release(self, rank: int) -> List[Operation]:
        """The operations that free the memory of the shards on a worker's server."""
        return _release(self.table, self.old_shards, self._planned, rank)


class MovedTable:
    """A table that has new shards, and the old ones, which hold its rows until they are copied.

    Every model of its graph reads the new shards from now on, so that a session which has run it
    must be opened anew.
    """

    def __init__(self, table: Table, planned: PlannedVariable, rank: int) -> None:
        self.table = table
        self.old_shards, self._old_plan = table.shards, table.plan
        self._old = _weight(table)
        table.follow(planned)
        table.make_shards()
        ShardedVariable.rebind(table)
        former_of(table).rebuild()
        table.pulls[:] = [pull_again(table, pull, rank) for pull in table.pulls]
        self.pair = self._old, _weight(table)

    def release(self, rank: int) -> List[Operation]:
        """The operations that free the memory of the old shards on a worker's server."""
        return _release(self.table, self.old_shards, self._old_plan.shards, rank)


def _release(
    table: Table, variables: Iterable[Variable], shards: Iterable[Shard], rank: int
) -> List[Operation]:
    return [
        tensorflow_api.memory_release(variable)
        for variable, shard in zip(variables, shards)
        if table.owner_of(shard) == rank
    ]


def _weight(table: Table) -> Any:
    return table.variable.sharded_rows if table.plan.shape else table.shards[0]
