# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `kp.load_model` makes of what a file says about `compile`."""

import os
import warnings

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.errors import CheckpointError

IDS = np.arange(12).reshape(6, 2)
TARGETS = [np.linspace(-1, 1, 6).reshape(6, 1), np.linspace(1, 0, 6).reshape(6, 1)]


def losses_of(keras):
    """Loss objects and a function of the script's own, for packages that have loss objects."""

    class Quartic(keras.losses.Loss):
        def call(self, true, predicted):
            return keras.backend.mean(keras.backend.pow(true - predicted, 4), axis=-1)

    return {
        'objects': {
            'left': keras.losses.MeanSquaredError(),
            'right': keras.losses.Huber(delta=0.5),
        },
        'one object': keras.losses.MeanSquaredError(),
        'a list': ['mse', keras.losses.MeanAbsoluteError()],
        'own': Quartic(),
    }, {'Quartic': Quartic}


@pytest.mark.parametrize('package', KERAS_PACKAGES)
@pytest.mark.parametrize('name', ['objects', 'one object', 'a list', 'own'])
def test_a_model_with_loss_objects_goes_on_with_the_same_losses(package, name, tmpdir):
    keras = cases.keras_module(package)
    if not hasattr(keras.losses, 'Loss'):
        pytest.skip('this Keras has no loss objects')
    keras.backend.clear_session()
    losses, custom = losses_of(keras)
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((2,), dtype='int32')
        rows = keras.layers.Flatten()(keras.layers.Embedding(12, 3, name='table')(ids))
        outputs = [keras.layers.Dense(1, name=side)(rows) for side in ('left', 'right')]
        model = keras.models.Model(ids, outputs)
        model.compile('adagrad', losses[name], loss_weights=[1.0, 0.5])
    model.train_on_batch(IDS, TARGETS)
    path, expected = os.path.join(str(tmpdir), 'model.h5'), model.evaluate(IDS, TARGETS, verbose=0)
    model.save(path)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        loaded = kp.load_model(path, custom_objects=custom)
    np.testing.assert_allclose(loaded.evaluate(IDS, TARGETS, verbose=0), expected, rtol=1e-6)


@pytest.mark.parametrize('package', KERAS_PACKAGES)
def test_load_model_warns_once_of_slots_of_a_frozen_layer_which_resume_refuses(package, tmpdir):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    path, optimizer = os.path.join(str(tmpdir), 'model.h5'), keras.optimizers.Adagrad()
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((2,), dtype='int32')
        rows = keras.layers.Flatten()(keras.layers.Embedding(12, 3, name='table')(ids))
        model = keras.models.Model(ids, keras.layers.Dense(1)(rows))
        model.compile(optimizer, 'mse')
    model.train_on_batch(IDS, TARGETS[0])
    model.layers[1].trainable = False
    with kp.ParallaxStrategy():
        model.compile(optimizer, 'mse')
    model.save(path)
    keras.backend.clear_session()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        with kp.ParallaxStrategy() as strategy:
            loaded = kp.load_model(path)
    assert len([one for one in caught if 'another optimizer or model' in str(one.message)]) == 1
    with pytest.raises(CheckpointError, match='another optimizer or model'):
        strategy.resume(loaded, path)
