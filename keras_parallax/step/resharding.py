"""Moves tables to other shards, and an optimizer's state along, while a job is training."""

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.tables.pull import pull_again, redirect_readers
from keras_parallax.tables.rows import Rows
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.tables.sharding import remember_variable
from keras_parallax.updates.slots import UnusedRows


class ReplicatedTable:
    """A table that every rank holds from now on, and its shards, until its rows are copied.

    Args:
        table: a sharded `Table`; every model of its graph reads the rank's own variable from now
            on, so that a session which has run it must be opened anew.
    """

    def __init__(self, table):
        self.table, self._shards = table, table.plan.shards
        variable = table.variable
        self._old = _weight(table)
        ShardedVariable.give_back(variable)
        remember_variable(variable)
        table.former.rebuild()
        read = variable.read_value()
        for pulled in table.pulls:
            redirect_readers(pulled.rows, tf.gather(read, pulled.split.ids))
        if table.penalties:
            redirect_readers(table.penalty_terms[0], table.penalties[0])
        self._value = tf.placeholder(table.dtype, table.plan.shape)
        self._fill = tensorflow_api.assign_freed(variable, self._value)

    def fetch(self, session):
        """Copies the rows to this rank's variable."""
        session.run(self._fill, {self._value: session.run(self._old)})

    def release(self, rank):
        """The operations that free the memory of the shards on a rank's server."""
        return _release(self.table, self.table.shards, self._shards, rank)


class MovedTable:
    """A table that has new shards, and the old ones, which hold its rows until they are copied.

    Args:
        table: a sharded `Table`; every model of its graph reads the new shards from now on, so
            that a session which has run it must be opened anew.
        planned: the `PlannedVariable` with the new shards.
        rank: this process's rank.
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

    def fetch(self, session):
        """Does nothing: the rows are copied with `carry_over`."""

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


def carry_over(pairs, session, rank, size):
    """Copies weights to those that take their place. All ranks call it, each does a share.

    Args:
        pairs: pairs of an old and a new weight of equal shape, `Rows` or variables.
        session: a session that sees both.
        rank: this rank.
        size: number of ranks.
    """
    for old, new in pairs:
        if old is new or isinstance(new, UnusedRows):
            continue
        if isinstance(new, Rows):
            new.fill(_Source(old, session), session, share=(rank, size))
        else:
            session.run(new.assign(session.run(old)))


class _Source:
    """Old rows, as `Rows.fill` takes them."""

    def __init__(self, rows, session):
        self.shape, self._rows, self._session = tuple(rows.shape.as_list()), rows, session

    def __getitem__(self, rows):
        if isinstance(self._rows, Rows):
            return self._rows.read(self._session, rows.start, rows.stop)
        return self._session.run(self._rows[rows])
