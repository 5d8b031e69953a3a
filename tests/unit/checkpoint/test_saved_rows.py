# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rows of a base with deltas over it: any block of them, from any number of shards."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_parallax.checkpoint import saved_rows


@st.composite
def chains(draw):
    """The number of rows and of shards; for each delta the rows of each shard, `None` for all."""
    rows, count = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    of_shards = [len(range(shard, rows, count)) for shard in range(count)]
    ids = [
        st.none() | st.sets(st.integers(0, size - 1)).map(sorted) if size else st.none()
        for size in of_shards
    ]
    return rows, count, draw(st.lists(st.tuples(*ids), max_size=4))


@settings(max_examples=30)
@given(chains())
def test_every_block_has_the_newest_value_of_each_row(chain):
    rows, count, deltas = chain
    table = np.arange(rows * 2.0).reshape(rows, 2)
    files = {'base': {str(shard): table[shard::count].copy() for shard in range(count)}}
    changed = []
    for number, of_shards in enumerate(deltas):
        name = str(number)
        files[name], of_delta = {}, []
        for shard, ids in enumerate(of_shards):
            here = table[shard::count]
            written = np.arange(len(here)) if ids is None else np.array(ids, int)
            here[written] += 100 ** (number + 1)
            files[name]['rows %d' % shard] = here[written]
            files[name]['ids %d' % shard] = written
            dataset = saved_rows.PartDataset(files, name, 'rows %d' % shard)
            numbers = saved_rows.PartDataset(files, name, 'ids %d' % shard)
            numbers = None if ids is None else numbers
            of_delta.append(saved_rows.ChangedShard(shard, dataset, numbers))
        changed.append(of_delta)
    base = [saved_rows.PartDataset(files, 'base', str(shard)) for shard in range(count)]
    saved = saved_rows.SavedRows([rows, 2], np.float64, base, changed)
    for first in range(rows):
        for last in range(first, rows + 1):
            np.testing.assert_array_equal(saved[first:last], table[first:last])


def test_a_slot_that_is_not_used_is_zeros():
    saved = saved_rows.SavedRows([5, 2], np.float32, [])
    assert saved[1:3].tolist() == [[0, 0], [0, 0]]


def test_no_more_files_are_open_than_a_process_may_have(tmpdir):
    for name in 'abc':
        tmpdir.join(name).write(name)
    with saved_rows.PartFiles(str(tmpdir), open, limit=2) as files:
        first = files['a']
        opened = [files[name] for name in 'bac']
        assert opened[1] is first
        assert [file.closed for file in opened] == [True, False, False]
        assert files['b'].read() == 'b'
        assert first.closed
    assert all(file.closed for file in opened)
