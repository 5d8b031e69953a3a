# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A frozen graph computes what the model computes, without a server."""

import contextlib

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.engine.session.frozen_graphs import definition_of_whole_tables
from keras_parallax.engine.session.graph_scope import scope_of

IDS = np.arange(12, dtype=np.int32).reshape(4, 3) % 7


def model_of(keras, table):
    ids = keras.layers.Input((3,), dtype='int32')
    return keras.models.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(table(ids))))


def frozen(keras, model):
    session = keras.backend.get_session()
    return tf.graph_util.convert_variables_to_constants(
        session, session.graph.as_graph_def(), [model.outputs[0].op.name]
    )


@pytest.mark.parametrize('package', KERAS_PACKAGES[:1])
def test_a_frozen_graph_of_one_process_predicts_as_the_model(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = model_of(keras, keras.layers.Embedding(7, 2))
        model.compile('sgd', 'mse')
    model.train_on_batch(IDS, np.ones((4, 1)))
    definition, output = frozen(keras, model), model.outputs[0].name
    with tf.Graph().as_default(), contextlib.closing(tf.Session()) as session:
        (again,) = tf.import_graph_def(definition, return_elements=[output], name='')
        found = session.run(again, {model.inputs[0].name: IDS})
    np.testing.assert_allclose(found, model.predict(IDS), rtol=1e-6)


def test_a_definition_to_freeze_names_devices_of_no_task():
    with tf.Graph().as_default() as graph, tf.device('/job:worker/task:3/device:CPU:1'):
        tf.constant(1.0, name='one')
        with kp.ParallaxStrategy():
            definition = graph.as_graph_def()
            copy = definition_of_whole_tables(scope_of(graph), definition)
    assert [node.device for node in copy.node if node.name == 'one'] == ['/device:CPU:1']
    assert 'task:3' in next(node.device for node in definition.node if node.name == 'one')
