# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics are logged by the names of Keras's default mode, too."""

import cases
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES, TF1_15, TF2

import keras_parallax as kp
from keras_parallax.callbacks.default_names import other_names

#: Whether Keras calls a metric by the string that it was given, in its default mode.
HAS_OTHERS = TF2 and not TF1_15


@pytest.fixture
def keras():
    keras = cases.keras_module(KERAS_PACKAGES[-1])
    keras.backend.clear_session()
    yield keras
    keras.backend.clear_session()


def data():
    random = np.random.RandomState(0)
    x = random.uniform(size=(24, 3))
    return x, (x.sum(1) > 1.5).astype('float32')


def compiled(keras, gated=lambda optimizer: optimizer):
    layers = keras.layers
    out = layers.Dense(1, activation='sigmoid', kernel_initializer='ones')
    model = keras.models.Sequential([layers.Dense(3, input_shape=(3,)), out])
    model.compile(gated(keras.optimizers.SGD(0.5)), 'binary_crossentropy', metrics=['accuracy'])
    return model


def stopped(keras, model, monitor):
    """Trains until a metric gets worse; what `History` has."""
    callback = keras.callbacks.EarlyStopping(monitor, mode='max', patience=0)
    validation = data()
    return model.fit(
        *data(), 8, 9, verbose=0, shuffle=False, callbacks=[callback], validation_data=validation
    ).history


def test_a_callback_monitors_a_metric_by_the_string_that_compile_was_given(keras):
    start = compiled(keras).get_weights()
    plain = compiled(keras, reference.gated)
    plain.set_weights(start)
    history = stopped(keras, plain, 'val_acc')
    assert 1 < len(history['acc']) < 9
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = compiled(keras)
    model.set_weights(start)
    found = stopped(keras, model, 'val_accuracy' if HAS_OTHERS else 'val_acc')
    expected = reference.with_default_names(history)
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5)


def test_metrics_of_several_outputs_have_both_names_at_the_end_of_an_epoch(keras):
    layers, logged = keras.layers, set()
    with kp.ParallaxStrategy():
        x = layers.Input((3,))
        outputs = [layers.Dense(1, name=name)(x) for name in ('click', 'buy')]
        model = keras.models.Model(x, outputs)
        model.compile('sgd', 'mse', metrics={'click': 'mae', 'buy': ['mae', 'mse']})
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logged.update(logs))
    model.fit(data()[0], [data()[1]] * 2, verbose=0, callbacks=[note])
    both = {'click_mae', 'buy_mae', 'buy_mse', 'buy_mean_absolute_error'}
    assert logged & both == (both if HAS_OTHERS else {'buy_mean_absolute_error'})


def test_a_name_that_is_in_the_logs_keeps_its_value():
    logs = {'acc': 0.5, 'accuracy': 0.25, 'val_acc': 1.0}
    assert other_names(logs, {'acc': 'accuracy'}) == {'val_accuracy': 1.0}
