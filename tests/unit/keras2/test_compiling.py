# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `compile` does in a strategy's scope, as far as one process shows it."""

import os
import sys
import warnings

import cases
import launch
import numpy as np
import pytest
import user_scripts
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.compat import late_import

PACKAGES = KERAS_PACKAGES


@pytest.fixture(params=PACKAGES)
def keras(request):
    module = cases.keras_module(request.param)
    module.backend.clear_session()
    yield module
    module.backend.clear_session()


@pytest.mark.parametrize(
    'given',
    [
        lambda keras: 'RMSprop',
        lambda keras: keras.optimizers.Adam(lr=0.2),
        lambda keras: {'class_name': 'SGD', 'config': {'lr': 0.3}},
        lambda keras: tf.train.AdagradOptimizer(0.1),
    ],
    ids=['name', 'instance', 'config', 'of_tensorflow'],
)
def test_compile_in_the_scope_wraps_whatever_keras_takes_for_an_optimizer(keras, given):
    optimizer = given(keras)
    expected = keras.optimizers.get(optimizer)
    with kp.ParallaxStrategy() as strategy:
        model = user_scripts.words_and_dense(keras)
        model.compile(optimizer=optimizer, loss='mse')
    assert isinstance(model.optimizer, type(expected))
    assert type(model.optimizer).__name__ == type(expected).__name__
    model.train_on_batch(*user_scripts.Run(keras).data())
    assert strategy.plan(model)['words/embeddings'].kind == 'sparse'
    assert model.optimizer._parallax_step.spec.loss is model.total_loss


def test_what_keras_takes_for_no_optimizer_is_refused_in_its_words(keras):
    with kp.ParallaxStrategy():
        model = user_scripts.words_and_dense(keras)
        with pytest.raises(ValueError, match='Could not interpret optimizer identifier'):
            model.compile(None, 'mse')


def test_an_optimizer_that_is_wrapped_stays_and_a_second_model_gets_one_of_its_own(keras):
    with kp.ParallaxStrategy():
        optimizer = kp.ParallaxOptimizer(keras.optimizers.Adam(), sparse_update='lazy')
        first, second = user_scripts.words_and_dense(keras), user_scripts.words_and_dense(keras)
        for model in (first, second, first):
            model.compile(optimizer, 'mse')
    assert first.optimizer is optimizer and second.optimizer is not optimizer
    assert second.optimizer._parallax_settings == optimizer._parallax_settings
    assert second.optimizer.iterations is optimizer.iterations
    for model in (first, second, second):
        model.train_on_batch(*user_scripts.Run(keras).data())
    for model in (first, second):
        assert model.optimizer._parallax_step.spec.loss is model.total_loss
    assert keras.backend.get_value(optimizer.iterations) == 3


def test_an_optimizer_made_from_the_config_of_a_wrapped_one_is_plain(keras):
    with kp.ParallaxStrategy():
        model = user_scripts.words_and_dense(keras)
        model.compile(keras.optimizers.SGD(lr=0.3), 'mse')
    made = type(model.optimizer).from_config(model.optimizer.get_config())
    assert type(made) is keras.optimizers.SGD
    assert keras.backend.get_value(made.lr) == np.float32(0.3)


def test_outside_the_scope_one_process_trains_as_keras_does(keras):
    with kp.ParallaxStrategy():
        model = user_scripts.words_and_dense(keras)
    model.compile('sgd', 'mse')
    assert type(model.optimizer) is keras.optimizers.SGD
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter('always')
        model.train_on_batch(*user_scripts.Run(keras).data())
    assert not [warning for warning in noted if 'Strategy' in str(warning.message)]


def test_a_model_without_weights_yet_has_no_plan_and_cannot_resume(keras):
    with kp.ParallaxStrategy() as strategy:
        model = user_scripts.subclass(keras)
        model.compile('sgd', 'mse')
    for call in (strategy.plan, strategy.summary, lambda model: strategy.resume(model, None)):
        with pytest.raises(kp.ScopeError, match='gets its weights with its first batch'):
            call(model)
    model.train_on_batch(*user_scripts.Run(keras).data())
    planned = strategy.plan(model).variables
    kinds = {variable.name.split('/')[-1]: variable.kind for variable in planned}
    assert kinds['embeddings'] == 'sparse' and kinds['recurrent_kernel'] == 'dense'


@pytest.mark.skipif(TF2, reason='Keras takes no strategy there')
def test_a_distribution_strategy_of_tensorflow_is_refused_in_the_scope():
    with kp.ParallaxStrategy():
        model = user_scripts.words_and_dense(tf.keras)
        with pytest.raises(kp.PlanError, match='distribute'):
            model.compile(tf.train.AdamOptimizer(), 'mse', distribute=object())


def under_eager_execution():
    """Prints what a scope and an optimizer raise."""
    tf.enable_eager_execution()
    for function in (
        lambda: kp.ParallaxStrategy().__enter__(),
        lambda: kp.ParallaxOptimizer('sgd'),
    ):
        try:
            function()
        except kp.ScopeError as error:
            print('ScopeError: %s' % error)


def test_eager_execution_is_refused_by_name():
    outcome = launch.run(
        0, 'unit/keras2/test_compiling.py', environ={'PYTHONPATH': os.pathsep.join(sys.path)}
    )
    assert outcome.code == 0, outcome.output
    assert outcome.output.count('ScopeError: TensorFlow executes eagerly') == 2, outcome.output


# --- Packages that are imported later ----------------------------------------------------------


@pytest.fixture
def package(tmpdir, monkeypatch):
    """Name of a package that can be imported, and says whether it is complete."""
    name = 'imported_later_by_%d' % id(tmpdir)
    tmpdir.mkdir(name).join('__init__.py').write('import os\nDONE = bool(os.environ["DONE"])\n')
    monkeypatch.syspath_prepend(str(tmpdir))
    monkeypatch.setenv('DONE', '1')
    finders = list(sys.meta_path)
    yield name
    sys.meta_path[:] = finders
    sys.modules.pop(name, None)


def test_what_is_to_be_done_is_done_once_when_the_package_is_complete(package):
    seen = []
    late_import.when_imported(package, lambda: seen.append(sys.modules[package].DONE))
    assert seen == []
    module = __import__(package)
    __import__(package)
    assert seen == [True]
    # Who asks for its loader gets that which Python would have given it.
    assert module.__loader__ is module.__spec__.loader
    assert module.__loader__.get_source(package).startswith('import os')
    late_import.when_imported(package, lambda: seen.append('at once'))
    assert seen == [True, 'at once']


def test_an_import_that_fails_may_be_tried_again(package, monkeypatch):
    seen = []
    late_import.when_imported(package, lambda: seen.append(package))
    monkeypatch.delenv('DONE')
    with pytest.raises(KeyError):
        __import__(package)
    assert seen == []
    monkeypatch.setenv('DONE', '1')
    __import__(package)
    assert seen == [package]


def test_a_package_that_is_missing_is_missing_as_ever():
    late_import.when_imported('no_such_package_at_all', lambda: None)
    for _ in range(2):
        with pytest.raises(ImportError, match='No module named .no_such_package_at_all'):
            __import__('no_such_package_at_all')
    sys.meta_path.pop(0)


if __name__ == '__main__':
    under_eager_execution()


#: What Keras 2.15 lets a model override for eager execution.
EAGER_METHODS = (
    'train_step', 'test_step', 'predict_step', 'compute_loss', 'compute_metrics',
    'get_metrics_result', 'make_train_function', 'make_test_function', 'make_predict_function',
)  # fmt: skip


def regressor(keras, bases=(), **methods):
    """A model of a class of the user's, and the class."""
    own = type('Regressor', (*bases, keras.models.Model), methods)
    inputs = keras.layers.Input((2,))
    if TF2:
        return own(inputs, keras.layers.Dense(1)(inputs))
    return own(inputs=inputs, outputs=keras.layers.Dense(1)(inputs))


@pytest.mark.parametrize('method', EAGER_METHODS)
def test_a_method_that_keras_ignores_in_a_graph_is_refused_where_it_would_be_called(keras, method):
    def override(model, *arguments, **named):
        raise AssertionError('nobody calls it')

    of_class = regressor(keras, **{method: override})
    mixin = regressor(keras, bases=(type('Mixin', (), {method: override}),))
    of_object = regressor(keras)
    setattr(of_object, method, override)
    with kp.ParallaxStrategy():
        for model, name in ((of_class, 'Regressor'), (mixin, 'Mixin'), (of_object, 'Regressor')):
            if not TF2:
                # Keras 2.2.4 has no such methods: the name is the user's.
                model.compile('sgd', 'mse')
                continue
            with pytest.raises(kp.PlanError) as caught:
                model.compile('sgd', 'mse')
            assert '%s.%s' % (name, method) in str(caught.value)


def test_a_model_that_overrides_other_methods_is_compiled(keras):
    def train(model, *arguments):
        return None

    with kp.ParallaxStrategy():
        model = regressor(keras, bases=(type('Mixin', (), {'train': train}),), step=train)
        model.compile('sgd', 'mse')
    model.train_on_batch(np.ones((4, 2)), np.ones((4, 1)))


@pytest.mark.skipif(not TF2, reason='Keras 2.2.4 has no such models')
def test_a_model_of_keras_is_refused_unless_it_has_the_same_for_graphs(keras):
    layers, experimental = keras.layers, keras.models.experimental
    premade = keras.experimental
    with kp.ParallaxStrategy():
        inner = keras.models.Sequential([layers.Dense(1, input_shape=(2,))])
        with pytest.raises(kp.PlanError, match='SharpnessAwareMinimization.train_step'):
            experimental.SharpnessAwareMinimization(inner).compile('sgd', 'mse')
        deep = keras.models.Sequential([layers.Dense(1)])
        premade.WideDeepModel(premade.LinearModel(), deep).compile('sgd', 'mse')
