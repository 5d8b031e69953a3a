# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What layers and metrics write waits for the gradients of a step, and for what is fetched."""

from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.session import state_updates


def test_a_write_is_copied_with_what_reads_it_and_the_copy_waits():
    with tf.Graph().as_default():
        state, loss = tf.Variable(1.0), tf.placeholder(tf.float32, [])
        write = tf.assign(state, loss + 1)
        read = tf.identity(write)
        computed, step = tf.no_op('computed'), tf.no_op('step')
        target = state_updates.gated(tf.group(read, step), [loss], [step], [computed])
        run = graph_queries.ancestors([target])
        writes = [operation for operation in run if operation.type == 'Assign']
        assert len(writes) == 1 and computed in writes[0].control_inputs
        assert writes[0] is not write.op and read.op not in run and step in run
        assert computed not in graph_queries.ancestors([read])
        with tf.Session() as session:
            session.run(state.initializer)
            session.run(target, {loss: 4.0})
            assert session.run(state) == 5.0


def test_what_a_fetch_needs_is_run_once():
    with tf.Graph().as_default():
        count = tf.Variable(0.0)
        counted, step = tf.assign_add(count, 1.0), tf.no_op('step')
        target = tf.group(counted, step)
        assert state_updates.gated(target, [counted * 2], [step], [tf.no_op()]) is target
