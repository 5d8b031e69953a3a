# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How tables of a model that is built become sharded ones, and which stay where they are."""

from types import SimpleNamespace

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.engine.tables import former_storage, initial_values, sharding
from keras_parallax.engine.tables.initial_values import ValueSource
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.planning.plan import Plan

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def plan_of(*variables):
    return Plan(variables, 3)


def test_a_plan_leaves_a_table_on_the_shards_that_another_model_trains():
    table = shards.table_of(VALUES, (0, 2), count_reason='the first plan')
    shards.made_front(table)
    other = shards.planned('table', servers=(1,), kind='dense', count_reason='the second plan')
    (found,) = sharding.as_they_lie(plan_of(other), [table.variable], ()).variables
    assert found.shards == table.plan.shards and found.kind == 'sparse'
    assert found.count_reason == 'the first plan'


@pytest.mark.parametrize('is_held, has_shards', [(True, False), (False, True)])
def test_a_variable_that_every_worker_trains_elsewhere_gets_no_shards(is_held, has_shards):
    variable, plan = tf.Variable(VALUES), plan_of(shards.planned())
    held = {variable} if is_held else set()
    (found,) = sharding.as_they_lie(plan, [variable], held).variables
    assert bool(found.shards) == has_shards
    assert ('because another model trains it there' in found.reason) == is_held


def test_a_table_that_was_sharded_is_used_again_if_it_is_exchanged_as_before():
    scope, table = shards.scope_of(rank=1, size=2), shards.table_of(VALUES)
    scope.tables_by_name['table'] = table
    # One that never had shards knows nobody who reads it.
    new = sharding.table_of(table.variable, table.plan, scope)
    assert new is not table and scope.tables_by_name['table'] is new
    assert (new.rank, new.size, new.servers) == (1, 2, shards.SERVERS)
    new.former = 'a former storage'
    again = shards.planned(servers=(1,))
    assert sharding.table_of(table.variable, again, scope) is new and new.plan is again
    as_dense = shards.planned(kind='dense')
    assert sharding.table_of(table.variable, as_dense, scope) is not new


def test_a_variable_that_is_forgotten_is_initialized_by_nobody_until_it_is_remembered(graph):
    variable = tf.Variable(VALUES, name='table')
    sharding.forget_variable(variable)
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        assert graph.get_collection(key) == []
    graph.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tensorflow_api.saveable(variable))
    sharding.remember_variable(variable)
    for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES):
        assert graph.get_collection(key) == [variable]
    assert graph.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) == []


def test_what_is_about_to_get_shards_is_set_aside_if_it_has_no_values_yet(graph):
    there, new, dense = [tf.Variable(VALUES) for _ in range(3)]
    plan = plan_of(shards.planned(), shards.planned(), shards.planned(servers=()))
    with tf.Session() as session:
        session.run(there.initializer)
        found = sharding.set_aside([there, new, dense], plan, session)
    assert found == {there: True, new: False}
    assert tf.global_variables() == [there, dense]


def test_a_session_is_not_asked_for_values_of_variables_that_it_does_not_know(graph):
    known, new = [tf.Variable(VALUES) for _ in range(2)]
    plan, knows = plan_of(shards.planned(), shards.planned()), {known.op: True, new.op: False}
    with tf.Session() as session:
        session.run([known.initializer, new.initializer])
        found = sharding.set_aside([known, new], plan, session, knows.get)
    assert found == {known: True, new: False}
    assert tf.global_variables() == [known]


def test_lookups_and_reads_that_were_built_on_a_variable_read_its_shards():
    ids = tf.placeholder(tf.int32, [None])
    held, dense = tf.Variable(VALUES, name='table'), tf.Variable(1.0, name='dense')
    rows, whole = tf.gather(held, ids), held * 2.0
    loss = tf.reduce_sum(rows) * dense
    plan = plan_of(shards.planned(servers=(0, 1)), shards.planned('dense', (), (), 'dense'))
    sources = {held: ValueSource(True, None)}
    with shards.worker_session() as session:
        session.run(held.initializer)
    tables, fills = sharding.make_tables(loss, [held, dense], plan, sources, shards.scope_of(), 0)
    (table,) = tables.values()
    assert list(tables) == [held] and list(fills) == [table]
    assert isinstance(held, ShardedVariable) and tf.global_variables() == [dense]
    former_storage.redirect([table])
    with shards.worker_session() as session:
        session.run([shard.initializer for shard in table.shards])
        initial_values.run(list(fills.values()), session)
        np.testing.assert_array_equal(session.run(rows, {ids: [5, 0, 5]}), VALUES[[5, 0, 5]])
        np.testing.assert_array_equal(session.run(whole), VALUES * 2)
    # Only the loss's own lookup is pulled for it.
    members = graph_queries.ancestors([loss])
    assert len(sharding.pulls_in(table, members)) == 1
    assert sharding.wholes_in(table, members) == []
    assert sharding.pulls_in(table, graph_queries.ancestors([dense.op])) == []


def test_a_penalty_is_computed_where_the_shards_are_and_once_for_all_losses():
    table = shards.table_of(VALUES, (0, 1))
    own, other = (tf.reduce_sum(tf.square(table.variable.value())) for _ in range(2))
    regularizer = lambda rows: tf.reduce_sum(tf.square(rows))  # noqa: E731
    table._record = SimpleNamespace(penalties=[own, other], regularizer=regularizer)
    losses = [own * 3.0, other * 5.0, own * 7.0]
    sharding.redirect_penalties(table, graph_queries.ancestors(losses[:2]))
    with tf.Session() as session:
        session.run(table.variable.initializer)
        shards.fill(table, VALUES * 10, session)
        square = np.square(VALUES).sum()
        found = session.run(losses)
    np.testing.assert_allclose(found, np.array([300, 500, 7]) * square, rtol=1e-5)
    assert losses[0].op.inputs[0] is losses[1].op.inputs[0] is table.penalty
