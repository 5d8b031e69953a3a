"""Moves variables, and an optimizer's state along, while a job is training.

Tables go to other shards, shards to every rank, and what every rank holds to shards.
"""

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.search import Search
from keras_parallax.step.dynamic_tables import index_rows
from keras_parallax.step.operations import StepOperations
from keras_parallax.tables import initial_values, loss_analysis, rows, sharding
from keras_parallax.tables.id_index import index_of
from keras_parallax.tables.pull import pull_again, redirect_readers
from keras_parallax.tables.rows import Rows, ShardedRows
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.tables.sharding import forget_variable, remember_variable
from keras_parallax.updates.slots import EqualSlots, UnusedRows

#: Weights of more bytes are not copied whole: they move in blocks, all of them side by side.
_SMALL_BYTES = 2**16


def check_moves(spec, operations):
    """Refuses to move tables with an optimizer whose slots cannot follow them.

    Raises `PlanError` if its slots are not told apart, and the strategy searches for a number of
    shards, or makes tables dense after measuring them.
    """
    if operations.state is not None or not spec.has_shards:
        return
    if isinstance(spec.asked.partitions, Search):
        moves, instead = "partitions='search'", '`partitions` as a number'
    elif spec.asked.architecture == architectures.AUTO and operations.meter is not None:
        moves, instead = "architecture='auto'", '`density` for every table'
    else:
        return
    raise PlanError(
        '%s moves tables while they train, but the slots of %s are not told apart, so they '
        "cannot move along; use an optimizer of Keras's own or of TensorFlow's, or give %s."
        % (moves, spec.adapter.name, instead)
    )


def may_move(step, variables=None):
    """Whether variables can move: their slots are known, and no other step trains them.

    They are the step's tables, if it is not said which.
    """
    variables = set(step.tables if variables is None else variables)
    others = [other for other in step.spec.scope.runs.train_steps if other is not step]
    return step.state is not None and all(
        variables.isdisjoint(other.spec.variables) for other in others
    )


def reshard(step, request, plan):
    """Builds a step anew for another plan, if it `may_move`, with weights and slots. Collective.

    Returns the step's tables from now on, a dict from variables, and its `StepOperations`.
    """
    spec, rank, old_weights = step.spec, step.rank, list(step.weights)
    tables, moved, replicated, fills = {}, [], [], {}
    counts = _counts_of(step, plan)
    with spec.loss.graph.as_default():
        members = loss_analysis.members_of(spec.loss, spec.records)
        for variable, planned in zip(spec.variables, plan.variables):
            table = step.tables.get(variable)
            if table is not None and table.shards:
                if not planned.shards:
                    replicated.append(ReplicatedTable(table, planned))
                elif table.plan.shards != planned.shards:
                    moved.append(MovedTable(table, planned, rank))
                    if index_of(variable) is not None:
                        moved += _moved_beside(table, rank)
            elif planned.shards or planned.kind == SPARSE:
                table = sharding.table_of(variable, planned, spec.scope)
                if planned.shards:
                    forget_variable(variable)
                    fills[table] = sharding.shard_table(
                        table, _REPLICAS, members, rank, step.is_past
                    )
            if planned.shards or planned.kind == SPARSE:
                tables[variable] = table
        # Slots would be kept whose storage is about to be freed.
        spec.forget_slots([table.variable for table in fills])
        spec.forget_slots([of_all.table.variable for of_all in replicated])
        operations = StepOperations(spec, request, tables)
        tensorflow_api.set_control_inputs(step.whole_step, operations.operations)
        weights = operations.weights if old_weights else []
        # Slots that every rank has for itself; those of shards are in the storage.
        old_storage = step.operations.storage + step.operations.sums
        old_storage += [
            weight
            for weight in old_weights
            if isinstance(weight, tensorflow_api.VARIABLES) and weight not in weights
        ]
        release = [operation for table in moved + replicated for operation in table.release(rank)]
        for variable in old_storage:
            forget_variable(variable)
            release.append(tensorflow_api.memory_release(variable))
    new = [moved_table.table for moved_table in moved] + list(fills)
    operations.initialize(new, list(fills.values()))
    pairs = [moved_table.pair for moved_table in moved] + list(zip(old_weights, weights))
    carry_over(pairs, spec.scope.session, rank, step.size, replicated)
    spec.job.barrier()
    index_rows(new, spec.scope.session, spec.job, counts)
    spec.scope.session.run(release)
    return tables, operations


def _counts_of(step, plan):
    """What has come of the rows of tables that are going to move: dict from `IdIndex`es."""
    moving = [
        index_of(variable)
        for variable, planned in zip(step.spec.variables, plan.variables)
        if index_of(variable) is not None and step.tables[variable].plan.shards != planned.shards
    ]
    fetches = {index: index.counts() for index in moving}
    return step.spec.scope.session.run(fetches) if fetches else {}


def _moved_beside(table, rank):
    """The `MovedTable`s of what lies beside the rows of a table that has moved."""
    beside = {}
    for name, weight in index_of(table.variable).beside.items():
        of_name = weight.table
        beside[name] = MovedTable(of_name, of_name.plan._replace(shards=table.plan.shards), rank)
    tables = {name: moved.table for name, moved in beside.items()}
    index_of(table.variable).follow(table, tables, rank)
    return list(beside.values())


#: Where the rows of a variable come from that every rank has held: rank 0 copies its own.
_REPLICAS = initial_values.ValueSource(held=True, initializer=None)


class ReplicatedTable:
    """A table that every rank holds from now on, and its shards, until its rows are copied.

    Every model of its graph reads the rank's own variable from now on, so that a session which has
    run it must be opened anew.

    Attributes:
        pair: `Rows` of the shards, and of this rank's variable; `None` of a single number.
        emptied: the operation that gives the variable, whose memory was freed, rows of zeros.
        number: of a single number the shard, a placeholder, and what assigns it to the variable.
    """

    def __init__(self, table, planned):
        self.table, self._planned, self._shards = table, table.plan.shards, table.shards
        variable = table.variable
        old = _weight(table)
        table.follow(planned)
        ShardedVariable.give_back(variable)
        remember_variable(variable)
        table.former.rebuild()
        self.pair = self.emptied = self.number = None
        with table.former.own():
            if planned.shape:
                self.pair = old, _rows_of(variable)
                (self.emptied,) = rows.emptied([variable])
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
        if table.penalties:
            redirect_readers(table.penalty_terms[0], table.penalties[0])
            table.penalty_terms = table.penalties[:1]

    def release(self, rank):
        """The operations that free the memory of the shards on a rank's server."""
        return _release(self.table, self._shards, self._planned, rank)


class MovedTable:
    """A table that has new shards, and the old ones, which hold its rows until they are copied.

    Every model of its graph reads the new shards from now on, so that a session which has run it
    must be opened anew.
    """

    def __init__(self, table, planned, rank):
        self.table = table
        self._old_shards, self._old_plan = table.shards, table.plan
        self._old = _weight(table)
        table.plan, table.shards = planned, []
        table.make_shards()
        ShardedVariable.rebind(table)
        table.former.rebuild()
        table.pulls[:] = [pull_again(table, pull, rank) for pull in table.pulls]
        self.pair = self._old, _weight(table)

    def release(self, rank):
        """The operations that free the memory of the old shards on a rank's server."""
        return _release(self.table, self._old_shards, self._old_plan.shards, rank)


def _release(table, variables, shards, rank):
    return [
        tensorflow_api.memory_release(variable)
        for variable, shard in zip(variables, shards)
        if table.owner_of(shard) == rank
    ]


def _weight(table):
    return table.variable.sharded_rows if table.plan.shape else table.shards[0]


def carry_over(pairs, session, rank, size, replicated=()):
    """Copies weights to those that take their place.

    All ranks call it, and each does a share of what is in shards.

    Args:
        pairs: of `Rows` or variables of equal shape, of an old and a new one.
        session: the session.
        rank: this process's rank.
        size: the number of ranks.
        replicated: `ReplicatedTable`s, whose rows every rank copies.
    """
    in_shards, small = [], [one.number for one in replicated if one.number]
    own = [one.pair for one in replicated if one.pair]
    emptied = [one.emptied for one in replicated if one.pair]
    for old, new in pairs:
        if old is new or isinstance(new, UnusedRows):
            continue
        if isinstance(new, Rows):
            in_shards.append((_rows_of(old), new))
        elif rows.bytes_of(new) > _SMALL_BYTES and not isinstance(old, EqualSlots):
            own.append((_rows_of(old), _rows_of(new)))
            emptied += rows.emptied([new])
        else:
            value = tf.placeholder(new.dtype.base_dtype, new.shape)
            small.append((old, value, new.assign(value)))
            if isinstance(old, Rows):
                old.make_reader()
    # All operations are made before the first run, at which a session learns of them.
    rows.make_for_moves(in_shards + own)
    if small:
        olds, placeholders, assignments = zip(*small)
        values = rows.read_together(list(olds), session)
        session.run(list(assignments), dict(zip(placeholders, values)))
    rows.move(in_shards, session, share=(rank, size))
    if own:
        session.run(emptied)
        rows.move(own, session)


def _rows_of(weight):
    """`Rows`, or a variable as one shard of all of its rows."""
    return weight if isinstance(weight, Rows) else ShardedRows(weight.name, [weight], weight.shape)
