# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The rows of a table and of its shards, and what flows back to them."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.tables import table as table_module
from keras_parallax.engine.tables.exchanged import OwnedShard
from keras_parallax.engine.tables.pull import pull
from keras_parallax.engine.tables.table import Table
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import PlannedVariable

SERVERS = Servers(devices=('/device:CPU:0',) * 2, owners=(0, 1))


def made(shape, servers):
    count = len(servers)
    shards = [Shard(server, len(range(k, shape[0], count))) for k, server in enumerate(servers)]
    plan = PlannedVariable('table', shape, 'float32', 'sparse', 'a test', tuple(shards))
    table = Table(tf.Variable(tf.zeros(shape)), plan, servers=SERVERS)
    table.make_shards()
    return table


@pytest.mark.parametrize('servers', [(0,), (0, 1), (1, 0, 1)])
def test_the_rows_of_shards_brought_together_are_the_rows_that_were_split(servers):
    whole = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        table = made(whole.shape, servers)
        rows_of_shards = session.run(table_module.split_rows(tf.constant(whole), table))
        for number, (shard, rows) in enumerate(zip(table.shards, rows_of_shards)):
            session.run(shard.initializer)
            shard.load(rows, session)
            np.testing.assert_array_equal(
                session.run(table.gather(number, tf.constant([0]))), rows[:1]
            )
        np.testing.assert_array_equal(session.run(table_module.whole_of(table)), whole)


def test_a_table_of_many_rows_makes_no_large_graph():
    with tf.Graph().as_default() as graph:
        table = made((10**7, 2), (0, 1))
        table_module.split_rows(tf.fill([10**7, 2], 0.0), table)
        table_module.whole_of(table)
        assert graph.as_graph_def().ByteSize() < 10**5


def test_a_rank_updates_the_shards_that_it_owns_or_else_the_whole_table():
    with tf.Graph().as_default():
        table = made((7, 2), (1, 0, 1))
        assert table.parts_of(0) == [OwnedShard(table, table.shards[1], 1)]
        assert [part.shard for part in table.parts_of(1)] == [0, 2]
        replicated = made((7, 2), ())
        assert replicated.parts_of(0) == [OwnedShard(replicated, replicated.variable, 0)]


def test_gradients_of_a_pull_are_summed_over_the_lookups_that_have_one():
    with tf.Graph().as_default(), tf.Session() as session:
        table = made((7, 2), (0, 1))
        lookups = [tf.constant([[5, 1]]), tf.constant([[1, 1]]), tf.constant([[2, 5]])]
        pulled = pull(table, lookups)
        gradients = {
            output: 10.0**k * tf.ones([1, 2, 2]) for k, output in enumerate(pulled.outputs)
        }
        del gradients[pulled.outputs[2]]
        ids, values = session.run([pulled.split.ids, table.gradients(pulled, gradients)])
        assert {row: list(value) for row, value in zip(ids, values)} == {
            5: [1, 1],
            1: [21, 21],
            2: [0, 0],
        }
