# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Queues of one name are one queue, whoever makes them, and closing them ends a wait."""

import threading

import pytest
from frameworks import TF1_15, TF2, tf

from keras_parallax.engine.step import push_queues

#: What TensorFlow calls the job of a local server.
JOB = 'localhost' if TF2 and not TF1_15 else 'local'


@pytest.fixture(scope='module')
def server():
    return tf.train.Server.create_local_server()


def made(name, workers=(0, 2)):
    return push_queues.for_workers(workers, name, '/job:%s/task:0' % JOB, [tf.int32], shapes=[[]])


def test_what_one_graph_puts_in_another_takes_out_of_the_queue_of_the_same_worker(server):
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        of_workers = made('step/table/shard_0/from')
        assert list(of_workers) == [0, 2]
        session.run([queue.enqueue(10 + worker) for worker, queue in of_workers.items()])
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        # Where an operation is made says nothing of which queue is meant.
        with tf.name_scope('elsewhere'):
            of_workers = made('step/table/shard_0/from', workers=(2, 0))
        taken = {worker: queue.dequeue() for worker, queue in of_workers.items()}
        assert session.run(taken) == {0: 10, 2: 12}


def test_who_waits_at_a_queue_that_is_closed_gets_an_error(server):
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        of_workers = made('step/closed/from')
        taken, close = of_workers[0].dequeue(), push_queues.closing(of_workers.values())
        closer = threading.Timer(0.2, session.run, [close])
        closer.start()
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(taken)
        closer.join()
