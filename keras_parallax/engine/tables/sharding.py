# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Turns the tables of a model that is built already into sharded ones."""

from typing import (
    AbstractSet,
    Callable,
    Container,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from keras_parallax.compat import graph_queries, keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import initial_values, loss_analysis
from keras_parallax.engine.tables.former_storage import FormerStorage
from keras_parallax.engine.tables.id_index import IdIndex, index_of
from keras_parallax.engine.tables.initial_values import FillPlan, ValueSource
from keras_parallax.engine.tables.pull import (
    pull_again,
    pull_new_lookup,
    redirect_lookups,
    redirect_readers,
)
from keras_parallax.engine.tables.pull_data import Pull
from keras_parallax.engine.tables.scope_interface import TablesScope
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table, former_of
from keras_parallax.framework_types import Operation, Session, Tensor, Variable
from keras_parallax.planning import classify
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.planned_variables import PlannedVariable


def shard_tables(
    sources: Mapping[Table, ValueSource],
    members: AbstractSet[Operation],
    rank: int,
    is_past: Callable[[Operation], bool] = lambda operation: False,
) -> Dict[Table, FillPlan]:
    """Moves tables to their shards: every read of them, in every model of the graph, goes there.

    Keras has built its layers on ordinary variables, because only the loss tells whether a
    variable is sparse. Their storage is given up; the graph is rewired in place, so sessions that
    have run it must be opened anew. A table that was sharded before, and then held by every worker,
    pulls again what it has pulled.

    Args:
        sources: dict from `Table`s, which have the plans of their shards, to the `ValueSource`s of
            their rows.
        members: the operations that the loss depends on, a set.
        rank: this process's rank.
        is_past: function that tells whether an operation is of a step that runs no more.

    Returns:
        Dict from the tables to what this process does for the start values of their shards.
    """
    lookups: Dict[Table, List[Operation]] = {}
    for table in sources:
        again = {pulled.rows.op for pulled in table.pulls}
        found = graph_queries.reads(table.variable).lookups if table.by_row else []
        lookups[table] = [one for one in found if not (one in again or is_past(one))]
        table.make_shards()
    fills = initial_values.fill_plans(sources, rank)
    for table, fill in fills.items():
        _lead_to_shards(table, fill, lookups[table], members, rank, is_past)
    return fills


def _lead_to_shards(
    table: Table,
    fill: FillPlan,
    lookups: Sequence[Operation],
    members: AbstractSet[Operation],
    rank: int,
    is_past: Callable[[Operation], bool],
) -> None:
    """Has what reads a table read its shards, which it has by now."""
    variable = table.variable
    storage = tensorflow_api.storage(variable)
    # What fills the shards reads the storage itself, and frees it.
    own = fill.own | set(filter(is_past, tensorflow_api.consumers(storage)))
    variable.graph.add_to_collection(
        tf.GraphKeys.SAVEABLE_OBJECTS, tensorflow_api.saveable(variable)
    )
    table.pulls[:] = [pull_again(table, pulled, rank) for pulled in table.pulls]
    redirected = redirect_lookups(table, lookups, members, rank)
    ShardedVariable.adopt(variable, table, lambda ids: pull_new_lookup(table, ids, rank))
    if table.former is None:
        table.former = FormerStorage(table, storage, own)
    else:
        table.former.leave(own)
        table.former.rebuild()
    for lookup, output in redirected:
        table.former.replace(lookup, output)
    # What still reads the variable whole (a model that shows or tests it) gets all shards.
    table.former.redirect_reads()


def forget_variable(variable: Variable) -> None:
    """Takes a variable out of what Keras initializes and what Horovod broadcasts."""
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        collection = variable.graph.get_collection_ref(key)
        collection[:] = [other for other in collection if other is not variable]
    keras_api.mark_initialized(variable)


def remember_variable(variable: Variable) -> None:
    """Puts a variable that `forget_variable` has taken out back in."""
    saveables = variable.graph.get_collection_ref(tf.GraphKeys.SAVEABLE_OBJECTS)
    saveables[:] = [other for other in saveables if other.name != variable.op.name]
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        variable.graph.add_to_collection(key, variable)


def redirect_penalties(table: Table, members: AbstractSet[Operation]) -> None:
    """Has a loss take a table's penalty from the shards, if it has shards and the loss a penalty.

    The loss depends on the operations in `members`. Several losses take the same penalty.
    """
    if not table.shards:
        return
    for term in table.penalties + table.former_penalties:
        readers = [reader for reader in tensorflow_api.consumers(term) if reader in members]
        if readers:
            if table.penalty is None:
                table.penalty = _penalty_of_shards(table)
            redirect_readers(term, table.penalty, readers)


def _penalty_of_shards(table: Table) -> Tensor:
    parts = []
    regularizer = cast(Callable[[Tensor], Tensor], table.regularizer)  # A penalty comes from one.
    for shard in table.shards:
        with tf.device(shard.device):
            rows = tf.cast(shard, table.dtype) if table.is_narrow else shard
            parts.append(regularizer(rows))
    return tf.add_n(parts)


def pulls_in(table: Table, members: AbstractSet[Operation]) -> List[Pull]:
    """The `Pull`s of a table whose rows a loss depends on."""
    return [pull for pull in table.pulls if any(output.op in members for output in pull.outputs)]


def wholes_in(table: Table, members: AbstractSet[tf.Operation]) -> List[tf.Tensor]:
    """The values of a whole table with shards that a loss depends on."""
    return [value for value in former_of(table).wholes if value.op in members]


def lookups_in(table: Table, members: AbstractSet[Operation]) -> List[Tuple[Tensor, Tensor]]:
    """The lookups of a table that every worker holds, as pairs of ids and looked-up rows."""
    return [
        (lookup.inputs[1], lookup.outputs[0])
        for lookup in graph_queries.reads(table.variable, members).lookups
    ]


def set_aside(
    variables: Sequence[Variable],
    plan: Plan,
    session: Session,
    may_be_run: Callable[[Operation], bool] = lambda operation: True,
) -> Dict[Variable, bool]:
    """Keeps Keras from initializing what is about to be sharded, if it has not yet.

    Args:
        variables: the model's trainable variables, in order.
        plan: the `Plan`.
        session: the session.
        may_be_run: function that tells whether a session may have run an operation. Variables that
            no session knows have no values, and asking would make the session learn of them.

    Returns:
        A dict from variables that are about to be sharded to whether this process has values of
        them.
    """
    new = [
        variable
        for variable, planned in zip(variables, plan.variables)
        if planned.shards and not isinstance(variable, ShardedVariable)
    ]
    # What says the ids of a table's rows lies beside them.
    indexes = map(index_of, list(new))
    new += [weight for index in indexes if index is not None for weight in index.beside.values()]
    known = [variable for variable in new if may_be_run(variable.op)]
    present = session.run([tf.is_variable_initialized(variable) for variable in known])
    are_there = dict(zip(known, present))
    found = {variable: are_there.get(variable, False) for variable in new}
    for variable, there in found.items():
        if not there:
            forget_variable(variable)
    return found


def as_they_lie(plan: Plan, variables: Sequence[Variable], held: Container[Variable]) -> Plan:
    """A plan for variables that another model may train already, which stay where they are.

    Args:
        plan: the `Plan`.
        variables: the model's trainable variables, in order.
        held: variables of other steps: every worker holds those of them that have no shards.
    """
    lying = []
    for variable, planned in zip(variables, plan.variables):
        if isinstance(variable, ShardedVariable):
            of_table = variable.table.plan
            if planned.shards != of_table.shards:
                planned = planned._replace(count_reason=of_table.count_reason)
            planned = planned._replace(
                kind=classify.SPARSE if variable.table.by_row else classify.DENSE,
                shards=of_table.shards,
                row_dtype=of_table.row_dtype,
            )
        elif variable in held and planned.shards:
            reason = planned.reason + '; on every worker, because another model trains it there'
            planned = planned._replace(reason=reason, shards=(), count_reason='')
        lying.append(planned)
    return plan._replace(variables=tuple(lying))


def make_tables(
    loss: Tensor,
    variables: Sequence[Variable],
    plan: Plan,
    sources: Mapping[Variable, ValueSource],
    scope: Optional[TablesScope],
    rank: int,
) -> Tuple[Dict[Variable, Table], Dict[Table, FillPlan]]:
    """Makes the `Table` of each sparse variable, sharded if the plan has shards for it.

    What is to be sharded has its `ValueSource` in `sources`. Returns a dict from variables to
    `Table`s, and a dict from newly sharded tables to their `FillPlan`s.
    """
    records = scope.records if scope else {}
    members = loss_analysis.members_of(loss, records)
    initial_values.initialize_copied(sources, scope, rank)
    tables: Dict[Variable, Table] = {}
    new: Dict[Table, ValueSource] = {}
    followed = []
    for variable, planned in zip(variables, plan.variables):
        if planned.kind != classify.SPARSE and not planned.shards:
            continue
        if isinstance(variable, ShardedVariable):
            tables[variable] = variable.table
            continue
        table = tables[variable] = table_of(variable, planned, scope)
        if planned.shards:
            forget_variable(variable)
            new[table] = sources[variable]
            index = index_of(variable)
            if index is not None:
                beside = _tables_beside(table, index, scope)
                new.update({one: sources[one.variable] for one in beside.values()})
                followed.append((index, table, beside))
    fills = shard_tables(new, members, rank)
    for index, table, beside in followed:
        index.follow(table, beside, rank)
    return tables, fills


def _tables_beside(table: Table, index: IdIndex, scope: Optional[TablesScope]) -> Dict[str, Table]:
    """The `Table`s of what lies beside a table of ids, with as many shards: a dict by name."""
    tables = {}
    for name, weight in index.beside.items():
        planned = table.plan._replace(
            name=loss_analysis.name_of(weight),
            shape=tuple(weight.shape.as_list()),
            dtype=weight.dtype.base_dtype.name,
        )
        forget_variable(weight)
        tables[name] = table_of(weight, planned, scope)
    return tables


def table_of(variable: Variable, planned: PlannedVariable, scope: Optional[TablesScope]) -> Table:
    """The `Table` of a variable that is not sharded, which follows a plan from now on.

    That of one that was sharded before knows who reads it.
    """
    table = scope.tables_by_name.get(planned.name) if scope else None
    is_sparse = planned.kind == classify.SPARSE
    if table is not None and table.former is not None and table.variable is variable:
        if table.by_row == is_sparse:
            table.follow(planned)
            return table
    servers = scope.servers if scope else None
    ranks = (scope.job.rank, scope.job.size) if scope else ()
    record = scope.records.get(variable) if scope else None
    table = Table(variable, planned, record, servers, *ranks)
    if scope:
        scope.tables_by_name[table.name] = table
    return table
