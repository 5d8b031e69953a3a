# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a training step must have for tables whose ids nobody has numbered."""

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.step_spec import StepSpec
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables import id_turnover, loss_analysis
from keras_parallax.engine.tables.exchanged import OwnedShard
from keras_parallax.engine.tables.id_index import COUNTS, IdIndex, index_of
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Session, Variable
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.row_fill import RowFill


def require_shards(spec: StepSpec, plan: Plan) -> None:
    """Refuses a `Plan` in which workers would number ids by themselves, or rows change under them.

    Args:
        spec: the `StepSpec`.
        plan: the `Plan`.

    Raises:
        PlanError: there is such a table, and what was asked for does not go with it.
    """
    dynamic = [
        (planned, index)
        for index, planned in zip(map(index_of, spec.variables), plan.variables)
        if index is not None
    ]
    for table, index in dynamic:
        if not index.gives_rows:
            raise PlanError(
                '%s is the table of a DynamicEmbedding that was called with trainable=False, so '
                'that ids get no rows, but now it is to be trained; build the model again.'
                % table.name
            )
    if spec.scope is None or not spec.scope.must_exchange:
        return
    for frozen in frozen_in(spec):
        of_frozen = index_of(frozen)
        if of_frozen is not None and of_frozen.gives_rows:
            raise PlanError(
                '%s is the table of a DynamicEmbedding that is not trained, but gives rows to ids, '
                'which each worker would do by itself; give the layer trainable=False before it is '
                'called, so that it only looks rows up.' % frozen.op.name
            )
    uses = plan.basis.uses if plan.basis else ()
    read_whole = {use.name for use in uses if use.whole_reads}
    for table, index in dynamic:
        if table.shards and table.name in read_whole:
            raise PlanError(
                '%s is the table of a DynamicEmbedding, whose rows belong to ids that training '
                'meets, but the loss reads all of its rows (%s). Read the table by calling the '
                'layer alone.' % (table.name, table.reason)
            )
        if table.kind != SPARSE or not table.shards:
            raise PlanError(
                '%s is the table of a DynamicEmbedding, whose rows are given away where its shards '
                "lie, but it would have none (%s). Use architecture='hybrid', 'ps' or 'auto', do "
                'not override its class, and read it by calling the layer alone.'
                % (table.name, table.reason)
            )
        if index.eviction is not None and not spec.timing.sync:
            raise PlanError(
                '%s is the table of a DynamicEmbedding with an eviction, which does not go with '
                'sync=False: a row could go to another id while a worker has yet to push the '
                'gradient of the id that it had. Leave one of the two out.' % table.name
            )


def frozen_in(spec: StepSpec) -> List[Variable]:
    """Those tables that the loss looks up and does not train, of which each worker has its own."""
    tables = [
        weight
        for weight in set(spec.records) - set(spec.variables)
        if index_of(weight) is not None and not isinstance(weight, ShardedVariable)
    ]
    members = loss_analysis.members_of(spec.loss, spec.records) if tables else None
    return [table for table in tables if graph_queries.reads(table, members).lookups]


def turned_over(
    tables: Iterable[Table],
    spec: StepSpec,
    state: Optional[OptimizerState],
    after: Sequence[Operation],
) -> List[Operation]:
    """What gives ids rows, and takes rows away, when a step ends: a list of operations.

    Args:
        tables: the `Table`s of the step.
        spec: the `StepSpec`.
        state: the optimizer's `OptimizerState`, or `None` if it is not known.
        after: the operations that update what this worker owns.

    Raises:
        PlanError: an eviction would leave an id what the optimizer knows of another.
    """
    operations = []
    for table in tables:
        index = index_of(table.variable)
        if index is None or not (index.admission or index.eviction):
            continue
        for owned in table.parts_of(spec.job.rank):
            slots = []
            if index.eviction is not None:
                slots = _slots(table, owned, state, spec.adapter.name)
            part = index.parts[owned.shard]
            operations.append(id_turnover.turned_over(index, part, slots, after))
    return operations


def _slots(
    table: Table, owned: OwnedShard, state: Optional[OptimizerState], name: str
) -> List[Tuple[Variable, float]]:
    """The slots of a part, pairs of a variable and the number that all of it begins with."""
    if state is None:
        raise PlanError(
            'eviction gives rows to other ids, for which the optimizer must begin anew, but which '
            'weights %s keeps for a row is not known; use one of Keras.' % name
        )
    pairs = []
    for slot in state.slots.get(table.variable, ()):
        slot = slot[owned.shard] if table.shards else slot
        if slot.shape.as_list()[:1] != owned.variable.shape.as_list()[:1]:
            continue  # It is not of rows.
        begins = graph_queries.constant_of(slot.initial_value)
        if begins is None:
            raise PlanError(
                'eviction gives rows to other ids, for which the optimizer must begin anew, but %s '
                'does not begin with the same number for all rows; use an optimizer of Keras.'
                % name
            )
        pairs.append((slot, begins))
    return pairs


def fills_of(step: TrainStep) -> Dict[str, RowFill]:
    """The `RowFill`s of the tables of a `TrainStep` whose rows are given to ids, a dict by name."""
    indexes = {
        planned.name: index
        for planned, index in zip(step.plan.variables, map(index_of, step.spec.variables))
        if index is not None
    }
    if not indexes:
        return {}
    with lock_of(step.spec.loss.graph).held():
        counts = {name: index.counts() for name, index in indexes.items()}
    found = step.spec.package.backend.get_session().run(counts)
    return {
        name: RowFill(index.capacity, *(int(found[name][count]) for count in COUNTS))
        for name, index in indexes.items()
    }


def index_rows(
    tables: Iterable[Table],
    session: Session,
    job: Job,
    counts: Optional[Mapping[IdIndex, Mapping[str, int]]] = None,
) -> None:
    """Has the indexes of tables know what ids their new shards have. A collective call.

    Args:
        tables: the `Table`s that are new, those of weights that say ids among them.
        session: the session.
        job: the `Job`.
        counts: dict from indexes to what has come of their rows before, as `IdIndex.counts`.
    """
    found = {index_of(table.variable) for table in tables}
    indexes = [index for index in found if index is not None]
    if indexes:
        # Each worker has written the rows of its shards.
        job.barrier()
        if job.rank == 0:
            session.run([index.rebuilt() for index in indexes])
            session.run([index.counted(of_index) for index, of_index in (counts or {}).items()])
        job.barrier()


def index_frozen(spec: StepSpec, session: Session) -> None:
    """Has the indexes of tables that are not trained know what ids this worker's rows have."""
    graph = spec.loss.graph
    with lock_of(graph).held(), graph.as_default():
        indexes = map(index_of, frozen_in(spec))
        rebuilt = [index.rebuilt() for index in indexes if index is not None]
    if rebuilt:
        session.run(rebuilt)
