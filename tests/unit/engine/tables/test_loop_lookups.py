# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lookups in loops and branches, made before them: the same values and the same gradients."""

import numpy as np
import pytest

from keras_parallax.compat import graph_queries
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.planning.classify import classify

ROWS, WIDTH, STEPS, SAMPLES = 40, 3, 5, 4
VALUES = np.random.RandomState(0).normal(size=[ROWS, WIDTH]).astype('float32')
IDS = np.random.RandomState(1).randint(0, ROWS, [STEPS, SAMPLES])


def over_steps(row_of, *state):
    """Sums `row_of(step, *state)`, which gives rows and the next state, over the steps."""

    def body(step, total, *state):
        rows, state = row_of(step, *state)
        return (step + 1, tf.tanh(total + rows) + rows) + tuple(state)

    state = [0, tf.zeros([SAMPLES, WIDTH])] + list(state)
    shapes = [tf.TensorShape(tf.convert_to_tensor(part).shape) for part in state]
    return tf.while_loop(lambda step, *_: step < STEPS, body, state, shapes)[1]


def array(table, ids, flag):
    elements = tf.TensorArray(tf.int32, STEPS).unstack(ids)
    return over_steps(lambda step: (tf.gather(table, elements.read(step)), []))


def sliced(table, ids, flag):
    """As of Keras, whose ids are numbers of the other kind."""
    floats = tf.cast(ids, tf.float32)
    return over_steps(lambda step: (tf.gather(table, tf.cast(floats[step], tf.int64)), []))


def shifted(table, ids, flag):
    """Ids that go round with the loop."""

    def row_of(step, window):
        return tf.gather(table, window[0]), [tf.concat([window[1:], window[:1]], 0)]

    return over_steps(row_of, ids)


def twice(table, ids, flag):
    """Two lookups in a loop, and one before it."""

    def row_of(step):
        return tf.gather(table, ids[step]) * tf.gather(table, ids[STEPS - 1 - step]), []

    return over_steps(row_of) + tf.gather(table, ids[0])


def branch(table, ids, flag):
    return tf.cond(flag, lambda: tf.gather(table, ids[0]), lambda: tf.zeros([SAMPLES, WIDTH]))


def both_branches(table, ids, flag):
    """One of them looks a constant up."""
    return tf.cond(
        flag,
        lambda: 2 * tf.gather(table, ids[0]),
        lambda: tf.gather(table, [7]) + tf.zeros([SAMPLES, WIDTH]),
    )


def branch_in_loop(table, ids, flag):
    def row_of(step):
        is_late = tf.logical_and(flag, step > 2)
        zeros = tf.zeros([SAMPLES, WIDTH])
        return tf.cond(is_late, lambda: tf.gather(table, ids[step]), lambda: zeros), []

    return over_steps(row_of)


def loop_in_branch(table, ids, flag):
    return tf.cond(flag, lambda: sliced(table, ids, flag), lambda: tf.zeros([SAMPLES, WIDTH]))


MOVED = [
    array, sliced, shifted, twice, branch, both_branches, branch_in_loop, loop_in_branch,
]  # fmt: skip


def fed_back(table, ids, flag):
    """Each step's ids follow from the rows of the one before."""

    def row_of(step, now):
        rows = tf.gather(table, now)
        return rows, [tf.cast(tf.argmax(rows, 1), tf.int32)]

    return over_steps(row_of, ids[0])


def counted(table, ids, flag):
    return over_steps(lambda step: (tf.gather(table, tf.fill([SAMPLES], step)), []))


def computed(table, ids, flag):
    return over_steps(lambda step: (tf.gather(table, (ids[step] + 1) % ROWS), []))


def read_whole(table, ids, flag):
    """Tied weights: what is looked up is compared with all rows."""

    def row_of(step):
        rows = tf.gather(table, ids[step])
        return tf.matmul(tf.nn.softmax(tf.matmul(rows, table, transpose_b=True)), table), []

    return over_steps(row_of)


def changed(table, ids, flag):
    """A copy of the table goes round with the loop."""

    def row_of(step, copy):
        return tf.gather(copy, ids[step]), [copy * 0.5]

    return over_steps(row_of, tf.convert_to_tensor(table))


LEFT = [fed_back, counted, computed, read_whole, changed]


def built(model, by_resource=False, described=True):
    """The use of a table by a model, and a function that runs the loss and its gradient."""
    with tf.Graph().as_default():
        table = tf.get_variable('table', initializer=VALUES, use_resource=by_resource)
        fed = tf.placeholder(tf.int32, IDS.shape), tf.placeholder(tf.bool, [])
        loss = tf.reduce_sum(tf.square(model(table, *fed)))
        use = loss_analysis.describe(loss, [table], {})[0] if described else None
        gradient = tf.convert_to_tensor(tf.gradients(loss, table)[0])
        session = tf.Session()
        session.run(table.initializer)
    return use, lambda flag, ids=IDS: session.run([loss, gradient], dict(zip(fed, (ids, flag))))


@pytest.mark.parametrize('number, model', enumerate(MOVED))
def test_a_lookup_with_ids_known_before_the_loop_is_one_of_rows(number, model):
    # TensorFlow 1.11 has no gradient of a resource in a branch in a loop, but for ours.
    by_resource = number % 2 == 0
    use, run = built(model, by_resource)
    assert classify(use).kind == 'sparse' and not use.whole_reads
    _, run_as_written = built(model, described=False)
    for flag in (True, False):
        for found, expected in zip(run(flag), run_as_written(flag)):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('model', LEFT, ids=lambda model: model.__name__)
def test_what_a_loop_computes_or_reads_whole_stays_as_it_is(model):
    with tf.Graph().as_default() as graph:
        table = tf.get_variable('table', initializer=VALUES)
        loss = tf.reduce_sum(model(table, tf.constant(IDS, tf.int32), tf.constant(True)))
        operations = len(graph.get_operations())
        (use,) = loss_analysis.describe(loss, [table], {})
        assert len(graph.get_operations()) == operations
    assert classify(use).kind == 'dense'
    assert 'a loop' in classify(use).reason


def test_lookups_are_moved_once():
    with tf.Graph().as_default() as graph:
        table = tf.get_variable('table', initializer=VALUES)
        loss = tf.reduce_sum(array(table, tf.constant(IDS, tf.int32), None))
        for _ in range(2):
            loss_analysis.describe(loss, [table], {})
            operations = len(graph.get_operations())
        loss_analysis.describe(loss, [table], {})
        assert len(graph.get_operations()) == operations
        members = graph_queries.ancestors([loss])
        assert len(graph_queries.reads(table, members).lookups) == 1


def test_ids_of_a_branch_that_is_not_taken_may_be_anything():
    bad = np.where(IDS == IDS[0, 0], ROWS + 5, IDS)
    _, run = built(branch)
    assert run(False, bad)[0] == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'ids outside.*table.*\[45'):
        run(True, bad)
