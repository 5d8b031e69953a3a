# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A synchronous step ends for a worker when every owner has updated its shards."""

import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.job.devices import shard_device
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.step import exchange
from keras_parallax.engine.step.barrier import end_of_step

DEVICES = shard_device(0), shard_device(1)
LAYOUT = Servers(devices=DEVICES, owners=(0, 1))


class Step:
    """A step of worker 0 of 2, which owns one of the shards of a table."""

    def __init__(self, rank=0, shard_devices=(0, 1)):
        self.rank = rank
        self.table = shards.table_of([[0.0]] * 4, shard_devices, rank, 2, layout=LAYOUT)
        self.pushes = []
        for device in DEVICES:
            with tf.device(device):
                self.pushes.append(tf.no_op('push'))
        (own,) = self.table.parts_of(rank) or [None]
        self.update = tf.assign(own.variable, tf.ones([2, 1])).op
        self.replica = tf.Variable(0.0)
        self.of_replica = tf.assign(self.replica, 1.0).op

    def end(self, *further):
        operations = [*self.pushes, self.update, self.of_replica, *further]
        none = hvd.Compression.none
        return end_of_step(
            [self.table],
            operations,
            self.pushes,
            [self.replica],
            exchange.Exchange(self.rank, 2, exchange.MEAN, none, none, 'step'),
        )


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def of_kind(end, kind):
    return [operation for operation in end.operations if operation.type.startswith(kind)]


@pytest.mark.parametrize('rank', [0, 1])
def test_an_owner_gives_every_worker_a_token_and_takes_one_from_every_owner(rank):
    end = Step(rank).end()
    assert [queue.queue_ref.device for queue in end.own_queues] == [DEVICES[rank]] * 2
    assert [queue.queue_ref.device for queue in end.awaited] == list(DEVICES)
    given, taken = of_kind(end, 'QueueEnqueue'), of_kind(end, 'QueueDequeue')
    assert len(given) == len(taken) == 2
    # Its own token is one of those that it gives.
    assert end.awaited[rank] in end.own_queues


def test_a_token_is_given_when_shards_are_updated_and_not_before():
    step = Step()
    end = step.end()
    for give in of_kind(end, 'QueueEnqueue'):
        before = graph_queries.ancestors([give])
        assert step.update in before
        # Nobody else waits for what this worker has for itself, nor for its pushes.
        assert step.of_replica not in before and before.isdisjoint(step.pushes)


def test_what_comes_after_the_update_of_a_shard_is_waited_for_whatever_it_writes():
    step = Step()
    with tf.control_dependencies([step.update]):
        counter = tf.assign_add(step.replica, 1.0).op
    for give in of_kind(step.end(counter), 'QueueEnqueue'):
        assert counter in graph_queries.ancestors([give])


def test_a_token_is_taken_where_the_worker_has_pushed():
    step = Step()
    for take, push in zip(of_kind(step.end(), 'QueueDequeue'), step.pushes):
        assert take.device == push.device
        before = graph_queries.ancestors([take])
        assert [other for other in step.pushes if other in before] == [push]
