# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What TensorFlow 1.15 alone has, or has not."""

import contextlib
import sys
import types

import cases
import numpy as np
import pytest
from frameworks import TF1_15, tf

import keras_parallax as kp
from keras_parallax.compat import keras_api

pytestmark = pytest.mark.skipif(not TF1_15, reason='it is of TensorFlow 1.15 alone')


def test_another_keras_than_2_3_beside_that_of_tensorflow_is_refused(monkeypatch):
    other = types.ModuleType('keras')
    other.__version__ = '2.2.4'
    monkeypatch.setitem(sys.modules, 'keras', other)
    with pytest.raises(kp.StackError, match='2.3.x or .*, but 2.2.4 .* pip install keras==2.3.1'):
        keras_api.loaded_keras_packages()


@pytest.mark.parametrize('name', ('RowwiseAdagrad', 'LazyAdam'))
def test_optimizers_of_ours_are_of_the_class_of_their_package(name):
    cls = getattr(kp.optimizers, name)
    v2 = cases.keras_module('tf.keras').optimizers.Optimizer
    own = cases.keras_module('keras').optimizers.Optimizer
    assert isinstance(cls(0.1, keras='tf.keras'), v2)
    of_keras = cls(0.1, keras='keras')
    assert isinstance(of_keras, own) and not isinstance(of_keras, v2)
    assert of_keras.get_config()['lr'] == pytest.approx(0.1)


@pytest.mark.parametrize('name', ('Adadelta', 'Adagrad', 'Adam', 'RMSprop', 'Nadam'))
def test_what_optimizers_of_keras_2_3_list_is_as_in_plain_keras(name):
    keras = cases.keras_module('keras')

    def weights_of(context, wrapped):
        keras.backend.clear_session()
        with context:
            model = cases.embed_and_sum()(keras)
            model.compile(wrapped(getattr(keras.optimizers, name)(0.1)), 'mse')
        model.set_weights(cases.start_weights(model))
        cases.train(model, cases.batches(cases.CASES['adam'], 1, 0, 3))
        return model.optimizer.get_weights()

    found = weights_of(kp.ParallaxStrategy(), kp.ParallaxOptimizer)
    expected = weights_of(contextlib.nullcontext(), lambda optimizer: optimizer)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_an_optimizer_that_scales_the_loss_is_refused():
    keras = cases.keras_module('tf.keras')
    scaling = keras.mixed_precision.experimental.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), 'dynamic'
    )
    with kp.ParallaxStrategy(), pytest.raises(kp.PlanError, match='no loss is scaled'):
        kp.ParallaxOptimizer(scaling)


def test_a_model_in_mixed_precision_is_refused():
    keras = cases.keras_module('tf.keras')
    with kp.ParallaxStrategy():
        model = cases.embed_and_sum()(keras)
        model._dtype_policy = keras.mixed_precision.experimental.Policy('mixed_float16')
        with pytest.raises(kp.PlanError, match='no loss is scaled'):
            model.compile(keras.optimizers.SGD(0.1), 'mse')


def test_every_variable_of_a_table_is_a_resource():
    keras = cases.keras_module('tf.keras')
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = cases.embed_and_sum()(keras)
        model.compile(keras.optimizers.Adagrad(0.1), 'mse')
        model._make_train_function()
    handles = {operation.type for operation in tf.get_default_graph().get_operations()}
    assert 'VarHandleOp' in handles and 'VariableV2' not in handles
