# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What scripts for TensorFlow 2 are told: of optimizers, of eager execution, of Keras 3."""

import contextlib
import os
import subprocess
import sys

import cases
import h5py
import hidden_packages
import numpy as np
import pytest
import reference
from frameworks import TF1_15, TF2, keras_module

import keras_parallax as kp
from keras_parallax.compat.horovod_api import hvd

pytestmark = pytest.mark.skipif(not TF2 or TF1_15, reason='it is of TensorFlow 2 alone')

#: Where `python -c` finds no package of the checkout.
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def keras():
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    return keras


def eager(name):
    """The class of that name that Keras 2.11 and later have for eager execution."""
    return getattr(keras_module('tf.keras').optimizers.experimental, name)


def compiled_with(optimizer, keras):
    with kp.ParallaxStrategy():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(optimizer, 'mse')
    return model.optimizer


@pytest.mark.parametrize(
    'name, arguments',
    [
        ('SGD', {'momentum': 0.5, 'nesterov': True}),
        ('Adam', {'beta_1': 0.8, 'epsilon': 1e-5, 'amsgrad': True}),
        ('RMSprop', {'rho': 0.8, 'centered': True}),
        ('Adagrad', {'initial_accumulator_value': 0.2}),
        ('Adam', {'clipnorm': 0.5}),
        ('Adam', {'weight_decay': 0, 'use_ema': False, 'ema_momentum': 0.5}),
    ],
)
def test_an_optimizer_for_eager_execution_is_turned_into_its_twin(keras, name, arguments):
    found = compiled_with(eager(name)(0.25, **arguments), keras)
    assert isinstance(found, getattr(keras.optimizers.legacy, name))
    config = found.get_config()
    assert config['learning_rate'] == 0.25
    for argument, value in arguments.items():
        if argument not in ('weight_decay', 'use_ema', 'ema_momentum'):
            assert config[argument] == value


def test_a_schedule_goes_over_to_the_twin(keras):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
    assert compiled_with(eager('SGD')(schedule), keras)._hyper['learning_rate'] is schedule


@pytest.mark.parametrize(
    'name, arguments, told',
    [
        ('Adam', {'weight_decay': 0.1}, 'Adam with weight_decay is for .* such as legacy.Adam'),
        ('SGD', {'use_ema': True}, 'SGD with use_ema is for .* such as legacy.SGD'),
        ('AdamW', {}, 'AdamW with weight_decay is for .* such as legacy.Adam'),
        ('Adafactor', {}, 'Adafactor is for eager execution'),
    ],
)
def test_one_that_no_twin_means_the_same_as_is_refused(keras, name, arguments, told):
    with pytest.raises(kp.PlanError, match=told):
        compiled_with(eager(name)(0.25, **arguments), keras)


def test_a_users_subclass_for_eager_execution_is_refused(keras):
    mine = type('Adam', (eager('Adam'),), {'__module__': 'mine'})
    with pytest.raises(kp.PlanError, match='Adam is for eager execution; .* such as legacy.Adam'):
        compiled_with(mine(0.25), keras)


@pytest.mark.parametrize('weights_only', [False, True])
def test_keras_own_callback_saves_a_model_of_a_strategy(keras, tmp_path, weights_only):
    path = str(tmp_path / 'saved.h5')
    with kp.ParallaxStrategy():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(keras.optimizers.Adam(0.01), 'mse')
    callback = keras.callbacks.ModelCheckpoint(path, save_weights_only=weights_only)
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0, callbacks=[callback])
    with h5py.File(path, 'r') as file:
        assert ('optimizer_weights' in file) is not weights_only
    kernel = model.get_weights()[0]
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    model.load_weights(path)
    np.testing.assert_array_equal(model.get_weights()[0], kernel)


def test_the_rates_of_an_optimizer_are_what_ranks_must_hold_the_same_values_of(keras):
    with kp.ParallaxStrategy():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(keras.optimizers.SGD(0.01), 'mse')
    model.train_on_batch(np.ones([4, 2]), np.ones([4, 1]))
    variables = list(model.optimizer._parallax_step.operations._synced.values())
    assert any(variable is model.optimizer._hyper['learning_rate'] for variable in variables)


def output_of(script, path='', legacy=None):
    """What a fresh Python prints for a script, with a folder before everything installed."""
    environ = {name: os.environ[name] for name in os.environ if name != 'TF_USE_LEGACY_KERAS'}
    environ.update({} if legacy is None else {'TF_USE_LEGACY_KERAS': legacy})
    paths = [str(path), os.path.dirname(kp.__path__[0])]
    process = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=HERE,
        env=dict(environ, PYTHONPATH=os.pathsep.join(filter(None, paths))),
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_under_eager_execution_a_model_of_keras_2_is_told_what_to_do():
    pytest.importorskip('keras', minversion='3')
    script = (
        'import tensorflow as tf, tf_keras\n'
        'import keras_parallax as kp\n'
        'layer = tf_keras.layers.Dense(1, input_shape=(2,))\n'
        'try:\n'
        '    with kp.ParallaxStrategy():\n'
        '        tf_keras.Sequential([layer])\n'
        'except kp.ScopeError as error:\n'
        '    print(error)\n'
        'model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])\n'
        "model.compile('sgd', 'mse')\n"
        "print(model.train_on_batch(tf.zeros([2, 2]), tf.zeros([2, 1])))\n"
    )
    told, loss = output_of(script).strip().split('\n')
    assert told.startswith('TensorFlow executes eagerly')
    assert 'call tf.compat.v1.disable_v2_behavior() at the top of the script' in told
    assert float(loss) == 0


def test_where_keras_is_keras_2_the_scope_says_what_to_do_and_changes_nothing():
    script = (
        'import tensorflow as tf, tf_keras\n'
        'import keras_parallax as kp\n'
        'compile, session = tf_keras.Model.compile, tf.compat.v1.Session\n'
        'try:\n'
        '    kp.ParallaxStrategy().__enter__()\n'
        'except kp.ScopeError as error:\n'
        '    print(error)\n'
        'print(tf_keras.Model.compile is compile, tf.compat.v1.Session is session)\n'
    )
    told, unchanged = output_of(script, legacy='1').strip().split('\n')
    assert told.startswith('TensorFlow executes eagerly')
    assert unchanged == 'True True'


#: What scripts with Keras 3 do in the scope, and what they are told.
WITH_MODELS_OF_KERAS_3 = """
import tensorflow as tf
import keras_parallax as kp

def told(act):
    try:
        act()
    except kp.ScopeError as error:
        print(error)

tf.compat.v1.disable_v2_behavior()
import keras, tf_keras

outside = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
outside.compile('sgd', 'mse')
with kp.ParallaxStrategy():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    told(lambda: model.compile('sgd', 'mse'))
    told(lambda: kp.ParallaxOptimizer(keras.optimizers.SGD()))
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
    told(lambda: model.compile(keras.optimizers.SGD(), 'mse'))
    model.compile('sgd', 'mse')
print('compiled')
"""


def test_a_model_or_an_optimizer_of_keras_3_is_refused_with_both_ways_to_keras_2():
    keras = pytest.importorskip('keras', minversion='3')
    *refused, compiled = output_of(WITH_MODELS_OF_KERAS_3).strip().split('\n')
    assert len(refused) == 3 and compiled == 'compiled'
    for told, what in zip(refused, ('Sequential', 'SGD', 'SGD')):
        assert what in told and 'Keras %s' % keras.__version__ in told
        assert 'TF_USE_LEGACY_KERAS=1' in told and 'import tf_keras as keras' in told


#: Compiles a model of `tf.keras` in graph mode where there is no `tf_keras`.
WITH_KERAS_3_ALONE = """
import hidden_packages
hidden_packages.hide()
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
import keras_parallax as kp
from tensorflow import keras

with kp.ParallaxStrategy():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    try:
        model.compile('sgd', 'mse')
    except kp.ScopeError as error:
        print(type(error).__name__, error)
"""


def test_keras_3_alone_is_told_with_the_package_that_has_keras_2(monkeypatch):
    pytest.importorskip('keras', minversion='3', reason='`tf.keras` is Keras 2 there')
    monkeypatch.setenv(hidden_packages.VARIABLE, 'tf_keras')
    path = os.path.dirname(hidden_packages.__file__)
    told = output_of(WITH_KERAS_3_ALONE, path, legacy='0')
    assert told.startswith('ScopeError')
    assert "pip install 'tf-keras~=2." in told and 'TF_USE_LEGACY_KERAS=1' in told


@pytest.mark.parametrize('has_strategy', (True, False))
def test_a_layer_that_calls_a_function_is_trained_as_in_plain_keras(keras, has_strategy):
    case = cases.find('in_function')
    start, losses, _ = reference.run(case, keras, 1)
    keras.backend.clear_session()
    hvd.init()
    with kp.ParallaxStrategy() if has_strategy else contextlib.nullcontext():
        model = case.model(keras)
        model.compile(kp.ParallaxOptimizer(case.optimizer(keras)), case.loss)
    if not has_strategy:
        # What sets weights has a session see the graph, after which plain Keras does not train.
        model._make_train_function()
    model.set_weights(start)
    found = cases.train(model, cases.joined_batches(case, 1))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
