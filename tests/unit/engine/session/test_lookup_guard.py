# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks of ids where a graphics card may look them up, which itself would return zeros."""

import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, keras_module, tf

import keras_parallax as kp
from keras_parallax.compat.installed_frameworks import generation

ROWS = 10


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request, monkeypatch):
    """A Keras package, as if TensorFlow saw a card."""
    monkeypatch.setattr(generation, 'visible_cards', lambda: 1)
    module = keras_module(request.param)
    module.backend.clear_session()
    return module


def checked_lookups(keras):
    """The gathers in the graph whose ids wait for an assertion, a list of operations."""
    gathers = [
        operation
        for operation in keras.backend.get_session().graph.get_operations()
        if operation.type in ('Gather', 'GatherV2', 'ResourceGather')
    ]
    return [
        gather
        for gather in gathers
        if 'Assert' in [before.type for before in gather.inputs[1].op.control_inputs]
    ]


def model_in_scope(keras):
    with kp.ParallaxStrategy():
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, 4, input_length=2),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(0.1)), 'mse')
    return model


@pytest.mark.parametrize('bad', [ROWS, -1])
def test_an_id_without_a_row_is_refused_before_anything_is_trained(keras, bad):
    model = model_in_scope(keras)
    before = model.get_weights()
    ids = np.zeros((3, 2), np.int64)
    ids[1, 1] = bad
    for run in (model.predict_on_batch, lambda ids: model.train_on_batch(ids, np.zeros((3, 1)))):
        with pytest.raises(kp.IdOutOfRangeError, match='id %d, .* %d rows' % (bad, ROWS)) as error:
            run(ids)
        # It is our check that has found it, and not the gather of the CPU.
        assert 'keras-parallax' in str(error.value.__cause__)
    for weight, former in zip(model.get_weights(), before):
        np.testing.assert_array_equal(weight, former)


def test_checked_lookups_train_as_others_do(keras, monkeypatch):
    ids, target = np.random.RandomState(1).randint(0, ROWS, (8, 2)), np.ones((8, 1))
    trained = []
    for cards in (0, 1):
        monkeypatch.setattr(generation, 'visible_cards', lambda cards=cards: cards)
        keras.backend.clear_session()
        model = model_in_scope(keras)
        model.set_weights([np.full(weight.shape, 0.5) for weight in model.get_weights()])
        losses = [model.train_on_batch(ids, target) for _ in range(3)]
        trained.append((losses, model.get_weights(), len(checked_lookups(keras))))
    (losses, weights, without), (own_losses, own_weights, checked) = trained
    assert not without and checked
    assert own_losses == losses
    for weight, own in zip(weights, own_weights):
        np.testing.assert_array_equal(weight, own)


def test_a_lookup_in_a_loop_is_checked_there(keras):
    with kp.ParallaxStrategy():
        table = tf.get_variable('table', (ROWS, 2), initializer=tf.ones_initializer())
        ids = tf.placeholder(tf.int32, [None])
        rows = tf.map_fn(lambda number: tf.gather(table, number), ids, dtype=tf.float32)
        session = keras.backend.get_session()
        session.run(table.initializer)
        np.testing.assert_array_equal(session.run(rows, {ids: [0, 9]}), np.ones((2, 2)))
        with pytest.raises(kp.IdOutOfRangeError, match='id 11'):
            session.run(rows, {ids: [0, 11]})


def test_a_gather_of_what_is_no_variable_is_left_alone(keras):
    with kp.ParallaxStrategy():
        values = tf.placeholder(tf.float32, [None, 2])
        rows = tf.gather(values, [0])
        keras.backend.get_session().run(rows, {values: np.ones((3, 2))})
        assert not checked_lookups(keras)
