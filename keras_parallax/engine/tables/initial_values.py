# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gives the new shards of tables their start values, block of rows by block of rows."""

from typing import (
    AbstractSet,
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.collectives import Gather
from keras_parallax.engine.tables import initializer_graphs
from keras_parallax.engine.tables.scope_interface import TablesScope
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Operation, Session, Tensor, Variable

#: Rows that exist already are copied to the shards in blocks of about this many bytes.
COPY_BYTES = 32 * 2**20


class ValueSource(NamedTuple):
    """Where the start values of a variable come from.

    Attributes:
        held: whether this process holds values of the variable: somebody has set or used it.
        initializer: the `InitializerGraph` by which owners of shards make them, or `None` if those
            that rank 0 holds are copied.
    """

    held: bool
    initializer: Optional[initializer_graphs.InitializerGraph]


class FillPlan(NamedTuple):
    """What this process does for the start values of a table's shards.

    Attributes:
        operations: they write a block of rows; none, if this process writes no rows.
        first: the placeholder for the number of the block's first row; 0 if there is but one block.
        blocks: the numbers of first rows, in the order in which they must be written.
        block_bytes: size of a block.
        release: an operation that frees what this process held of the table, or `None`.
        own: the operations that use the storage of the table's variable itself.
    """

    operations: List[tf.Operation]
    first: Any
    blocks: List[int]
    block_bytes: int
    release: Any
    own: AbstractSet[Operation] = frozenset()


class _Blocks(NamedTuple):
    """The blocks of rows in which a table is filled.

    Attributes:
        first: as `FillPlan` has it.
        at_once: rows of a block; the table's, if there is but one.
        bytes: size of a block.
    """

    first: Any
    at_once: int
    bytes: int


#: The start values of tables, on each server that makes some.
_Made = Dict[Tuple[Table, str], Tensor]


def value_sources(
    held: Mapping[Variable, bool], rank: int, gather: Gather
) -> Dict[Variable, ValueSource]:
    """Decides where the start values of variables come from. A collective call.

    Given is whether this process holds values of each that is to be sharded, the same ones on every
    worker; returned is the `ValueSource` of each.
    """
    initializers = None
    if rank == 0:
        # What rank 0 holds counts: its script may have set or loaded it.
        initializers = [
            None if held[variable] else initializer_graphs.initializer_graph_of(variable)
            for variable in held
        ]
    return {
        variable: ValueSource(
            bool(held[variable]), fields and initializer_graphs.InitializerGraph(*fields)
        )
        for variable, fields in zip(held, gather(initializers)[0])
    }


def initialize_copied(
    sources: Mapping[Variable, ValueSource], scope: Optional[TablesScope], rank: int
) -> None:
    """Has rank 0 make the values that it copies, as far as it does not hold them."""
    copied = [
        variable for variable, source in sources.items() if not (source.held or source.initializer)
    ]
    if copied and rank == 0:
        # Without a scope, there is nothing to copy.
        session = cast(TablesScope, scope).session
        session.run([variable.initializer for variable in copied])


def fill_plans(sources: Mapping[Table, ValueSource], rank: int) -> Dict[Table, FillPlan]:
    """The `FillPlan`s of tables that have shards, while their variables are their own.

    Nothing reads the tables' new shards yet.
    """
    with tf.name_scope(None), tf.name_scope('parallax/start/'):
        blocks = {table: _blocks_of(table, source) for table, source in sources.items()}
        made = _make(sources, blocks, rank)
        return {
            table: _fill_plan(table, source, rank, blocks[table], made)
            for table, source in sources.items()
        }


def _blocks_of(table: Table, source: ValueSource) -> _Blocks:
    row_bytes = max(1, table.plan.bytes // max(1, table.rows))
    at_once = max(
        1, (initializer_graphs.BLOCK_BYTES if source.initializer else COPY_BYTES) // row_bytes
    )
    if at_once >= table.rows or (source.initializer and not source.initializer.in_blocks):
        at_once = table.rows
    # Most tables are one block, for which half of the operations will do.
    first = 0 if at_once == table.rows else tf.placeholder(tf.int32, [], 'first')
    return _Blocks(first, at_once, at_once * row_bytes)


def _fill_plan(
    table: Table, source: ValueSource, rank: int, blocks: _Blocks, made: _Made
) -> FillPlan:
    storage = tensorflow_api.storage(table.variable)
    users = set(tensorflow_api.consumers(storage))
    first, at_once, writes = blocks.first, blocks.at_once, []
    if source.initializer:
        for _, shard, number in table.parts_of(rank):
            with tf.device(shard.device):
                rows = _rows_of(table, number, first, made[table, shard.device])
                writes.append(_write(table, number, first, rows))
    elif rank == 0:
        writes = _copy(table, first, at_once)
    # What rank 0 copies it holds by then.
    held = source.held or (rank == 0 and not source.initializer)
    release = tensorflow_api.memory_release(table.variable) if held else None
    starts = list(range(0, table.rows, at_once)) if writes else []
    own = set(tensorflow_api.consumers(storage)) - users
    return FillPlan(writes, first, starts, blocks.bytes, release, own)


def _make(
    sources: Mapping[Table, ValueSource], blocks: Mapping[Table, _Blocks], rank: int
) -> _Made:
    """Builds what makes a block of each table on the servers that have shards of this process."""
    wanted: Dict[str, Dict[Table, Tuple[initializer_graphs.InitializerGraph, Any]]] = {}
    for table, source in sources.items():
        if source.initializer:
            for _, shard, _ in table.parts_of(rank):
                of_device = wanted.setdefault(shard.device, {})
                if table not in of_device:
                    shape = _shape_of(table, blocks[table], shard.device)
                    of_device[table] = source.initializer, shape
    made = {}
    for device, of_device in wanted.items():
        with tf.device(device):
            values = initializer_graphs.make_all(list(of_device.values()))
        made.update({(table, device): value for table, value in zip(of_device, values)})
    return made


def _shape_of(table: Table, blocks: _Blocks, device: str) -> Any:
    """The shape of a block, a list or, where blocks differ, a tensor."""
    if not table.plan.shape:
        return []
    if blocks.at_once == table.rows:
        return [table.rows] + table.row_shape
    with tf.device(device):
        rows = tf.minimum(blocks.at_once, table.rows - blocks.first)
        return tf.convert_to_tensor([rows] + table.row_shape, tf.int32)


def _copy(table: Table, first: Any, at_once: int) -> List[Operation]:
    """Operations that copy a block of what this process holds to all shards."""
    # A read of its own: the reads that the model has are about to be redirected.
    block, writes = table.variable.read_value(), []
    if at_once < table.rows:
        block = block[first : first + at_once]
    for number, shard in enumerate(table.shards):
        rows = _rows_of(table, number, first, block)
        with tf.device(shard.device):
            writes.append(_write(table, number, first, rows))
    return writes


def _rows_of(table: Table, number: int, first: Any, block: Tensor) -> Tensor:
    """The rows of a shard among those of a block, as it holds them."""
    count = len(table.shards)
    rows = block if count == 1 else block[(number - first) % count :: count]
    return tf.cast(rows, table.stored_dtype)


def _write(table: Table, number: int, first: Any, rows: Tensor) -> Operation:
    shard, count = table.shards[number], len(table.shards)
    if isinstance(first, int):
        return tf.assign(shard, rows).op
    begin = (first + (number - first) % count) // count
    return tf.scatter_update(shard, begin + tf.range(tf.shape(rows)[0]), rows).op


def rounds(fills: Iterable[FillPlan], limit: int) -> List[List[Tuple[FillPlan, int]]]:
    """Packs the blocks of several tables into runs of a session.

    With servers each run costs a while, whatever it runs, so small tables share one: as many as
    have `limit` bytes together. Returns a list of runs, each a list of pairs `(fill, first)` of
    different fills.

    Example:
        ```python
        >>> fills = [FillPlan(name, None, [0, 5], 8, None) for name in 'ab']
        >>> [[(fill.operations, first) for fill, first in run] for run in rounds(fills, 16)]
        [[('a', 0)], [('a', 5), ('b', 0)], [('b', 5)]]
        ```
    """
    runs: List[List[Tuple[FillPlan, int]]] = []
    size = 0
    for fill in fills:
        for first in fill.blocks:
            is_of_other = runs and runs[-1][-1][0] is not fill
            if not is_of_other or size + fill.block_bytes > limit:
                runs.append([])
                size = 0
            runs[-1].append((fill, first))
            size += fill.block_bytes
    return runs


def run(fills: Sequence[FillPlan], session: Session) -> None:
    """Writes the start values of initialized shards, and then frees what this process held."""
    for blocks in rounds(fills, initializer_graphs.BLOCK_BYTES):
        session.run(
            [fill.operations for fill, _ in blocks],
            {fill.first: first for fill, first in blocks if len(fill.blocks) > 1},
        )
    session.run([fill.release for fill in fills if fill.release is not None])
