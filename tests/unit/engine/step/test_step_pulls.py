# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which tables' rows are needed first."""

import pytest
from any_keras import keras
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.step import step_pulls
from keras_parallax.engine.tables.pull import Pull, SplitIds


@pytest.fixture(autouse=True)
def in_a_graph():
    with tf.Graph().as_default():
        yield


def looked_up(steps=4, width=8):
    """Rows that a table's only lookup gives, `[3, steps, width]`, and the lists of its `Pull`s."""
    rows = tf.placeholder(tf.float32, [3, steps, width])
    split = SplitIds(tf.range(3 * steps), [], [])
    return rows, [Pull(split, rows, [rows], [], [])]


def found(loss, small=(), **tables):
    return step_pulls.needed_first(tables, graph_queries.ancestors([loss]), small)


def test_rows_of_the_softmax_wait_for_those_of_the_words():
    (words, of_words), (kernel, of_kernel) = looked_up(), looked_up()
    (bias, of_bias) = looked_up()
    layer = keras.layers.LSTM(8)
    hidden = layer(keras.layers.Input(tensor=words))
    logits = tf.matmul(tf.expand_dims(hidden, 1), kernel, transpose_b=True)
    loss = tf.reduce_sum(logits) + tf.reduce_sum(bias)
    tables = dict(words=of_words, kernel=of_kernel, bias=of_bias)
    waits = {'words': [], 'kernel': ['words'], 'bias': ['words', 'kernel']}
    assert found(loss, **tables) == waits
    assert found(loss, small=['bias'], **tables) == dict(waits, bias=[])


def test_tables_that_are_joined_before_anything_is_computed_wait_for_nothing():
    (users, of_users), (items, of_items) = looked_up(), looked_up()
    weights = tf.ones([16, 1])
    joined = tf.reshape(tf.concat([users, items], 2), [-1, 16])
    loss = tf.reduce_sum(tf.matmul(joined, weights))
    assert found(loss, users=of_users, items=of_items) == {'users': [], 'items': []}


def test_two_towers_wait_for_nothing():
    towers = [looked_up(), looked_up()]
    outputs = [tf.matmul(tf.reshape(rows, [-1, 8]), tf.ones([8, 8])) for rows, _ in towers]
    loss = tf.reduce_sum(outputs[0] * outputs[1])
    assert found(loss, users=towers[0][1], items=towers[1][1]) == {'users': [], 'items': []}


def test_what_is_computed_after_the_loss_does_not_count():
    (words, of_words), (kernel, of_kernel) = looked_up(), looked_up()
    loss = tf.reduce_sum(words + kernel)
    tf.gradients(tf.reduce_sum(tf.matmul(words, kernel, transpose_b=True)), words)
    assert found(loss, words=of_words, kernel=of_kernel) == {'words': [], 'kernel': []}


def test_tables_that_are_looked_up_in_a_loop_are_left_out():
    words, of_words = looked_up()
    ids = []

    def body(number):
        ids.append(tf.range(3) + number)
        return number + 1

    tf.while_loop(lambda number: number < 2, body, [0])
    in_loop = [of_words[0]._replace(split=SplitIds(ids[0], [], []))]
    assert found(tf.reduce_sum(words), words=in_loop) == {}
