"""How the rows of a batch are shared out between the shards."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.tables.pull import Pull, merged_split, split_by_shard
from keras_parallax.planning.placement import Shard, rows_of_shard


@pytest.mark.parametrize('exponent', [1.1, 1.4])
@pytest.mark.parametrize('count', [3, 8])
def test_the_rows_of_a_batch_of_words_spread_evenly_over_the_shards(count, exponent):
    rows, random = 200000, np.random.RandomState(0)
    words = random.zipf(exponent, 40000)
    ids = np.unique(words[words <= rows] - 1)
    shards = [Shard(number, rows_of_shard(rows, count, number)) for number in range(count)]
    with tf.Graph().as_default(), tf.Session() as session:
        split = session.run(split_by_shard(tf.constant(ids), shards))
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
    shards = [Shard(number, 5) for number in range(2)]
    with tf.Graph().as_default(), tf.Session() as session:
        pulls = [Pull(split_by_shard(tf.constant(ids), shards), None, [], [], []) for ids in asked]
        split, places = session.run(merged_split(pulls, shards))
    assert sorted(split.ids) == [0, 2, 5, 9]
    for ids, own in zip(asked, places):
        np.testing.assert_array_equal(split.ids[own], ids)
