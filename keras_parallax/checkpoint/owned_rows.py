# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which rows of tables and slots go to which worker's part of a checkpoint."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.row_transfer import ShardedRows
from keras_parallax.engine.updates.keras_slots import UnusedRows
from keras_parallax.framework_types import Variable

#: A smaller shard is saved whole: to mark its rows in each step would cost more than it spares.
SMALL_BYTES = 256 * 2**10


class OwnedRows(NamedTuple):
    """One shard of a table or of a slot that a worker saves.

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
    def key(self) -> Tuple[str, int]:
        """Tells it from any other, on all workers."""
        return self.name, self.shard


class SharedRows(NamedTuple):
    """What of a model's rows workers save to parts of their own.

    Attributes:
        tables: dict from paths in Keras's file to `Rows`.
        replicated: dict from some of these paths to the names of the tables that they belong to:
            those that are updated by rows, though every worker holds all of them. Rank 0 saves
            them.
    """

    tables: Any
    replicated: Dict[str, str]

    def shards(self, rank: Optional[int] = None) -> List[OwnedRows]:
        """A list of the `OwnedRows` of a worker, or of all workers if none is given; all rows."""
        found = []
        for name, rows in self.tables.items():
            if isinstance(rows, UnusedRows):
                continue
            if rows.table is None:
                if rank in (0, None):
                    group = '%s/0' % self.replicated[name]
                    found.append(OwnedRows(name, 0, rows, group))
                continue
            numbers: Sequence[int] = range(len(rows.shards))
            if rank is not None:
                numbers = [part.shard for part in rows.table.parts_of(rank)]
            for shard in numbers:
                group = '%s/%d' % (rows.table.name, shard)
                found.append(OwnedRows(name, shard, rows.of_shard(shard), group))
        return found

    def is_by_row(self, owned: OwnedRows) -> bool:
        """Whether a shard is large, and of a table that may be updated by rows."""
        table = self.tables[owned.name].table
        return (table is None or table.by_row) and owned.rows.bytes >= SMALL_BYTES


def shared_rows(tables: Mapping[str, Any], replicated: Mapping[Variable, str]) -> SharedRows:
    """The `SharedRows` among all rows of a model.

    Args:
        tables: dict from paths in Keras's file to `Rows`; a slot that is not used has none at all.
        replicated: what `replicated_tables` has found.
    """
    shared, of_rank_0 = {}, {}
    for name, rows in tables.items():
        if isinstance(rows, UnusedRows) or rows.table is not None:
            shared[name] = rows
        elif rows.shards[0] in replicated:
            shared[name], of_rank_0[name] = rows, replicated[rows.shards[0]]
    return SharedRows(shared, of_rank_0)


def replicated_tables(step: TrainStep) -> Dict[Variable, str]:
    """The tables of a step, and their slots, that every worker holds and that are updated by rows.

    They are moved in blocks from now on.

    Args:
        step: the `TrainStep`.

    Returns:
        A dict from variables to the names of the tables that they belong to.
    """
    found = {}
    for variable, table in step.tables.items():
        if table.shards or not table.by_row:
            continue
        shape = variable.shape.as_list()
        slots = step.operations.state.slots.get(variable, []) if step.operations.state else []
        for weight in [variable] + [slot for slot in slots if slot.shape.as_list() == shape]:
            if np.prod(shape, dtype=np.int64) * weight.dtype.size >= SMALL_BYTES:
                keras_file_write.rows_of(weight, however_small=True)
                found[weight] = table.name
    return found
