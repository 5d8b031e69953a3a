# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What every worker holds gets the same values on all of them."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.dense_values import average, broadcast, dense_of
from keras_parallax.engine.step.train_step import step_of


@pytest.fixture
def step():
    with kp.ParallaxStrategy():
        layers = [
            keras.layers.Embedding(7, 2, input_length=3, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, name='out'),
        ]
        model = keras.models.Sequential(layers)
        model.compile(keras.optimizers.SGD(0.1), 'mse')
    model.train_on_batch(np.zeros([2, 3]), np.ones([2, 1]))
    yield step_of(model)
    keras.backend.clear_session()


def test_all_but_tables_are_dense(step):
    (table,) = step.tables
    assert table.op.name == 'words/embeddings'
    assert dense_of(step) == [one for one in step.spec.variables if one is not table]
    assert len(dense_of(step)) == 2


def test_one_process_keeps_its_values(step):
    session = keras.backend.get_session()
    before = session.run(step.spec.variables)
    broadcast(step, 0)
    average(step, dense_of(step))
    for old, new in zip(before, session.run(step.spec.variables)):
        np.testing.assert_array_equal(old, new)


def test_a_collective_in_a_thread_of_its_own_need_not_wait_for_the_one_that_waits_for_it():
    with tf.Graph().as_default() as graph:
        lock, ran = lock_of(graph), []

        class Session(tf.Session):
            """One that takes the lock to learn what is new in the graph, as ours does."""

            def run(self, *arguments):
                with lock.held():
                    return super().run(*arguments)

        def collective(act):
            thread = threading.Thread(target=act, args=(None,), daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()

        loss, number = tf.constant(1.0), tf.Variable(3.0)

        def averaged(variables):
            ran.extend(variables)
            return tf.assign(number, 4.0).op

        with Session() as session:
            backend = SimpleNamespace(get_session=lambda: session)
            spec = SimpleNamespace(loss=loss, package=SimpleNamespace(backend=backend))
            step = SimpleNamespace(
                spec=spec,
                job=SimpleNamespace(collective=collective),
                operations=SimpleNamespace(average=averaged),
            )
            average(step, [number])
            assert ran == [number] and session.run(number) == 4.0
