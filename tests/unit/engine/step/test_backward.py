# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The backward pass of a training step: gradients of variables, and of what is looked up."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.step.backward import gradients_of
from keras_parallax.engine.tables.pull import pull_new_lookup
from keras_parallax.engine.tables.table import Table

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture(params=[False, True])
def variable(request):
    return shards.variable_of(VALUES, request.param, 'words')


def on_every_worker(variable):
    return Table(variable, shards.planned('words', VALUES.shape, ()))


def of_loss(loss, dense, tables=()):
    return gradients_of(loss, dense, list(tables), graph_queries.ancestors([loss]))


def values_of(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_dense_variables_and_lookups_have_the_gradients_of_the_loss(variable):
    weight, table = tf.Variable(3.0), on_every_worker(variable)
    rows = tf.gather(variable, [[1, 4, 1]])
    found = of_loss(tf.reduce_sum(rows) * weight, [weight], [table])
    (output,) = found.of_rows[table]
    assert list(found.of_outputs) == [output] and len(found.of_dense) == 1
    of_dense, of_output = values_of([found.of_dense[0], found.of_outputs[output]])
    np.testing.assert_allclose(of_dense, VALUES[[1, 4, 1]].sum(), rtol=1e-6)
    # A row for each of the batch's, repeats and all.
    np.testing.assert_array_equal(of_output, np.full((1, 3, 2), 3.0))


def test_the_gradient_of_rows_that_are_looked_up_again_is_a_tensor_of_all_of_them(variable):
    table, rows = on_every_worker(variable), tf.gather(variable, [1, 4, 5])
    found = of_loss(tf.reduce_sum(tf.gather(rows, [2, 0, 2])), [], [table])
    (gradient,) = found.of_outputs.values()
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(values_of(gradient), [[1, 1], [0, 0], [2, 2]])


def test_variables_that_the_loss_does_not_depend_on_are_named(variable):
    used, unused = tf.Variable(1.0, name='used'), tf.Variable(1.0, name='unused')
    table = on_every_worker(variable)
    rows = tf.stop_gradient(tf.gather(variable, [1]))
    with pytest.raises(ValueError, match='does not depend on unused, words in a way'):
        of_loss(tf.reduce_sum(rows) * used, [used, unused], [table])


def test_without_variables_nothing_is_built():
    loss = tf.reduce_sum(tf.placeholder(tf.float32, [3]))
    before = len(tf.get_default_graph().get_operations())
    assert of_loss(loss, []) == ([], {}, {})
    assert len(tf.get_default_graph().get_operations()) == before


def test_what_is_pulled_and_what_is_read_whole_have_gradients_of_their_own():
    table = shards.table_of(VALUES)
    shards.made_front(table, lambda ids: pull_new_lookup(table, ids, 0))
    rows = tf.gather(table.variable, tf.constant([1, 4]))
    whole = table.variable.value()
    other = tf.gather(table.variable, tf.constant([2]))  # Of another model.
    found = of_loss(tf.reduce_sum(rows) + tf.reduce_sum(whole), [], [table])
    assert found.of_rows == {table: [rows, whole]}
    assert set(found.of_outputs) == {rows, whole} and other not in found.of_outputs


def test_a_dense_variable_on_servers_has_the_gradient_of_its_whole_value():
    table = shards.table_of(VALUES, kind='dense')
    shards.made_front(table)
    whole = table.variable.value()
    found = of_loss(tf.reduce_sum(whole * 2.0), [], [table])
    assert list(found.of_outputs) == [whole] and found.of_rows == {}
