"""Sets the tables of a model up as its plan says, before its first step."""

from keras_parallax import classify, filling, sharding, uses
from keras_parallax.compat import tf
from keras_parallax.table import ShardedVariable, Table


def set_aside(variables, plan, session):
    """Keeps Keras from initializing what is about to be sharded, if it has not yet.

    Args:
        variables: the trainable variables of a model.
        plan: its `Plan`.
        session: the session of its graph.

    Returns:
        A dict from variables that are about to be sharded to whether this process has values of
        them.
    """
    new = [
        variable
        for variable, planned in zip(variables, plan.variables)
        if planned.shards and not isinstance(variable, ShardedVariable)
    ]
    present = session.run([tf.is_variable_initialized(variable) for variable in new])
    for variable, there in zip(new, present):
        if not there:
            sharding.forget_variable(variable)
    return dict(zip(new, present))


def make_tables(loss, variables, plan, starts, scope, rank):
    """Makes the `Table` of each sparse variable, sharded if the plan has shards for it.

    Args:
        loss: the model's total loss.
        variables: its trainable variables.
        plan: its `Plan`.
        starts: dict from variables that are to be sharded to their `filling.Start`s.
        scope: the `GraphScope`, or `None` without a strategy.
        rank: this process's rank.

    Returns:
        A dict from variables to `Table`s, and a dict from newly sharded tables to their
        `filling.Fill`s.
    """
    records = scope.records if scope else {}
    members = uses.members_of(loss, records)
    filling.initialize_copied(starts, scope, rank)
    tables, fills = {}, {}
    for variable, planned in zip(variables, plan.variables):
        if planned.kind != classify.SPARSE and not planned.shards:
            continue
        if isinstance(variable, ShardedVariable):
            table = variable.table
        else:
            servers = scope.servers if scope else None
            ranks = (scope.job.rank, scope.job.size) if scope else ()
            table = Table(variable, planned, records.get(variable), servers, *ranks)
            if planned.shards:
                sharding.forget_variable(variable)
                fills[table] = sharding.shard_table(table, starts[variable], members, rank)
        tables[variable] = table
        if scope:
            scope.tables_by_name[table.name] = table
    return tables, fills
