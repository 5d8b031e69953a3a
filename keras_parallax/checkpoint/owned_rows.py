"""Which rows of tables and slots go to which rank's part of a checkpoint."""

from typing import Any, NamedTuple, Optional

import numpy as np

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.tables.rows import ShardedRows
from keras_parallax.updates.slots import UnusedRows

#: A smaller shard is saved whole: to mark its rows in each step would cost more than it spares.
SMALL_BYTES = 256 * 2**10


class OwnedRows(NamedTuple):
    """One shard of a table or of a slot that a rank saves.

    Attributes:
        name: path of the dataset in Keras's file.
        shard: number of the shard.
        rows: the `ShardedRows` of the shard alone.
        group: names the shard of the table, for the table and its slots.
        ids: the numbers of the rows to save, an array `[n]`; `None` for all.
    """

    name: str
    shard: int
    rows: ShardedRows
    group: str
    ids: Optional[np.ndarray] = None

    @property
    def key(self):
        """Tells it from any other, on all ranks."""
        return self.name, self.shard


class SharedRows(NamedTuple):
    """What of a model's rows ranks save to parts of their own.

    Attributes:
        tables: dict from paths in Keras's file to `Rows`.
        replicated: dict from variables to the names of the tables that they belong to: those that
            are updated by rows, though every rank holds all of them. Rank 0 saves them.
    """

    tables: Any
    replicated: Any

    def shards(self, rank=None):
        """The `OwnedRows` of a rank, all rows of each; of all ranks, if none is given. A list."""
        found = []
        for name, rows in self.tables.items():
            if isinstance(rows, UnusedRows):
                continue
            if rows.table is None:
                if rank in (0, None):
                    group = '%s/0' % self.replicated[rows.shards[0]]
                    found.append(OwnedRows(name, 0, rows, group))
                continue
            numbers = range(len(rows.shards))
            if rank is not None:
                numbers = [part.shard for part in rows.table.parts_of(rank)]
            for shard in numbers:
                group = '%s/%d' % (rows.table.name, shard)
                found.append(OwnedRows(name, shard, rows.of_shard(shard), group))
        return found

    def is_by_row(self, owned):
        """Whether a shard is large, and of a table that may be updated by rows."""
        table = self.tables[owned.name].table
        return (table is None or table.by_row) and owned.rows.bytes >= SMALL_BYTES


def shared_rows(tables, replicated):
    """The `SharedRows` among all rows of a model.

    Args:
        tables: dict from paths in Keras's file to `Rows`; a slot that is not used has none at all.
        replicated: as `SharedRows` has it.
    """
    shared = {
        name: rows
        for name, rows in tables.items()
        if isinstance(rows, UnusedRows) or rows.table is not None or rows.shards[0] in replicated
    }
    return SharedRows(shared, replicated)


def replicated_tables(step):
    """What `SharedRows.replicated` is of a step's tables; they are moved in blocks from now on.

    Args:
        step: the `TrainStep`.
    """
    found = {}
    for variable, table in step.tables.items():
        if table.shards or not table.by_row:
            continue
        shape = variable.shape.as_list()
        slots = step.state.slots.get(variable, []) if step.state else []
        for weight in [variable] + [slot for slot in slots if slot.shape.as_list() == shape]:
            if np.prod(shape, dtype=np.int64) * weight.dtype.size >= SMALL_BYTES:
                keras_file_write.rows_of(weight, however_small=True)
                found[weight] = table.name
    return found
