# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which runs may change variables, and how they are counted between training steps."""

from types import SimpleNamespace

import pytest
import shards
from frameworks import TF2, tf

from keras_parallax.engine.job.activity import Activity
from keras_parallax.engine.session.variable_changes import Changes, changes_variables


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def changes():
    """`Changes` of a job of one process, and the job's `Activity`."""
    activity = Activity()
    return Changes(SimpleNamespace(activity=activity)), activity


def step(activity):
    with activity.step(False):
        pass


@pytest.mark.parametrize('by_resource', shards.KINDS)
def test_a_run_changes_variables_if_anything_that_it_needs_writes_to_one(graph, by_resource):
    variable = shards.variable_of([1.0, 2.0], by_resource)
    written = {
        'assigned': tf.assign(variable, [3.0, 4.0]),
        'scattered': tf.scatter_add(variable, [1], [5.0]),
        'trained': tf.train.AdamOptimizer().minimize(tf.reduce_sum(variable)),
        'freed': tf.group(variable.initializer),
        'a slice assigned': variable[1:].assign([6.0]),
        'by Python': tf.py_func(lambda: 1.0, [], tf.float32),
    }
    for how, fetch in written.items():
        assert changes_variables(graph, [fetch]), how
        assert changes_variables(graph, [tf.group(fetch).name]), how
    read = variable * 2.0
    assert not changes_variables(graph, [read, variable, read.name, read.op.name])
    assert changes_variables(graph, [read, written['assigned']])


@pytest.mark.skipif(not TF2, reason='functions write to variables from TensorFlow 2 on')
def test_a_call_of_a_function_changes_variables_if_the_function_or_one_that_it_calls_does(graph):
    variable = shards.variable_of([1.0, 2.0], True)
    write = tf.function(lambda: variable.assign([3.0, 4.0]))
    outer = tf.function(lambda: tf.identity(write()) + 1.0)
    read = tf.function(lambda: variable * 2.0)
    branch = tf.cond(tf.placeholder(tf.bool, []), write, read)
    assert changes_variables(graph, [write()])
    assert changes_variables(graph, [outer()])
    assert changes_variables(graph, [branch])
    assert not changes_variables(graph, [read()])


def test_of_what_the_graph_does_not_know_a_change_is_taken_for_granted(graph):
    assert changes_variables(graph, ['no such tensor:0'])
    assert changes_variables(graph, [object()])
    assert not changes_variables(graph, [SimpleNamespace(sharded_rows='which are read')])


def test_changes_are_counted_since_the_last_step():
    counted, activity = changes()
    counted.note()
    counted.note()
    assert counted.since_step == 2
    step(activity)
    assert counted.since_step == 0
    counted.note()
    assert counted.since_step == 1
    counted.settle()
    assert counted.since_step == 0


def test_what_runs_within_a_change_is_not_counted_once_more():
    counted, _ = changes()
    counted.note()
    with pytest.raises(KeyError), counted.noted():
        counted.note()
        assert counted.since_step == 2
        raise KeyError
    assert counted.since_step == 1


def test_a_run_is_counted_if_it_changes_anything_in_whatever_form_it_is_asked_for(graph):
    variable, (counted, _) = tf.Variable(1.0), changes()
    read, written = variable * 2.0, tf.assign(variable, 3.0)
    for fetches, count in [
        (read, 0),
        ({'a': [read, read.name], 'b': ()}, 0),
        (written, 1),
        ({'a': read, 'b': [(read, written.op)]}, 2),
        (written, 3),
    ]:
        counted.note_run(graph, fetches)
        assert counted.since_step == count


def test_a_point_says_which_graph_and_how_many_steps_meetings_and_changes():
    counted, activity = changes()
    other, _ = changes()
    step(activity)
    with activity.gathering():
        pass
    counted.note()
    assert counted.point[1:] == [1, 1, 1]
    assert other.point[0] == counted.point[0] + 1
