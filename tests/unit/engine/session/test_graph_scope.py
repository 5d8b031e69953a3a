# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a strategy keeps of a graph, and which strategy a model is of."""

import numpy as np
import pytest
import shards
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.engine.session import graph_scope
from keras_parallax.engine.session.graph_scope import WeightRecord, scope_of
from keras_parallax.errors import ScopeError


@pytest.fixture
def graph():
    keras.backend.clear_session()
    yield tf.get_default_graph()
    keras.backend.clear_session()


def test_a_tensor_is_of_the_strategy_in_whose_scope_it_was_built(graph):
    before = tf.constant(1.0)
    with kp.ParallaxStrategy() as one:
        first = tf.constant(2.0)
        scope = scope_of(graph)
        assert scope.strategy_of(first) is one and scope.open_strategy is one
    between = tf.constant(3.0)
    with kp.ParallaxStrategy() as other:
        second = tf.constant(4.0)
    found = [scope.strategy_of(tensor) for tensor in (before, first, between, second)]
    assert found == [None, one, None, other] and scope.open_strategy is None
    scope.note_loss(between, one)
    assert scope.strategy_of(between) is one


def test_a_scope_within_another_is_open_until_it_is_left(graph):
    with kp.ParallaxStrategy() as outer:
        scope = scope_of(graph)
        with scope.opened_by('an inner one'):
            inner = tf.constant(1.0)
            assert scope.open_strategy == 'an inner one'
        assert scope.open_strategy is outer and graph_scope.scope_is_open()
    assert not graph_scope.scope_is_open()
    assert scope.strategy_of(inner) == 'an inner one'


def test_a_graph_has_one_scope_and_no_strategies_with_other_servers(graph):
    with kp.ParallaxStrategy() as strategy:
        scope = scope_of(graph)
    job = scope.job
    assert graph_scope.attach(graph, job, scope.server, scope.servers) is scope
    with pytest.raises(ScopeError, match='other servers'):
        graph_scope.attach(graph, job, object(), None)
    assert scope_of(tf.Graph()) is None and strategy.size == 1


def test_a_weight_is_found_by_its_name_and_by_the_lookups_that_read_it(graph):
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((3,), dtype='int32')
        rows = keras.layers.Embedding(5, 2, name='words')(ids)
        dense = keras.layers.Dense(1, name='out')
        dense(keras.layers.Flatten()(rows))
        other = tf.Variable(np.ones(2), name='of_a_script')
        tf.gather(other, [1], name='lookup')
    scope = scope_of(graph)
    table = scope.weight_named('words/embeddings')
    assert scope.records[table].layer_name == 'words'
    assert scope.weight_named('of_a_script') is other
    assert scope.weight_named('no such weight') is None
    (lookup,) = graph_scope.reads(table).lookups
    assert scope.weight_read_by(lookup.name) is table
    assert scope.weight_read_by('out/MatMul') is None


def test_of_one_process_without_servers_a_model_may_train_outside(graph):
    with kp.ParallaxStrategy():
        scope = scope_of(graph)
    assert not scope.must_exchange and scope.is_synchronous
    assert not scope.cluster.dedicated_servers


def test_where_servers_hold_tables_one_process_may_not_train_outside_either(graph):
    with kp.ParallaxStrategy():
        job = scope_of(graph).job
    of_own = shards.SERVERS
    dedicated = of_own._replace(addresses=('host:1', 'host:2', 'host:3'))
    for servers, expected in ((of_own, False), (dedicated, True)):
        with tf.Graph().as_default() as other:
            scope = graph_scope.attach(other, job, None, servers)
            assert scope.must_exchange and scope.cluster.dedicated_servers == expected


def test_a_regularizer_whose_penalty_does_not_depend_on_the_weight_is_none():
    assert WeightRecord('keras', 'layer', 'l2', []).regularizer is None
    assert WeightRecord('keras', 'layer', 'l2', ['a penalty']).regularizer == 'l2'


def test_what_a_script_writes_is_one_change(graph):
    with kp.ParallaxStrategy():
        scope = scope_of(graph)
    written, before = [], scope.changes.since_step

    def write():
        scope.changes.note()
        written.append('written')

    scope.order_write(['table:0'], write, pytest.fail)
    assert written == ['written'] and scope.changes.since_step == before
