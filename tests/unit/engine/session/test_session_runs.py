# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a training step runs in place of what it is asked to: states are written after gradients."""

import cases
import numpy as np
import pytest
import recipes
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.engine.session.graph_scope import scope_of


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    return cases.keras_module(request.param)


def normalized(keras):
    return keras.models.Sequential(
        [
            keras.layers.Embedding(cases.ROWS, 4, batch_input_shape=(6, cases.LENGTH)),
            keras.layers.BatchNormalization(name='normal'),
            keras.layers.LSTM(3, stateful=True, name='memory'),
            keras.layers.Dense(1),
        ]
    )


def test_states_and_moving_averages_are_written_after_the_gradients(keras):
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = normalized(keras)
        model.compile(
            kp.ParallaxOptimizer('sgd', keras='keras' if keras.__name__ == 'keras' else 'tf.keras'),
            'mse',
        )
    assert strategy.size == 1
    random = np.random.RandomState(1)
    batches = [cases.ids_and_targets(random, 6) for _ in range(3)]
    for ids, targets in batches:
        model.predict(ids, batch_size=6)
        model.train_on_batch(ids, targets)
        model.test_on_batch(ids, targets)
    scope = scope_of(model.total_loss.graph)
    function = model.train_function
    (name,) = scope.runs.gated(
        [function.updates_op.name], [tensor.name for tensor in function.outputs]
    )
    run = graph_queries.ancestors([scope.graph.get_operation_by_name(name)])
    computed = model.optimizer._parallax_step.runs.computed
    states = model.get_layer('memory').states
    if keras.__name__ == 'keras':
        # Those of tf.keras are written in a branch.
        states = states + model.get_layer('normal').weights[2:]
    for state in states:
        storage = tensorflow_api.storage(state)
        writes = [
            op for op in storage.consumers() if op in run and tensorflow_api.writes_to(op, storage)
        ]
        assert writes, state
        assert all(computed in graph_queries.ancestors([write]) for write in writes), state


def test_a_metric_is_written_after_what_a_function_returns(keras):
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model, count = recipes.model(keras), recipes.counter(keras)
        model.compile('sgd', 'mse', metrics=[count])
    ids, targets = cases.ids_and_targets(np.random.RandomState(1), 6)
    model.train_on_batch(ids, targets)
    model.test_on_batch(ids, targets)
    scope = scope_of(model.total_loss.graph)
    storage = tensorflow_api.storage(count.count)
    for function in (model.train_function, model.test_function):
        outputs = function.outputs
        (name,) = scope.runs.gated([function.updates_op.name], [tensor.name for tensor in outputs])
        run = graph_queries.ancestors([scope.graph.get_operation_by_name(name)])
        writes = [
            op for op in storage.consumers() if op in run and tensorflow_api.writes_to(op, storage)
        ]
        assert len(writes) == 1
        assert graph_queries.ancestors(writes).issuperset(tensor.op for tensor in outputs)


def test_a_step_that_a_session_runs_by_hand_writes_states_after_the_gradients(keras):
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = normalized(keras)
        model.compile(keras.optimizers.SGD(0.1), 'mse')
    model._make_train_function()
    update, session = model.train_function.updates_op, keras.backend.get_session()
    ids, targets = cases.ids_and_targets(np.random.RandomState(1), 6)
    (given,) = model._targets if TF2 else model.targets
    feeds = {model.inputs[0]: ids, given: targets}
    if model.sample_weights[0] is not None:
        feeds[model.sample_weights[0]] = np.ones(6)
    feeds[keras.backend.learning_phase()] = 1
    options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
    session.run([update, model.total_loss], feeds, options, metadata)
    function = session.make_callable(update, list(feeds), accept_options=True)
    traced = tf.RunMetadata()
    function(*feeds.values(), options=options, run_metadata=traced)
    asked = graph_queries.ancestors([update])
    for state in model.get_layer('memory').states:
        storage = tensorflow_api.storage(state)
        writes = {op.name for op in storage.consumers() if tensorflow_api.writes_to(op, storage)}
        writes &= {op.name for op in asked}
        assert writes, state
        for run in (metadata, traced):
            names = {node.name for part in run.partition_graphs for node in part.node}
            assert not writes & names, state
            assert any('parallax/updates' in name for name in names)
