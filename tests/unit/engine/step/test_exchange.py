# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sums of gradients by row, and how they go to shards and back."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step import exchange
from keras_parallax.engine.step.local_aggregation import HostWorkers
from keras_parallax.engine.tables.pull import split_by_shard
from keras_parallax.planning.placement import Shard


def exchanged(size=4, reduction=exchange.MEAN, host=None):
    none = hvd.Compression.none
    return exchange.Exchange(2, size, reduction, none, none, 'step', host)


def test_rows_are_summed_in_order_of_first_appearance_and_have_the_wider_type():
    with tf.Graph().as_default(), tf.Session() as session:
        pairs = [
            (tf.constant([4, 1, 4], tf.int32), tf.constant([[1.0], [2.0], [4.0]])),
            (tf.constant([7, 1], tf.int64), tf.constant([[8.0], [16.0]])),
        ]
        summed = exchange.sum_by_row(pairs)
        assert summed.rows.dtype == tf.int64
        rows, values = session.run(list(summed))
        np.testing.assert_array_equal(rows, [4, 1, 7])
        np.testing.assert_array_equal(values, [[5.0], [18.0], [8.0]])


def test_rows_that_are_known_to_be_different_are_not_searched_for_repeats():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        asked = tf.reshape(tf.unique(tf.constant([4, 1, 4]))[0], [-1])
        summed = exchange.sum_by_row([(asked, tf.constant([[1.0], [2.0]]))])
        assert [one.type for one in graph.get_operations()].count('Unique') == 1
        rows, values = session.run(list(summed))
        np.testing.assert_array_equal(rows, [4, 1])
        np.testing.assert_array_equal(values, [[1.0], [2.0]])


def test_the_rows_of_one_pull_stay_split_and_those_of_several_are_split_anew():
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.constant([3, 0])
        split = split_by_shard(ids, [Shard(0, 2), Shard(1, 2)])
        gradients = exchange.RowGradients(ids, tf.constant([[1.0], [2.0]]))
        assert exchange.merged([(gradients, split)]) == (gradients, split)
        both, split_of_both = exchange.merged([(gradients, split)] * 2)
        assert split_of_both is None
        np.testing.assert_array_equal(session.run(both.values), [[2.0], [4.0]])


@pytest.mark.parametrize(
    'size, reduction, expected',
    [(4, exchange.MEAN, 2.0), (4, exchange.SUM, 8.0), (1, exchange.MEAN, 8.0)],
)
def test_a_sum_over_ranks_is_divided_by_their_number_if_it_is_to_be_a_mean(
    size, reduction, expected
):
    with tf.Graph().as_default(), tf.Session() as session:
        summed = exchange.RowGradients(tf.constant([0]), tf.constant([[8.0]]))
        assert session.run(exchanged(size, reduction).reduced(summed).values) == [[expected]]


def test_each_rank_pushes_or_the_leaders_of_hosts_do():
    assert list(exchanged().pushers) == [0, 1, 2, 3]
    assert list(exchanged(host=HostWorkers([[0, 1], [2, 3]], 2, 'step')).pushers) == [0, 2]
