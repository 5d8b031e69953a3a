# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rows that move between shards and arrays or files, block by block."""

import h5py
import numpy as np
import pytest
from frameworks import tf
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.engine.tables import row_transfer as rows_module
from keras_parallax.engine.tables.touched_rows import TouchedRows

sizes = st.integers(0, 200)
counts = st.integers(1, 9)


@given(sizes, st.integers(1, 1000), st.integers(1, 10000))
def test_blocks_cover_every_row_once_and_none_is_too_large(rows, row_bytes, block_bytes):
    found = rows_module.row_blocks(rows, row_bytes, block_bytes)
    covered = [row for first, last in found for row in range(first, last)]
    assert covered == list(range(rows))
    for first, last in found:
        assert last - first == 1 or (last - first) * row_bytes * 8 <= block_bytes


@given(sizes, sizes, counts)
def test_local_ranges_name_the_rows_of_each_shard(first, length, shards):
    for shard in range(shards):
        mine = [row // shards for row in range(first, first + length) if row % shards == shard]
        begin, end = rows_module.local_range(first, first + length, shards, shard)
        assert list(range(begin, end)) == mine


def make_rows(count, values, stored=None):
    """`ShardedRows` of some variables, and a session that has initialized them."""
    shards = [tf.Variable(np.zeros_like(values[number::count], stored)) for number in range(count)]
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    dtype = tf.as_dtype(values.dtype)
    return rows_module.ShardedRows('table:0', shards, values.shape, dtype=dtype), session


@pytest.mark.parametrize('by_resource', [False, True])
def test_a_block_is_read_without_the_rest_of_its_shard(by_resource):
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        shard = tf.Variable(values, use_resource=by_resource)
        session.run(tf.global_variables_initializer())
        rows = rows_module.ShardedRows('table:0', [shard], values.shape)
        before = set(graph.get_operations())
        rows.make_reader()
        made = {operation.type for operation in set(graph.get_operations()) - before}
        # Which copies the whole, once rows of it were written alone.
        assert 'ReadVariableOp' not in made
        np.testing.assert_array_equal(rows.read(session, 3, 7), values[3:7])


@pytest.mark.parametrize('count', [1, 2, 3, 11])
def test_rows_come_back_as_they_were_written_whatever_the_blocks(count, tmpdir):
    values = np.random.RandomState(0).uniform(size=(23, 2, 3)).astype(np.float32)
    with tf.Graph().as_default():
        rows, session = make_rows(count, values)
        assert (rows.bytes, rows.row_bytes) == (values.nbytes, 24)
        for block_bytes in (1, 500, 10**6):
            rows.fill(np.zeros_like(values), session)
            moved = []
            rows.fill(values, session, block_bytes, moved.append)
            assert sum(moved) == values.nbytes
            np.testing.assert_array_equal(rows.read_all(session, block_bytes), values)
        shards = session.run(rows.shards)
        for number, shard in enumerate(shards):
            np.testing.assert_array_equal(shard, values[number::count])
        with h5py.File(str(tmpdir.join('rows.h5')), 'w') as file:
            dataset = file.create_dataset('rows', values.shape, values.dtype)
            rows.copy_to(dataset, session, 200)
            np.testing.assert_array_equal(dataset[:], values)
            dataset[5] = 7
            rows.fill(dataset, session, 200)
        values[5] = 7
        np.testing.assert_array_equal(rows.read(session, 4, 9), values[4:9])


@pytest.mark.parametrize('count', [1, 3])
def test_rows_that_shards_hold_in_16_bits_are_read_and_written_in_32(count):
    values = np.random.RandomState(0).uniform(size=(23, 2)).astype(np.float32)
    held = values.astype(np.float16).astype(np.float32)
    with tf.Graph().as_default():
        rows, session = make_rows(count, values, np.float16)
        rows.fill(values, session, 100)
        assert [shard.dtype.base_dtype for shard in rows.shards] == [tf.float16] * count
        assert rows.bytes == values.nbytes and not np.array_equal(held, values)
        of_shard = rows.of_shard(count - 1)
        for part, expected in (
            (rows, held),
            (of_shard, held[count - 1 :: count]),
            (TouchedRows(of_shard, np.array([0, 3])), held[count - 1 :: count][[0, 3]]),
        ):
            found = part.read_all(session)
            assert (found.dtype, part.dtype) == (np.float32, tf.float32)
            np.testing.assert_array_equal(found, expected)
        # As they move to shards that hold them otherwise.
        other, _ = make_rows(2, values)
        rows_module.make_for_moves([(rows, other)])
        session.run([shard.initializer for shard in other.shards])
        rows_module.move([(rows, other)], session)
        np.testing.assert_array_equal(other.read_all(session), held)


def test_processes_that_share_the_work_write_every_row_together():
    values = np.random.RandomState(0).uniform(size=(23, 2)).astype(np.float32)
    with tf.Graph().as_default():
        rows, session = make_rows(3, values)
        rows.fill(values, session, 100, share=(0, 2))
        assert not np.array_equal(rows.read_all(session), values)
        rows.fill(values, session, 100, share=(1, 2))
        np.testing.assert_array_equal(rows.read_all(session), values)


def test_a_value_of_another_shape_is_refused_and_nothing_is_written():
    values = np.ones((6, 2), np.float32)
    with tf.Graph().as_default():
        rows, session = make_rows(2, values)
        with pytest.raises(ValueError, match=r'table:0 has shape \(6, 2\), .* \(7, 2\)'):
            rows.fill(np.ones((7, 2)), session)
        assert not rows.read_all(session).any()


@pytest.mark.parametrize('count', [1, 3])
def test_rows_with_a_reader_and_a_writer_move_in_a_graph_that_takes_no_more_operations(count):
    values = np.random.RandomState(0).uniform(size=(23, 2)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        rows, session = make_rows(count, values)
        rows.make_reader()
        rows.make_writer()
        graph.finalize()
        rows.fill(values, session)
        np.testing.assert_array_equal(rows.read_all(session), values)
