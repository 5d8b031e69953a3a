"""Turns the tables of a model that is built already into sharded ones."""

from keras_parallax.compat import graph_queries, keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.planning import classify
from keras_parallax.tables import initial_values, loss_analysis
from keras_parallax.tables.former_storage import FormerStorage
from keras_parallax.tables.id_index import index_of
from keras_parallax.tables.pull import (
    pull_again,
    pull_new_lookup,
    redirect_lookups,
    redirect_readers,
)
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.tables.table import Table


def shard_table(table, source, members, rank, is_past=lambda operation: False):
    """Moves a table to its shards: every read of it, in every model of the graph, goes to them.

    Keras has built its layers on an ordinary variable, because only the loss tells whether the
    variable is sparse. That variable's storage is given up; the graph is rewired in place, so
    sessions that have run it must be opened anew. A table that was sharded before, and then held by
    every rank, pulls again what it has pulled.

    Args:
        table: the `Table`, which has the plan of its shards.
        source: the `ValueSource` of its rows.
        members: the operations that the loss depends on, a set.
        rank: this process's rank.
        is_past: function that tells whether an operation is of a step that runs no more.

    Returns:
        What this process does for the start values of the shards, a `FillPlan`.
    """
    variable = table.variable
    storage = tensorflow_api.storage(variable)
    lookups, users = [], tensorflow_api.consumers(storage)
    if table.by_row:
        again = {pulled.rows.op for pulled in table.pulls}
        found = graph_queries.reads(variable).lookups
        lookups = [lookup for lookup in found if not (lookup in again or is_past(lookup))]
    table.make_shards()
    fill = initial_values.fill_plan(table, source, rank)
    # What fills the shards reads the storage itself, and frees it.
    own = set(tensorflow_api.consumers(storage)) - set(users)
    own.update(filter(is_past, users))
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
    return fill


def forget_variable(variable):
    """Takes a variable out of what Keras initializes and what Horovod broadcasts."""
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        collection = variable.graph.get_collection_ref(key)
        collection[:] = [other for other in collection if other is not variable]
    keras_api.mark_initialized(variable)


def remember_variable(variable):
    """Puts a variable that `forget_variable` has taken out back in."""
    saveables = variable.graph.get_collection_ref(tf.GraphKeys.SAVEABLE_OBJECTS)
    saveables[:] = [other for other in saveables if other.name != variable.op.name]
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        variable.graph.add_to_collection(key, variable)


def redirect_penalties(table, members):
    """Computes a table's regularizer on its shards, and puts the sum in the loss.

    The loss depends on the operations in `members`; the table's `penalty_terms` are set.
    """
    if not table.penalties:
        return
    parts = []
    for shard in table.shards:
        with tf.device(shard.device):
            rows = tf.cast(shard, table.dtype) if table.is_narrow else shard
            parts.append(table.regularizer(rows))
    total = tf.add_n(parts)
    # A model that is compiled again has its loss from the layers' own.
    for term in table.penalties + table.penalty_terms:
        readers = [reader for reader in tensorflow_api.consumers(term) if reader in members]
        redirect_readers(term, total, readers)
    table.penalty_terms = [total]


def pulls_in(table, members):
    """The `Pull`s of a table whose rows a loss depends on."""
    return [pull for pull in table.pulls if any(output.op in members for output in pull.outputs)]


def lookups_in(table, members):
    """The lookups of a table that every rank holds, as pairs of ids and looked-up rows."""
    return [
        (lookup.inputs[1], lookup.outputs[0])
        for lookup in graph_queries.reads(table.variable, members).lookups
    ]


def set_aside(variables, plan, session):
    """Keeps Keras from initializing what is about to be sharded, if it has not yet.

    Returns a dict from variables that are about to be sharded to whether this process has values of
    them.
    """
    new = [
        variable
        for variable, planned in zip(variables, plan.variables)
        if planned.shards and not isinstance(variable, ShardedVariable)
    ]
    # What says the ids of a table's rows lies beside them.
    indexes = [index_of(variable) for variable in new if index_of(variable) is not None]
    new += [weight for index in indexes for weight in index.beside.values()]
    present = session.run([tf.is_variable_initialized(variable) for variable in new])
    for variable, there in zip(new, present):
        if not there:
            forget_variable(variable)
    return dict(zip(new, present))


def as_they_lie(plan, variables, held):
    """A plan for variables that another model may train already, which stay where they are.

    Args:
        plan: the `Plan`.
        variables: the model's trainable variables, in order.
        held: variables of models that have been moved: those without shards every rank holds.
    """
    lying = []
    for variable, planned in zip(variables, plan.variables):
        if isinstance(variable, ShardedVariable) and not planned.shards:
            table = variable.table
            kind = classify.SPARSE if table.by_row else planned.kind
            planned = planned._replace(kind=kind, shards=table.plan.shards)
        elif variable in held and not isinstance(variable, ShardedVariable):
            planned = planned._replace(shards=(), count_reason='')
        lying.append(planned)
    return plan._replace(variables=tuple(lying))


def make_tables(loss, variables, plan, sources, scope, rank):
    """Makes the `Table` of each sparse variable, sharded if the plan has shards for it.

    What is to be sharded has its `ValueSource` in `sources`. Returns a dict from variables to
    `Table`s, and a dict from newly sharded tables to their `FillPlan`s.
    """
    records = scope.records if scope else {}
    members = loss_analysis.members_of(loss, records)
    initial_values.initialize_copied(sources, scope, rank)
    tables, fills = {}, {}
    for variable, planned in zip(variables, plan.variables):
        if planned.kind != classify.SPARSE and not planned.shards:
            continue
        if isinstance(variable, ShardedVariable):
            tables[variable] = variable.table
            continue
        table = tables[variable] = table_of(variable, planned, scope)
        if planned.shards:
            forget_variable(variable)
            fills[table] = shard_table(table, sources[variable], members, rank)
            if index_of(variable) is not None:
                beside = _tables_beside(table, scope)
                for one in beside.values():
                    fills[one] = shard_table(one, sources[one.variable], members, rank)
                index_of(variable).follow(table, beside, rank)
    return tables, fills


def _tables_beside(table, scope):
    """The `Table`s of what lies beside a table of ids, with as many shards: a dict by name."""
    tables = {}
    for name, weight in index_of(table.variable).beside.items():
        planned = table.plan._replace(
            name=loss_analysis.name_of(weight),
            shape=tuple(weight.shape.as_list()),
            dtype=weight.dtype.base_dtype.name,
        )
        forget_variable(weight)
        tables[name] = table_of(weight, planned, scope)
    return tables


def table_of(variable, planned, scope):
    """The `Table` of a variable that is not sharded, which follows a plan from now on.

    That of one that was sharded before knows who reads it.
    """
    table = scope.tables_by_name.get(planned.name) if scope else None
    is_known = table is not None and table.former is not None and table.variable is variable
    if is_known and table.by_row == (planned.kind == classify.SPARSE):
        table.follow(planned)
        return table
    servers = scope.servers if scope else None
    ranks = (scope.job.rank, scope.job.size) if scope else ()
    record = scope.records.get(variable) if scope else None
    table = Table(variable, planned, record, servers, *ranks)
    if scope:
        scope.tables_by_name[table.name] = table
    return table
