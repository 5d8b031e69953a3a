# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A session asks itself before it does what TensorFlow and Keras ask of it."""

import contextlib

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.compat import session_hooks
from keras_parallax.engine.tables.pull import Connection


class NotingSession(session_hooks.HookedSession):
    """Notes what it is asked."""

    def __init__(self, graph):
        super().__init__(graph=graph)
        self.asked, self.instead = [], {}

    @contextlib.contextmanager
    def running(self, operations):
        self.asked.append('running')
        yield

    def before_run(self):
        self.extend()

    def run_call(self, call):
        self.asked.append((call.fetch_names, call.target_names, call.operation_names))
        names = [self.instead.get(name, name) for name in call.target_names]
        return self.run_here(call.with_targets(self.graph, names))

    def run_part(self, handle, call):
        self.asked.append(call.fetch_names)
        return self.run_part_here(handle, call)

    def make_function(self, options):
        self.asked.append(list(options.fetch))
        self.extend()
        return session_hooks.make_callable(self, options)


def graph_of_sum():
    graph = tf.Graph()
    with graph.as_default():
        given = tf.placeholder(tf.float32, [], name='given')
        number = tf.get_variable('number', [], initializer=tf.zeros_initializer())
        tf.assign_add(number, 1.0, name='up')
        tf.assign_sub(number, 1.0, name='down')
        tf.identity(given * 2, name='twice')
    return graph


def test_a_run_comes_with_names_and_may_run_other_operations():
    graph = graph_of_sum()
    session = NotingSession(graph)
    session.run('number/Assign')
    session.instead['up'] = 'down'
    twice, _ = session.run(['twice:0', graph.get_operation_by_name('up')], {'given:0': 4.0})
    assert twice == 8.0
    assert session.run('number:0') == -1.0
    assert session.asked[2:4] == ['running', (['twice:0'], ['up'], ['twice', 'up'])]


def test_a_part_of_a_run_is_asked_for_by_itself():
    session = NotingSession(graph_of_sum())
    handle = session.partial_run_setup(['twice:0'], ['given:0'])
    assert session.partial_run(handle, 'twice:0', {'given:0': 4.0}) == 8.0
    assert session.asked[-1] == ['twice:0']


def test_a_call_can_be_made_into_a_function_with_further_edges():
    session = NotingSession(graph_of_sum())
    calls = []
    session.run_call = lambda call: calls.append(call) or session.run_here(call)
    session.run('twice:0', {'given:0': 4.0})
    options = calls[0].callable_options()
    assert list(options.feed) == ['given:0'] and list(options.fetch) == ['twice:0']
    function = session_hooks.make_callable(session, session_hooks.connected_options(options, []))
    assert function(np.float32(5.0)) == [10.0]


def test_a_call_reads_another_tensor_through_a_further_edge():
    graph = graph_of_sum()
    with graph.as_default():
        twice, given = map(graph.get_tensor_by_name, ('twice:0', 'given:0'))
        tf.identity(twice + 1, name='more')
        thrice = tf.identity(given * 3, name='thrice')
    session = NotingSession(graph)
    calls = []
    session.run_call = lambda call: calls.append(call) or session.run_here(call)
    assert session.run('more:0', {'given:0': 4.0}) == 9.0
    options = session_hooks.connected_options(
        calls[0].callable_options(), [Connection(twice, thrice)]
    )
    assert session_hooks.key_of(options) != session_hooks.key_of(calls[0].callable_options())
    function = session_hooks.make_callable(session, options)
    assert function(np.float32(4.0)) == [13.0]
    assert session.run('more:0', {'given:0': 4.0}) == 9.0


@pytest.mark.parametrize('feeds, values', [(None, []), (['given:0'], [np.float32(4.0)])])
def test_what_a_callable_runs_is_asked_for(feeds, values):
    session = NotingSession(graph_of_sum())
    session.run('number/Assign')
    name = 'number:0' if feeds is None else 'twice:0'
    function = session.make_callable(name, feeds)
    assert function(*values) == (0.0 if feeds is None else 8.0)
    assert session.asked[-1][0] == [name]


def test_a_session_that_is_closed_may_still_be_asked_unless_it_refuses():
    session = NotingSession(graph_of_sum())
    session.close()
    session.refuse(False)
    session.run_call = lambda call: ['instead']
    session.before_run = lambda: None
    assert session.run('twice:0', {'given:0': 4.0}) == 'instead'
    session.refuse(True)
    with pytest.raises(RuntimeError, match='closed'):
        session.run('twice:0')
