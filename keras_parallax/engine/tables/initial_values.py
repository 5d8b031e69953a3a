# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gives the new shards of tables their start values, block of rows by block of rows."""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

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
    """

    operations: List[tf.Operation]
    first: Any
    blocks: List[int]
    block_bytes: int
    release: Any


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


def fill_plan(table: Table, source: ValueSource, rank: int) -> FillPlan:
    """The `FillPlan` of a table, while its variable is its own.

    Nothing reads the table's new shards yet.
    """
    row_bytes = max(1, table.plan.bytes // max(1, table.rows))
    at_once = max(
        1, (initializer_graphs.BLOCK_BYTES if source.initializer else COPY_BYTES) // row_bytes
    )
    if at_once >= table.rows or (source.initializer and not source.initializer.in_blocks):
        at_once = table.rows
    with tf.name_scope(None), tf.name_scope('parallax/%s/start/' % table.name):
        # Most tables are one block, for which half of the operations will do.
        first = 0 if at_once == table.rows else tf.placeholder(tf.int32, [], 'first')
        if source.initializer:
            writes = _make(table, source.initializer, rank, first, at_once)
        else:
            writes = _copy(table, first, at_once) if rank == 0 else []
        # What rank 0 copies it holds by then.
        held = source.held or (rank == 0 and not source.initializer)
        release = tensorflow_api.memory_release(table.variable) if held else None
    blocks = list(range(0, table.rows, at_once)) if writes else []
    return FillPlan(writes, first, blocks, at_once * row_bytes, release)


def _make(
    table: Table,
    initializer: initializer_graphs.InitializerGraph,
    rank: int,
    first: Any,
    at_once: int,
) -> List[Operation]:
    """Operations that make a block on each server and write its rows to shards there."""
    made, writes = {}, []
    for _, shard, number in table.parts_of(rank):
        with tf.device(shard.device):
            if shard.device not in made:
                is_whole = at_once == table.rows
                rows = at_once if is_whole else tf.minimum(at_once, table.rows - first)
                shape = [rows] + table.row_shape if table.plan.shape else []
                made[shard.device] = initializer_graphs.make(
                    initializer, tf.convert_to_tensor(shape, tf.int32)
                )
            rows = _rows_of(table, number, first, made[shard.device])
            writes.append(_write(table, number, first, rows))
    return writes


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
