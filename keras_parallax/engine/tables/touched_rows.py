# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rows of a shard that were written since they were looked at last, and a mark for each of them."""

from typing import Iterable

import numpy as np

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.row_transfer import Rows, ShardedRows
from keras_parallax.engine.tables.table import as_indices, make_storage
from keras_parallax.framework_types import Array, Operation, Session, Tensor

#: Reading the marks of a shard takes no more memory than this at a time, in bytes.
_BLOCK_BYTES = 16 * 2**20


class RowMarks:
    """A mark for each row of a shard, beside the shard, which is set when the row is written.

    The slots of a table have its rows' marks.

    Args:
        name: names the marks, the same on every worker, and as no others.
        device: where the shard is.
        rows: number of rows.

    Attributes:
        initializer: the operation that makes the marks, and takes all of them away.
    """

    def __init__(self, name: str, device: str, rows: int) -> None:
        variable = make_storage(name, device, [rows], tf.bool)
        self._marks = ShardedRows(variable.name, [variable], [rows])
        self._variable, self._device = variable, device
        self.initializer = variable.initializer

    def mark_after(self, writes: Iterable[Operation], rows: Tensor) -> Operation:
        """Builds the operation that marks rows `[n]` when operations have written them.

        A mark that comes first would be gone, if a save came between the two, and the write not
        saved.
        """
        with tf.control_dependencies(writes), tf.device(self._device):
            marked = tf.scatter_update(self._variable, rows, tf.constant(True))
        return getattr(marked, 'op', marked)

    def touched(self, session: Session) -> Array:
        """The numbers of the rows that have a mark, an array `[n]`, in order."""
        marks = self._marks.read_all(session, _BLOCK_BYTES)
        return np.flatnonzero(marks)

    def release(self) -> Operation:
        """An operation that frees the memory of the marks."""
        return tensorflow_api.memory_release(self._variable)


class TouchedRows(Rows):
    """Some rows of a shard, as if they followed each other.

    Args:
        rows: the `ShardedRows` of the shard alone.
        ids: the numbers of the rows, an array `[n]`.
    """

    def __init__(self, rows: ShardedRows, ids: Array) -> None:
        super().__init__(rows.name, [len(ids)] + rows.shape.as_list()[1:], rows.dtype)
        self._of_shard, self._ids = rows, ids

    def make_reader(self) -> None:
        """As `Rows.make_reader`."""
        # The same for every save.
        if not hasattr(self._of_shard, 'gathering'):
            shard = self._of_shard.shards[0]
            with shard.graph.as_default(), tf.control_dependencies(None), tf.name_scope(None):
                with tf.name_scope('parallax/touched/'), tf.device(shard.device):
                    ids = tf.placeholder(tf.int64, [None])
                    self._of_shard.gathering = ids, tf.gather(shard, as_indices(ids))

    def read(self, session: Session, first: int, last: int) -> Array:
        """As `Rows.read`."""
        self.make_reader()
        ids, rows = self._of_shard.gathering
        values = session.run(rows, {ids: self._ids[first:last]})
        return np.asarray(values, self.dtype.as_numpy_dtype)
