"""What a step pulls rows from and pushes them to: a table, or several as if they were one."""

import abc
from typing import Any, NamedTuple

from keras_parallax.compat.tensorflow_api import tf


class OwnedShard(NamedTuple):
    """What one rank updates of a table: its own shard, or the whole table.

    Attributes:
        table: the `Exchanged`.
        variable: the variable that holds the rows.
        shard: number of the shard.
    """

    table: Any
    variable: tf.Variable
    shard: int


class Exchanged(abc.ABC):
    """A table, or a group of tables that are pulled and pushed as one.

    Attributes:
        name: names its pulls and pushes, the same on every rank.
        tables: the `Table`s that it consists of.
        rows, row_shape: how many rows there are, and the shape of one, a list.
        widths: how many numbers of a row belong to each table, as `half_precision.compress` takes
            it.
        dtype: that of the rows, as the model has them.
        stored_dtype: that in which shards hold them, and in which they are pulled.
        planned_shards: the `placement.Shard`s, a tuple; empty if every rank holds all rows.
        shards: for each a variable that lies where it does.
        servers: the `Servers` that hold them.
    """

    def owner_of(self, shard):
        """The rank that owns a `placement.Shard`: it alone initializes it and its slots."""
        return self.servers.owners[shard.server]

    def device_of(self, shard):
        """The device on which a `placement.Shard` and its slots lie."""
        return self.servers.devices[shard.server]

    def owned_shard(self, number):
        """The `OwnedShard` of a number."""
        return OwnedShard(self, self.shards[number], number)

    def parts_of(self, rank):
        """The `OwnedShard`s of a rank."""
        return [
            self.owned_shard(number)
            for number, shard in enumerate(self.planned_shards)
            if self.owner_of(shard) == rank
        ]

    def touched(self, pull, rows):
        """How many rows of each table a batch touches, a dict from names to scalars.

        The rows, `[n]`, are those that the batch of the `Pull` touches, each once.
        """
        return {table.name: tf.size(rows) for table in self.tables}

    @abc.abstractmethod
    def gather(self, number, rows):
        """Gathers rows `[n]` of the shard of a number, as they are numbered there."""

    @abc.abstractmethod
    def connections(self, pull, rows):
        """The `Connection`s that have a step read rows `[n] + row_shape` that it has pulled.

        They are in the order of `pull.split.ids`, and stand in the place of what the `Pull` has.
        """

    @abc.abstractmethod
    def gradients(self, pull, gradients):
        """Gradients of pulled rows from those of the lookups that use them, a dict by output.

        An output may be missing. Returns `[n] + row_shape`, in the order of `pull.split.ids`.
        """

    @abc.abstractmethod
    def of_tables(self, part_gradient):
        """The `PartGradient`s of its tables, a list, given that of one of its shards."""
