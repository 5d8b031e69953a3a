# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A graph has one session of ours; whoever holds another goes on with it."""

from unittest import mock

import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, keras_module, tf

import keras_parallax as kp
from keras_parallax.engine.session.graph_scope import scope_of

keras = keras_module(KERAS_PACKAGES[-1])


@pytest.fixture
def graph():
    keras.backend.clear_session()
    return tf.get_default_graph()


def test_a_session_that_the_script_has_opened_becomes_that_of_the_scope(graph):
    before = tf.Session(graph=graph)
    number = tf.Variable(1.0)
    before.run(number.assign(7.5))
    with before.as_default(), kp.ParallaxStrategy():
        sessions = scope_of(graph).sessions
    assert sessions.session is before
    assert before.run(number) == 7.5


def test_who_holds_an_earlier_session_goes_on_with_the_one_of_now(graph):
    with kp.ParallaxStrategy():
        sessions = scope_of(graph).sessions
        earlier = sessions.session
        number = tf.Variable(np.float32(2.0))
        sessions.open()
    assert sessions.session is not earlier
    sessions.session.run(number.initializer)
    assert earlier.run(number) == 2.0
    assert keras.backend.get_session() is sessions.session


def test_operations_that_were_made_since_the_last_run_are_not_seen(graph):
    one = tf.constant(1)
    with kp.ParallaxStrategy():
        sessions = scope_of(graph).sessions
        assert sessions.has_seen(one.op), 'a session without a server may have run anything'
        with mock.patch.object(sessions, '_server', object()):
            sessions.see_new_operations()
            other = tf.constant(2)
            assert sessions.has_seen(one.op) and not sessions.has_seen(other.op)
            sessions.see_new_operations()
            assert sessions.has_seen(other.op)


def test_a_session_in_use_is_closed_when_it_is_over(graph):
    with kp.ParallaxStrategy():
        sessions = scope_of(graph).sessions
        one = tf.constant(1)
        with sessions.in_use() as session:
            sessions.open()
            assert session.run(one) == 1
            with sessions.in_use() as later:
                assert later is sessions.session is not session


def test_a_session_of_another_configuration_is_told_of(graph):
    with kp.ParallaxStrategy():
        other = tf.Session(graph=graph, config=tf.ConfigProto(log_device_placement=True))
        with other.as_default(), pytest.warns(UserWarning, match='log_device_placement'):
            scope_of(graph).sessions.hand_to_keras()


@pytest.mark.parametrize('by_keras', [True, False])
def test_a_session_that_is_entered_in_the_scope_keeps_what_it_has_run(graph, by_keras):
    number = tf.Variable(1.0)
    own = tf.Session(graph=graph)
    own.run(number.assign(7.5))
    with kp.ParallaxStrategy():
        sessions = scope_of(graph).sessions
        if by_keras:
            keras.backend.set_session(own)
            assert own.run(number) == 7.5
        else:
            with own.as_default():
                assert own.run(number) == 7.5
        assert sessions.session.run(number) == 7.5
        sessions.session.run(number.assign(8.5))
        assert own.run(number) == 8.5


def test_a_session_that_neither_is_the_default_nor_keras_has_stays_as_it_is(graph):
    number = tf.Variable(1.0)
    own = tf.Session(graph=graph)
    own.run(number.assign(7.5))
    with kp.ParallaxStrategy():
        scope_of(graph).sessions.session.run(number.initializer)
        assert own.run(number) == 7.5
