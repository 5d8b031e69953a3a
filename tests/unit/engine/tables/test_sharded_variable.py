# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model's variable that has become the front of a table's shards."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.engine.tables.pull import pull_new_lookup
from keras_parallax.engine.tables.sharded_variable import ShardedVariable

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(params=shards.KINDS)
def table(request):
    """A table whose variable is of one kind or the other, and the front of shards."""
    with tf.Graph().as_default(), tf.Session():
        table = shards.table_of(VALUES - 100, by_resource=request.param)
        table.before = type(table.variable), table.variable.name, table.variable.op
        shards.made_front(table, lambda ids: tf.gather(table.variable.value(), ids))
        shards.fill(table, VALUES, tf.get_default_session())
        yield table


def test_it_reads_as_its_shards_and_keeps_its_name_and_operation(table):
    variable, (_, name, operation) = table.variable, table.before
    assert isinstance(variable, ShardedVariable) and variable.table is table
    assert (variable.name, variable.op) == (name, operation)
    assert (variable.shape.as_list(), variable.dtype) == ([7, 2], tf.float32)
    for read in (variable.value(), tf.convert_to_tensor(variable), variable * 1.0):
        np.testing.assert_array_equal(tf.get_default_session().run(read), VALUES)


def test_lookups_take_rows_from_the_pull_and_not_from_the_whole():
    with tf.Graph().as_default():
        asked = []
        table = shards.table_of(VALUES)
        shards.made_front(table, lambda ids: asked.append(ids) or tf.zeros([2, 2]))
        tf.gather(table.variable, tf.constant([1, 2]))
        tf.nn.embedding_lookup(table.variable, tf.constant([3, 4]))
        assert len(asked) == 2


def test_an_assignment_of_keras_has_its_rows_as_their_own_and_a_scalar_has_no_rows():
    with tf.Graph().as_default():
        table = shards.table_of(VALUES)
        shards.made_front(table)
        rows = table.variable.sharded_rows
        assert rows.table is table and rows.shards == table.shards
        scalar = shards.table_of(1.0, servers=(0,), name='scalar', kind='dense')
        shards.made_front(scalar)
        with pytest.raises(AttributeError, match='no rows'):
            scalar.variable.sharded_rows  # noqa: B018 - it is the read that fails
        assert not hasattr(scalar.variable, 'sharded_rows')


def test_what_is_given_back_is_the_variable_that_it_was(table):
    variable, (kind, name, _) = table.variable, table.before
    ShardedVariable.give_back(variable)
    assert type(variable) is kind and variable.name == name
    assert not hasattr(variable, 'sharded_rows')
    session = tf.get_default_session()
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(variable), VALUES - 100)


def test_a_front_that_is_bound_anew_has_the_rows_of_the_new_shards(table):
    before = table.variable.sharded_rows
    table.follow(shards.planned(servers=(0, 1, 2)))
    table.make_shards()
    ShardedVariable.rebind(table)
    rows = table.variable.sharded_rows
    assert rows is not before and rows.shards == table.shards and len(rows.shards) == 3


def test_a_lookup_that_is_made_later_pulls_rows_of_its_own():
    with tf.Graph().as_default():
        table = shards.table_of(VALUES)
        shards.made_front(table, lambda ids: pull_new_lookup(table, ids, 0))
        found = tf.gather(table.variable, tf.constant([[1, 2, 1]]))
        assert [pulled.outputs for pulled in table.pulls] == [[found]]
        assert found.shape.as_list() == [1, 3, 2]
