# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Marks of rows that were written, and rows that are read as if they followed each other."""

import contextlib

import numpy as np
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.tables.row_transfer import ShardedRows
from keras_parallax.engine.tables.touched_rows import RowMarks, TouchedRows


def test_rows_are_marked_when_they_are_written_and_until_marks_are_made_anew():
    with tf.Graph().as_default(), tf.Session() as session:
        shard = tf.Variable(tf.zeros([9, 2]))
        marks = RowMarks('marks', '/device:CPU:0', 9)
        rows = tf.placeholder(tf.int64, [None])
        write = tf.scatter_update(shard, rows, tf.ones([tf.size(rows), 2])).op
        mark = marks.mark_after([write], rows)
        assert write in graph_queries.ancestors([mark])
        session.run([shard.initializer, marks.initializer])
        assert marks.touched(session).tolist() == []
        session.run(mark, {rows: [7, 2, 7]})
        session.run(mark, {rows: [3]})
        assert marks.touched(session).tolist() == [2, 3, 7]
        assert np.flatnonzero(session.run(shard)[:, 0]).tolist() == [2, 3, 7]
        session.run(marks.initializer)
        assert marks.touched(session).tolist() == []


def test_marks_that_are_released_take_no_memory():
    with tf.Graph().as_default(), tf.Session() as session:
        marks = RowMarks('marks', '/device:CPU:0', 9)
        release, held = marks.release(), marks._variable.value()
        session.run(marks.initializer)
        session.run(release)
        with contextlib.suppress(tf.errors.OpError):  # Of a resource there is nothing to read.
            assert session.run(held).size == 0


def test_touched_rows_are_read_in_the_order_of_their_numbers_and_as_many_as_are_asked_for():
    values = np.random.RandomState(0).uniform(size=(9, 2)).astype(np.float32)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        shard = tf.Variable(values)
        session.run(shard.initializer)
        of_shard = ShardedRows('table:0', [shard], [9, 2])
        rows = TouchedRows(of_shard, np.array([8, 0, 5]))
        assert rows.shape.as_list() == [3, 2] and rows.bytes == 3 * 8
        np.testing.assert_array_equal(rows.read(session, 1, 3), values[[0, 5]])
        # Another save reads other rows by the same operations.
        version = graph.version
        others = TouchedRows(of_shard, np.array([1, 2, 3, 4]))
        np.testing.assert_array_equal(others.read_all(session), values[1:5])
        assert graph.version == version
