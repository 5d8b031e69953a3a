# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The workers of a host send and fetch rows through their leader."""

import itertools

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.job.devices import shard_device
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.step.local_aggregation import HostWorkers

HOSTS = [[0, 1], [2], [3, 4]]
VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)
LAYOUT = Servers(devices=(shard_device(0),) * 2, owners=(0, 0))
#: Servers of one process keep queues of a name, so each test has names of its own.
_numbers = itertools.count()


@pytest.fixture
def session():
    with tf.Graph().as_default(), shards.worker_session(2) as session:
        yield session


def both():
    """The two workers of a host, in one graph: the leader and the other."""
    prefix = 'step_%d' % next(_numbers)
    return [HostWorkers([[0, 1]], rank, prefix) for rank in (0, 1)]


def test_the_first_worker_of_a_host_leads_it():
    found = [HostWorkers(HOSTS, rank, 'step') for rank in range(5)]
    assert [one.leads for one in found] == [True, False, True, True, False]
    assert [one.shares for one in found] == [True, True, False, True, True]
    assert all(one.leaders == [0, 2, 3] for one in found)


def test_rows_that_both_workers_need_are_pulled_once_and_each_gets_its_own(session):
    table = shards.table_of(VALUES, layout=LAYOUT)
    shards.fill(table, VALUES, session)
    asked = [tf.constant([1, 3]), tf.constant([3, 5, 3])]
    found = [
        host.pull_rows(table, 'rows', ids, hvd.Compression.none) for host, ids in zip(both(), asked)
    ]
    (own, split), (others, no_split) = found
    rows, of_other, ids = session.run([own, others, split.ids])
    np.testing.assert_array_equal(rows, VALUES[[1, 3]])
    np.testing.assert_array_equal(of_other, VALUES[[3, 5, 3]])
    assert ids.tolist() == [1, 3, 5] and no_split is None


def test_the_leader_gets_the_gradients_of_all_and_the_others_their_own(session):
    gradients = [[tf.constant([1, 2]), tf.ones([2, 2])], [tf.constant([3]), tf.zeros([1, 2])]]
    leader, other = both()
    after = tf.no_op()
    of_host, no_push = leader.push('table', gradients[0], [])
    alone, (push,) = other.push('table', gradients[1], [after])
    assert no_push == [] and alone == [gradients[1]] and len(of_host) == 2
    found, _ = session.run([of_host, push])
    assert [of_worker[0].tolist() for of_worker in found] == [[1, 2], [3]]
    single, _ = leader.push('whole', gradients[0][1:], [])
    assert [len(of_worker) for of_worker in single] == [1, 1]


def test_a_whole_table_comes_to_the_host_once(session):
    table = shards.table_of(VALUES, layout=LAYOUT, kind='dense')
    shards.fill(table, VALUES, session)
    shards.made_front(table)
    leader, other = both()
    values = [leader.pull_whole(table), other.pull_whole(table)]
    for found in session.run(values):
        np.testing.assert_array_equal(found, VALUES)
    assert [host.connections for host in (leader, other)] == [
        [(table.variable.value(), value)] for value in values
    ]
    alone = HostWorkers([[0], [1]], 0, 'alone')
    assert alone.pull_whole(table) is table.variable.value() and alone.connections == []


def test_the_others_end_their_step_when_the_leader_ends_its_own(session):
    leader, other = both()
    ended = shards.variable_of(0.0)
    with tf.device(shard_device(0)):
        taken = tf.assign(ended, 1.0).op
    session.run(ended.initializer)
    operations = leader.pass_on([taken])
    (wait,) = other.pass_on([tf.no_op()])
    assert operations[0] is taken and len(operations) == 2
    session.run([operations[1], wait])
    assert session.run(ended) == 1.0


def test_whoever_waits_fails_once_queues_are_closed(session):
    leader, other = both()
    (wait,) = other.pass_on([])
    leader.pass_on([])
    assert len(leader.own_queues) == len(other.awaited) == 1
    assert leader.awaited == other.own_queues == []
    session.run(other.interruptions())
    with pytest.raises(tf.errors.OutOfRangeError):
        session.run(wait)
