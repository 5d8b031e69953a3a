# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What TensorFlow 1.6 alone has, or has not."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow
from frameworks import TF1_6

import keras_parallax as kp
from keras_parallax.compat import session_hooks, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.pull import Connection

pytestmark = pytest.mark.skipif(not TF1_6, reason='it is of TensorFlow 1.6 alone')


def model_of_tensorflows_keras():
    keras = tensorflow.keras
    return keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])


def test_an_optimizer_of_tensorflows_keras_is_refused_with_the_import_to_write():
    with pytest.raises(kp.StackError, match='not those of tf.keras; write `import keras`'):
        kp.ParallaxOptimizer('sgd', keras='tf.keras')
    with pytest.raises(kp.StackError, match='not those of tf.keras; write `import keras`'):
        kp.ParallaxOptimizer(tensorflow.keras.optimizers.SGD(0.1))


def test_a_model_of_tensorflows_keras_is_refused_where_a_strategy_is():
    with tensorflow.Graph().as_default():
        with kp.ParallaxStrategy(), pytest.raises(kp.StackError, match='not those of tf.keras'):
            model_of_tensorflows_keras().compile('sgd', 'mse')
        with pytest.raises(kp.StackError, match='not those of tf.keras'):
            model_of_tensorflows_keras().compile('sgd', 'mse')
    with tensorflow.Graph().as_default():
        model_of_tensorflows_keras().compile('sgd', 'mse')


def test_graphs_of_the_c_library_are_refused_with_the_variable_that_asks_for_them():
    process = subprocess.run(
        [sys.executable, '-c', 'import keras_parallax'],
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=dict(os.environ, TF_C_API_GRAPH_CONSTRUCTION='1'),
    )
    assert process.returncode == 1
    told = process.stderr.splitlines()[-1]
    assert told.startswith('keras_parallax.errors.StackError: ')
    assert told.endswith('take TF_C_API_GRAPH_CONSTRUCTION out of the environment.')


def test_the_readers_of_a_tensor_can_be_connected_to_another_one_by_one():
    with tensorflow.Graph().as_default():
        one, other = tf.constant(1.0), tf.constant(2.0)
        readers = [tf.negative(one).op for _ in range(4)]
        for reader in tensorflow_api.consumers(one):
            tensorflow_api.replace_input(reader, 0, other)
        assert tensorflow_api.consumers(one) == []
        with tf.Session() as session:
            assert session.run([reader.outputs[0] for reader in readers]) == [-2.0] * 4


def test_a_session_is_told_that_an_operation_waits_for_nothing_any_more():
    with tensorflow.Graph().as_default():
        variable = tf.get_variable('variable', [], initializer=tf.zeros_initializer())
        with tf.control_dependencies([tf.assign_add(variable, 1.0)]):
            operation = tf.no_op()
        tensorflow_api.set_control_inputs(operation, [])
        with tf.Session() as session:
            session.run(variable.initializer)
            session.run(operation)
            assert session.run(variable) == 0.0


def test_who_waits_for_an_operation_is_known_also_when_it_has_been_told_later():
    with tensorflow.Graph().as_default() as graph:
        first, second, third = (tf.no_op() for _ in range(3))
        tensorflow_api.add_control_inputs(second, [first])
        waiting = tensorflow_api.control_outputs(graph, None)
        assert waiting(first) == [second] and waiting(third) == []
        assert tensorflow_api.control_outputs(graph, {first, third})(first) == []


def test_a_step_has_the_time():
    with tensorflow.Graph().as_default():
        moment = tf.timestamp()
        with tf.Session() as session:
            before = time.time()
            assert before <= session.run(moment) <= session.run(moment) <= time.time()


def test_a_table_of_raw_ids_is_refused():
    with pytest.raises(
        kp.PlanError, match='DynamicEmbedding needs locks of rows, .* TensorFlow 1.6.0'
    ):
        kp.layers.DynamicEmbedding(4, 100)


class ServerSession(session_hooks.HookedSession):
    """Does what it is asked, as TensorFlow does."""

    def before_run(self):
        self.extend()


def test_what_has_edges_of_its_own_shares_what_has_a_name_at_the_server():
    server = tf.train.Server.create_local_server()
    with tensorflow.Graph().as_default() as graph:
        given = tf.placeholder(tf.float32, [], name='given')
        total = tf.get_variable('total', [], initializer=tf.zeros_initializer())
        twice = given * 2
        added = tf.assign_add(total, tf.identity(twice, name='read'))
        thrice = given * 3
    session = ServerSession(server.target, graph=graph)
    session.run_call = session.run_here
    session.running = lambda operations: session.graph.as_default()
    session.run(total.initializer)
    options = session_hooks.options_of(added.op)
    options.feed[:], options.fetch[:] = [given.name], [added.name]
    connected = session_hooks.connected_options(options, [Connection(twice, thrice)])
    metadata = tf.RunMetadata()
    connected.run_options.trace_level = tf.RunOptions.FULL_TRACE
    add_thrice = session_hooks.make_callable(session, connected)
    assert add_thrice(np.float32(1.0), run_metadata=metadata) == [3.0]
    assert session.run(added, {given: 1.0}) == 5.0
    assert add_thrice(np.float32(2.0)) == [11.0]
    assert metadata.step_stats.dev_stats
    with graph.as_default():
        later = tf.negative(total.read_value())
    session.run(later)
    options = session_hooks.options_of(later.op)
    options.fetch[:] = [later.name]
    connected = session_hooks.connected_options(options, [Connection(twice, thrice)])
    assert session_hooks.make_callable(session, connected)() == [-11.0]
    session.close()
