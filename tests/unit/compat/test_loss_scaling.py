# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models that compute in half precision: who scales their loss, and what a checkpoint keeps."""

import cases
import numpy as np
import pytest
from frameworks import TF1_15, TF2, keras_module

import keras_parallax as kp
from keras_parallax.checkpoint import save
from keras_parallax.engine.step import asynchronous
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.optimizer import is_wrapped

pytestmark = pytest.mark.skipif(not TF2 or TF1_15, reason='mixed precision is for TensorFlow 2')


@pytest.fixture
def keras():
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    return keras


def scaling(keras, optimizer, **arguments):
    return keras.mixed_precision.LossScaleOptimizer(optimizer, **arguments)


def compiled(keras, make, model=cases.half_computed):
    """A model, compiled in a scope with the optimizer that is made there, and the strategy."""
    with kp.ParallaxStrategy() as strategy:
        model = model(keras)
        model.compile(make(keras), 'mse')
    model.set_weights(cases.start_weights(model))
    return strategy, model


def train(model, targets):
    for target in targets:
        model.train_on_batch(np.arange(10).reshape(2, 5), np.full((2, 1), target))


def scale_of(model):
    optimizer = model.optimizer
    return keras_module('tf.keras').backend.batch_get_value(
        [optimizer.loss_scale, optimizer.dynamic_counter]
    )


@pytest.mark.parametrize(
    'make',
    [
        lambda keras: 'sgd',
        lambda keras: keras.optimizers.SGD(),
        lambda keras: kp.ParallaxOptimizer(keras.optimizers.SGD()),
        lambda keras: scaling(keras, keras.optimizers.SGD()),
        lambda keras: kp.ParallaxOptimizer(scaling(keras, keras.optimizers.SGD())),
        lambda keras: scaling(keras, keras.optimizers.experimental.SGD()),
    ],
    ids=['name', 'plain', 'wrapped', 'scaling', 'scaling, wrapped', 'scaling one for eager'],
)
def test_the_loss_is_scaled_as_keras_has_it_however_the_optimizer_is_given(keras, make):
    _, model = compiled(keras, make)
    assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    assert is_wrapped(model.optimizer) and not is_wrapped(model.optimizer.inner_optimizer)
    before = model.get_weights()
    train(model, [0.1, np.inf])
    assert scale_of(model) == [2.0**14, 0]
    assert not np.array_equal(before[0], model.get_weights()[0])
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_arguments_of_a_wrapped_optimizer_count_when_its_loss_is_scaled(keras):
    def make(keras):
        return kp.ParallaxOptimizer(keras.optimizers.SGD(), sparse_reduction='sum')

    _, model = compiled(keras, make)
    assert model.optimizer._parallax_settings.sparse_reduction == 'sum'


def test_a_model_of_single_precision_has_no_scale(keras):
    _, model = compiled(keras, lambda keras: 'sgd', cases.embed_and_sum())
    assert type(model.optimizer).__name__ == 'SGD'


def test_a_checkpoint_keeps_the_scale_and_slots(keras, tmp_path):
    def make(keras):
        return scaling(keras, keras.optimizers.Adam(0.01), dynamic_growth_steps=4)

    _, model = compiled(keras, make)
    train(model, [0.1, np.inf, np.inf, 0.1, 0.1])
    path = str(tmp_path / 'model.h5')
    save.save(model, path)
    expected = [scale_of(model), model.get_weights() + model.optimizer.get_weights()]
    keras.backend.clear_session()
    strategy, model = compiled(keras, make)
    strategy.resume(model, path)
    assert scale_of(model) == expected[0] == [2.0**13, 2]
    found = model.get_weights() + model.optimizer.get_weights()
    assert len(found) == len(expected[1]) == 16
    for one, other in zip(found, expected[1]):
        np.testing.assert_array_equal(one, other)


def test_plain_keras_reads_a_file_of_the_model(keras, tmp_path):
    _, model = compiled(keras, lambda keras: keras.optimizers.Adam(0.01))
    train(model, [1.0, 0.5])
    path = str(tmp_path / 'model.h5')
    model.save(path)
    expected = model.get_weights() + model.optimizer.get_weights()
    keras.backend.clear_session()
    model = keras.models.load_model(path)
    model._make_train_function()
    assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    for one, other in zip(model.get_weights() + model.optimizer.get_weights(), expected):
        np.testing.assert_array_equal(one, other)


def test_the_other_way_round_is_refused(keras):
    with kp.ParallaxStrategy():
        optimizer = scaling(keras, kp.ParallaxOptimizer(keras.optimizers.SGD()))
        with pytest.raises(ValueError, match='wrap the LossScaleOptimizer instead'):
            kp.ParallaxOptimizer(optimizer)


def test_steps_that_are_left_out_need_workers_that_wait_for_each_other(keras):
    for arguments, message in (({}, 'dynamic=True'), ({'dynamic': False, 'initial_scale': 8}, '')):
        scale = adapter_of(scaling(keras, keras.optimizers.SGD(), **arguments)).loss_scale
        if message:
            with pytest.raises(kp.PlanError, match=message):
                asynchronous.check_loss_scale(scale)
        else:
            asynchronous.check_loss_scale(scale)
    asynchronous.check_loss_scale(adapter_of(keras.optimizers.SGD()).loss_scale)
