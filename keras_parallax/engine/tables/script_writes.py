# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Operations of the user's own that write to a table, carried out on its shards.

The word2vec habit (`K.update(table, l2_normalize(table))`), `tf.assign_add`, the assignments of a
`tf.train.Saver`: plain Keras runs them on the one variable that there is. Here every worker runs
the same script, so each of them runs the same operation on the same shards. Rows that these hold in
16 bits are computed with in 16 bits, and rounded to the nearest.
"""

from typing import Any, Iterable, List, NamedTuple, Optional, Sequence

from keras_parallax.compat import graph_queries, horovod_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.job.collectives import unmerged
from keras_parallax.engine.tables.table import STORAGE, Table, split_rows
from keras_parallax.framework_types import Operation, Tensor

ASSIGN, ADD, SUB = 'assign', 'add', 'sub'


#: The operations that write a whole value, by their type.
_WHOLE = {
    'Assign': ASSIGN,
    'AssignVariableOp': ASSIGN,
    'AssignAdd': ADD,
    'AssignAddVariableOp': ADD,
    'AssignSub': SUB,
    'AssignSubVariableOp': SUB,
}


_ASSIGNMENTS = {ASSIGN: tf.assign, ADD: tf.assign_add, SUB: tf.assign_sub}


_SCATTERS = {
    'Update': tf.scatter_update,
    'Add': tf.scatter_add,
    'Sub': tf.scatter_sub,
    'Mul': tf.scatter_mul,
    'Div': tf.scatter_div,
    'Min': tf.scatter_min,
    'Max': tf.scatter_max,
}


#: The operations that write rows, by their type; a kind is the name of the scatter.
_ROWS = {prefix + 'Scatter' + kind: kind for kind in _SCATTERS for prefix in ('', 'Resource')}


#: The operations that a shard is, a reference or, with TensorFlow 2, a resource.
_VARIABLES = ('VariableV2', 'VarHandleOp')


#: Kinds of writes after which a table's values are those that were given.
_ABSOLUTE = (ASSIGN, 'Update')


class Write(NamedTuple):
    """A write to a table.

    Attributes:
        kind: `ASSIGN`, `ADD`, `SUB`, or the name of a scatter.
        operands: the value, or the numbers of rows and what is written there.
        name: its name, the same on every worker.
        after: operations that come before it.
    """

    kind: str
    operands: List[Any]
    name: str
    after: Sequence[tf.Operation]


def kind_of(operation: Operation) -> Optional[str]:
    """The kind of the write that an operation is, or `None` if it is none that is known."""
    return _WHOLE.get(operation.type) or _ROWS.get(operation.type)


def build(table: Table, write: Write) -> List[Operation]:
    """Builds a `Write` to a table: a list of operations.

    What gives a table values that do not depend on a table, as loading does, any worker may run,
    and several may. All else is a collective call: all workers compute the value, and when all
    have, each writes to the shards that it owns. So what the script of every worker does is done
    once, as by the one process of plain Keras, whichever worker is first.
    """
    *rows, values = write.operands
    with tf.name_scope(None), tf.name_scope('parallax/%s/write/' % table.name):
        if not table.is_sharded:
            # Every worker holds the table, and runs the same script.
            with tf.control_dependencies(write.after):
                make = _ASSIGNMENTS.get(write.kind) or _SCATTERS[write.kind]
                return [make(table.variable, *rows, values).op]
        if table.size == 1 or (write.kind in _ABSOLUTE and not _reads_shards(write.operands)):
            return _to_shards(table, write, write.after, range(len(table.shards)))
        before = [*write.after, *rows, values]
        begun = _wait_for_all(write.name + '.begin', before, table.rank)
        own = [part.shard for part in table.parts_of(table.rank)]
        # A worker may own no shard.
        written = [begun] + _to_shards(table, write, [begun], own)
        return [_wait_for_all(write.name + '.end', written, table.rank)]


def _reads_shards(operands: Iterable[Tensor]) -> bool:
    return any(
        operation.type in _VARIABLES and operation.name.startswith(STORAGE)
        for operation in graph_queries.ancestors(operands)
    )


def _wait_for_all(name: str, after: Iterable[Any], rank: int) -> Operation:
    """An operation that is done when on every worker some operations are."""
    with tf.device(devices.shard_device(rank)):
        # TensorFlow 1.11 folds the sum of a constant, and drops one that nothing with a side effect
        # reads (`tests/parallel/test_barrier.py`). This number is 0.
        zero = tf.random_uniform([], maxval=1, dtype=tf.int32)
        with tf.control_dependencies(after):
            total = unmerged(horovod_api.allreduce(zero, name='parallax.' + name))
        return tf.Assert(tf.equal(total, 0), ['keras-parallax: a sum of zeros', total])


def _to_shards(
    table: Table, write: Write, after: Iterable[Operation], numbers: Iterable[int]
) -> List[Operation]:
    """Writes to the shards of some numbers; returns a list of operations."""
    writes = []
    with tf.control_dependencies(after):
        if write.kind in _ASSIGNMENTS:
            # Copies, so that no shard is read where another has been written.
            of_shards = [
                tf.identity(tf.cast(rows, table.stored_dtype))
                for rows in split_rows(write.operands[0], table)
            ]
            with tf.control_dependencies(of_shards):
                for number in numbers:
                    with tf.device(table.shards[number].device):
                        assign = _ASSIGNMENTS[write.kind]
                        writes.append(assign(table.shards[number], of_shards[number]).op)
        else:
            writes = [_scatter(table, number, write.kind, *write.operands) for number in numbers]
    return writes


def _scatter(table: Table, number: int, kind: str, rows: Tensor, values: Tensor) -> Operation:
    """Writes those of some rows that lie in a shard."""
    count, scalar = len(table.shards), values.shape.ndims == 0
    rows, values = tf.reshape(rows, [-1]), tf.cast(values, table.stored_dtype)
    if not scalar:
        values = tf.reshape(values, [-1] + table.row_shape)
    if count > 1:
        here = tf.equal(tf.floormod(rows, count), number)
        rows = tf.floordiv(tf.boolean_mask(rows, here), count)
        values = values if scalar else tf.boolean_mask(values, here)
    with tf.device(table.shards[number].device):
        return _SCATTERS[kind](table.shards[number], rows, values).op
