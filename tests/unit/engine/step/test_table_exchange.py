# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The exchange of the gradients of tables: by whom, and after what."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step import exchange
from keras_parallax.engine.step.accumulation import OneBatch
from keras_parallax.engine.step.own_gradients import Treatment, own_gradients
from keras_parallax.engine.step.table_exchange import TableExchange
from keras_parallax.engine.tables.pull import pull_new_lookup
from keras_parallax.engine.tables.table import Table

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def exchanged(loss, table, other_reads=()):
    """The `TableExchange` of worker 0 of two, and what it has pushed."""
    members, none = graph_queries.ancestors([loss]), hvd.Compression.none
    own = own_gradients(loss, [], [table], members, Treatment(), 2, 2, 1, True)
    found = TableExchange(
        [table],
        members,
        exchange.Exchange(0, 2, exchange.MEAN, none, none, 'step'),
        True,
        OneBatch(loss),
        own,
        tf.no_op(),
        other_reads,
    )
    (pushed,) = found.build()
    return found, pushed


def test_a_shard_is_read_before_its_gradients_are_pushed():
    table = shards.table_of(VALUES, size=2)
    shards.made_front(table, lambda ids: pull_new_lookup(table, ids, 0))
    rows = tf.gather(table.variable, [5, 1])
    reader = tf.reduce_sum(tf.gather(table.variable, [3]))
    found, pushed = exchanged(tf.reduce_sum(rows), table, [reader.op])
    assert len(pushed.operations) == 2 and [part.part.shard for part in pushed.parts] == [0]
    for push in pushed.operations:
        assert {rows.op, reader.op} <= graph_queries.ancestors([push])
    (traffic,) = found.table_traffic
    assert traffic.table is table


def test_a_table_that_every_worker_holds_is_pushed_nowhere():
    table = Table(tf.Variable(VALUES), shards.planned(servers=()))
    found, pushed = exchanged(tf.reduce_sum(tf.gather(table.variable, [5, 1, 5])), table)
    assert pushed.operations == found.connections == []
    (part,) = pushed.parts
    assert part.part.table is table
    run = graph_queries.ancestors(list(part.gradients))
    assert sum(one.type == 'HorovodAllgather' for one in run) == 2
    hvd.init()
    with tf.Session() as session:
        assert session.run(found.touched['table']) == 2
