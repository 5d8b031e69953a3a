# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How the rows of a batch are shared out between the shards."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.engine.tables.pull import (
    ID_MARK,
    Pull,
    check_of_ids,
    merged_split,
    redirect_lookups,
    split_by_shard,
)
from keras_parallax.planning.placement import Shard, rows_of_shard


@pytest.mark.parametrize('exponent', [1.1, 1.4])
@pytest.mark.parametrize('count', [3, 8])
def test_the_rows_of_a_batch_of_words_spread_evenly_over_the_shards(count, exponent):
    rows, random = 200000, np.random.RandomState(0)
    words = random.zipf(exponent, 40000)
    ids = np.unique(words[words <= rows] - 1)
    planned = [Shard(number, rows_of_shard(rows, count, number)) for number in range(count)]
    with tf.Graph().as_default(), tf.Session() as session:
        split = session.run(split_by_shard(tf.constant(ids), planned))
    shares = np.array([len(part) for part in split.rows]) / len(ids)
    # Twice as much on one server as on another would be noticed.
    np.testing.assert_allclose(shares, 1 / count, rtol=0.1)
    # Blocks of neighbouring rows would not do: the frequent words are all in the first.
    blocks = np.bincount(ids * count // rows, minlength=count) / len(ids)
    assert blocks.max() > 1.5 / count
    for number, (part, positions) in enumerate(zip(split.rows, split.positions)):
        np.testing.assert_array_equal(part.astype(int) * count + number, ids[positions])


def test_what_several_pulls_ask_for_is_asked_once_and_each_finds_its_own():
    asked = [np.array([5, 2, 9], np.int32), np.array([], np.int32), np.array([9, 0, 5], np.int64)]
    planned = [Shard(number, 5) for number in range(2)]
    with tf.Graph().as_default(), tf.Session() as session:
        pulls = [Pull(split_by_shard(tf.constant(ids), planned), None, [], [], []) for ids in asked]
        split, places = session.run(merged_split(pulls, planned))
    assert sorted(split.ids) == [0, 2, 5, 9]
    for ids, own in zip(asked, places):
        np.testing.assert_array_equal(split.ids[own], ids)


@pytest.mark.parametrize('dtype', [np.int32, np.int64])
def test_an_id_without_a_row_ends_the_step_with_the_name_of_its_table(dtype):
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(dtype, [None])
        check = check_of_ids(ids, 5, 'a_table')
        for fine in ([], [0, 4, 4]):
            session.run(check, {ids: fine})
        for bad in ([0, 5, 3], [-1], [2, 2**31 - 1]):
            with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                session.run(check, {ids: bad})
            outside = str([one for one in bad if not 0 <= one < 5])
            assert all(part in str(raised.value) for part in (ID_MARK, 'a_table', outside))


@pytest.mark.parametrize(
    'chosen, expected',
    [
        ('', '/job:worker/task:1'),
        ('/job:worker/task:1', '/job:worker/task:1'),
        ('/job:worker/task:1/device:CPU:0', '/job:worker/task:1/device:CPU:0'),
    ],
)
def test_rows_are_repeated_where_the_script_looks_them_up_or_where_tensorflow_wants(
    chosen, expected
):
    with tf.Graph().as_default():
        table = shards.table_of(np.ones((7, 2)), by_resource=shards.KINDS[-1])
        ids = tf.placeholder(tf.int32, [None])
        with tf.device(chosen):
            lookup = tf.gather(table.variable, ids).op
        lookup = lookup.inputs[0].op if lookup.type == 'Identity' else lookup
        if lookup.type != 'ResourceGather':
            pytest.skip('a gather of a reference stays where it is')
        redirect_lookups(table, [lookup], set(), 1)
        (output,) = table.pulls[-1].outputs
        assert output.op.device == expected
