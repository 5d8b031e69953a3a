# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The session of a strategy's graph, and what goes on with it."""

import threading

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.engine.session.graph_scope import scope_of
from keras_parallax.engine.session.row_fetches import Detours
from keras_parallax.engine.session.session import ParallaxSession
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.errors import ScopeError


@pytest.fixture
def scope():
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        yield scope_of(tf.get_default_graph())
    keras.backend.clear_session()


def test_what_an_earlier_session_is_asked_the_one_of_now_does(scope):
    earlier, number = scope.session, tf.Variable(2.0)
    doubled = number * 2
    scope.sessions.open()
    assert isinstance(earlier, ParallaxSession) and scope.session is not earlier
    earlier.run(number.initializer)
    assert scope.session.run(number) == 2
    assert earlier.make_callable(doubled)() == 4
    assert earlier.run('%s' % doubled.name) == 4
    assert [one.name for one in earlier.list_devices()] == [
        one.name for one in scope.session.list_devices()
    ]


def test_an_earlier_session_that_is_closed_runs_no_more_and_the_one_of_now_does(scope):
    earlier, one = scope.session, tf.constant(1)
    scope.sessions.open()
    earlier.close()
    with pytest.raises(RuntimeError):
        earlier.run(one)
    assert scope.session.run(one) == 1


def test_a_session_is_closed_when_the_last_of_its_runs_is_over(scope):
    uses, over = scope.session.uses, []
    uses.begin()
    uses.begin()
    uses.when_over(lambda: over.append('closed'))
    uses.end()
    assert over == []
    uses.end()
    assert over == ['closed']
    uses.begin()
    uses.end()
    assert over == ['closed']


def test_a_function_of_keras_outlives_the_session_that_it_was_made_for(scope):
    given, number = keras.backend.placeholder((), dtype='float32'), tf.Variable(3.0)
    function = keras.backend.function([given], [given * number])
    scope.session.run(number.initializer)
    assert function([2.0]) == [6.0]
    scope.sessions.open()
    scope.session.run(number.assign(5.0))
    assert function([2.0]) == [10.0]


def test_rows_go_other_ways_for_the_thread_that_says_so_and_for_as_long(scope):
    session, number = scope.session, tf.Variable(np.ones([3, 2], np.float32))
    session.run(number.initializer)
    found = []

    def shape():
        return session.run([number])[0].shape

    with session.with_detours(Detours(omitted=[number])):
        thread = threading.Thread(target=lambda: found.append(shape()))
        thread.start()
        thread.join()
        found.append(shape())
    found.append(shape())
    assert found == [(3, 2), (0, 2), (3, 2)]


def test_a_training_step_is_run_in_one_piece(scope):
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(keras.optimizers.SGD(0.1), 'mse')
    model.train_on_batch(np.ones([3, 2]), np.ones([3, 1]))
    (step,) = scope.runs.train_steps
    with tf.control_dependencies([step.whole_step]):
        stepped = tf.constant(1.0)
    session = keras.backend.get_session()
    for fetches in ([stepped], [[tf.constant(1.0)], stepped.name], {'step': stepped}):
        with pytest.raises(ScopeError):
            session.partial_run_setup(fetches, [])


def test_what_a_session_runs_is_counted_if_it_may_change_a_variable(scope):
    number = tf.Variable(1.0)
    before = scope.changes.since_step
    scope.session.run(number.initializer)
    scope.session.run(number)
    scope.session.make_callable(number.assign_add(1.0))()
    assert scope.changes.since_step == before + 2


def test_a_training_step_is_counted_and_nothing_else(scope):
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(keras.optimizers.SGD(0.1), 'mse')
    batch, activity = (np.ones([3, 2]), np.ones([3, 1])), scope.job.activity
    before = activity.steps
    model.train_on_batch(*batch)
    assert activity.steps == before + 1
    model.test_on_batch(*batch)
    model.predict(batch[0])
    scope.session.run(model.weights[0])
    assert activity.steps == before + 1
    (step,) = scope.runs.train_steps
    measured = []

    class Looks(StepObserver):
        def after_update(self, seconds, is_measured):
            measured.append(seconds)

    step.observers.append(Looks())
    model.train_on_batch(*batch)
    assert activity.steps == before + 2 and len(measured) == 1 and measured[0] > 0
