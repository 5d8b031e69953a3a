"""What TensorFlow 1.15 alone has, or has not."""

import sys
import types

import cases
import pytest
from frameworks import TF1_15, tf

import keras_parallax as kp
from keras_parallax.compat import keras_api

pytestmark = pytest.mark.skipif(not TF1_15, reason='it is of TensorFlow 1.15 alone')


def test_a_keras_beside_that_of_tensorflow_is_refused_with_the_import_to_write(monkeypatch):
    other = types.ModuleType('keras')
    other.__version__ = '2.3.1'
    monkeypatch.setitem(sys.modules, 'keras', other)
    with pytest.raises(kp.StackError, match='keras 2.3.1 was .* `from tensorflow import keras`'):
        keras_api.loaded_keras_packages()


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
