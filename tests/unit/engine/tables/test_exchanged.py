# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which worker owns a shard, and where it lies."""

import pytest
import shards
from frameworks import tf

from keras_parallax.engine.tables.exchanged import Exchanged, OwnedShard


@pytest.fixture
def table():
    with tf.Graph().as_default():
        yield shards.table_of([[0.0]] * 7, servers=(1, 0, 2))


def test_the_owner_of_a_server_owns_its_shards(table):
    assert [table.owner_of(shard) for shard in table.planned_shards] == [1, 0, 0]
    assert [part.shard for part in table.parts_of(0)] == [1, 2]
    assert table.parts_of(1) == [OwnedShard(table, table.shards[0], 0)]
    assert table.parts_of(2) == []


def test_a_shard_lies_on_the_device_of_its_server(table):
    table.servers = table.servers._replace(devices=('/cpu:a', '/cpu:b', '/cpu:c'))
    devices = [table.device_of(shard) for shard in table.planned_shards]
    assert devices == ['/cpu:b', '/cpu:a', '/cpu:c']


def test_a_batch_touches_as_many_rows_of_each_table_as_it_pulls(table):
    table.tables = [table, shards.table_of([[0.0]] * 7, name='other')]
    with tf.Session() as session:
        assert session.run(table.touched(None, tf.constant([4, 2, 6]))) == {'table': 3, 'other': 3}


def test_what_is_exchanged_must_say_how_rows_are_gathered_and_given_back():
    class Half(Exchanged):
        def gather(self, number, rows):
            return rows

    with pytest.raises(TypeError, match='abstract'):
        Half()
