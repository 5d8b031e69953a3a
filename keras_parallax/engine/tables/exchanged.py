# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step pulls rows from and pushes them to: a table, or several as if they were one."""

import abc
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.tables.pull_data import Connection, Pull
from keras_parallax.framework_types import DType, Tensor, Variable
from keras_parallax.planning.planned_variables import Shard


class OwnedShard(NamedTuple):
    """What one worker updates of a table: its own shard, or the whole table.

    Attributes:
        table: the `Exchanged`.
        variable: the variable that holds the rows.
        shard: number of the shard.
    """

    table: Any
    variable: tf.Variable
    shard: int


class RowGradients(NamedTuple):
    """Gradients of some rows: `rows` `[n]` without repeats, `values` `[n] + row_shape`."""

    rows: tf.Tensor
    values: tf.Tensor


class PartGradient(NamedTuple):
    """The gradient that a worker applies to an `OwnedShard`.

    Attributes:
        part: the `OwnedShard`.
        gradients: `RowGradients` with rows numbered within the part, or, of a dense variable on
            servers, a tensor of the part's shape.
    """

    part: OwnedShard
    gradients: Any


class Exchanged(abc.ABC):
    """A table, or a group of tables that are pulled and pushed as one.

    Attributes:
        name: names its pulls and pushes, the same on every worker.
        tables: the `Table`s that it consists of.
        rows, row_shape: how many rows there are, and the shape of one, a list.
        widths: how many numbers of a row belong to each table, as `half_precision.compress` takes
            it.
        dtype: that of the rows, as the model has them.
        stored_dtype: that in which shards hold them, and in which they are pulled.
        planned_shards: the `placement.Shard`s, a tuple; empty if every worker holds all rows.
        shards: for each a variable that lies where it does.
        servers: the `Servers` that hold them.
    """

    name: str
    tables: Sequence[Any]
    rows: int
    row_shape: List[int]
    widths: List[int]
    dtype: DType
    shards: Sequence[Variable]
    servers: Servers
    stored_dtype: DType
    planned_shards: Tuple[Shard, ...]

    def owner_of(self, shard: Shard) -> int:
        """The worker that owns a `placement.Shard`: it alone initializes it and its slots."""
        return self.servers.owners[shard.server]

    def device_of(self, shard: Shard) -> str:
        """The device on which a `placement.Shard` and its slots lie."""
        return self.servers.devices[shard.server]

    def owned_shard(self, number: int) -> OwnedShard:
        """The `OwnedShard` of a number."""
        return OwnedShard(self, self.shards[number], number)

    def parts_of(self, rank: int) -> List[OwnedShard]:
        """The `OwnedShard`s of a worker."""
        return [
            self.owned_shard(number)
            for number, shard in enumerate(self.planned_shards)
            if self.owner_of(shard) == rank
        ]

    def touched(self, pull: Optional[Pull], rows: Tensor) -> Dict[str, Tensor]:
        """How many rows of each table a batch touches, a dict from names to scalars.

        The rows, `[n]`, are those that the batch of the `Pull` touches, each once.
        """
        return {table.name: tf.size(rows) for table in self.tables}

    @abc.abstractmethod
    def gather(self, number: int, rows: Tensor) -> Tensor:
        """Gathers rows `[n]` of the shard of a number, as they are numbered there."""

    @abc.abstractmethod
    def connections(self, pull: Pull, rows: Tensor) -> List[Connection]:
        """The `Connection`s that have a step read rows `[n] + row_shape` that it has pulled.

        They are in the order of `pull.split.ids`, and stand in the place of what the `Pull` has.
        """

    @abc.abstractmethod
    def gradients(self, pull: Pull, gradients: Dict[Tensor, Tensor]) -> Tensor:
        """Gradients of pulled rows from those of the lookups that use them, a dict by output.

        An output may be missing. Returns `[n] + row_shape`, in the order of `pull.split.ids`.
        """

    @abc.abstractmethod
    def of_tables(self, part_gradient: PartGradient) -> List[PartGradient]:
        """The `PartGradient`s of its tables, a list, given that of one of its shards."""
