# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The options of a `ParallaxOptimizer` stay with the file of a model."""

import os

import cases
import h5py
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.checkpoint import optimizer_options

CASE = cases.CASES['adam']
OTHERS = {
    'compression': kp.Compression.fp16,
    'pull_compression': kp.Compression.fp16,
    'sparse_update': 'lazy',
    'sparse_reduction': 'sum',
    'accumulate_steps': 2,
    'loss_reduction': 'mean',
}


class Scaled:
    """A compression of a user's own."""

    compress = staticmethod(lambda tensor: (tensor, None))
    decompress = staticmethod(lambda tensor, context: tensor)


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    module = cases.keras_module(request.param)
    module.backend.clear_session()
    yield module
    module.backend.clear_session()


def saved(keras, folder, **options):
    """The path of a file of a model that has been trained with options."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = CASE.model(keras)
        model.compile(kp.ParallaxOptimizer(CASE.optimizer(keras), **options), CASE.loss)
    model.set_weights(cases.start_weights(model))
    cases.train(model, batches(0, 4))
    path = os.path.join(str(folder), 'model.h5')
    model.save(path)
    keras.backend.clear_session()
    return path


def batches(begin, end):
    return cases.batches(CASE, 1, begin, end)


def settings_of(path, **given):
    with kp.ParallaxStrategy():
        settings = kp.load_model(path, **given).optimizer._parallax_settings
    return {name: getattr(settings, name) for name in optimizer_options.DEFAULTS}


def test_a_loaded_model_has_the_options_that_it_was_saved_with_unless_others_are_given(
    keras, tmpdir
):
    path = saved(keras, tmpdir, **OTHERS)
    assert settings_of(path) == OTHERS
    given = {'accumulate_steps': 1, 'compression': kp.Compression.none, 'sparse_update': 'exact'}
    keras.backend.clear_session()
    assert settings_of(path, **given) == {**OTHERS, **given}


def test_a_loaded_model_goes_on_adding_up_the_gradients_of_several_batches(keras, tmpdir):
    path = saved(keras, tmpdir, accumulate_steps=2)
    with kp.ParallaxStrategy():
        model = kp.load_model(path)
    cases.train(model, batches(4, 8))
    found = model.get_weights()
    keras.backend.clear_session()
    plain = CASE.model(keras)
    plain.compile(reference.gated(CASE.optimizer(keras)), CASE.loss)
    plain.set_weights(cases.start_weights(plain))
    for pair in zip(batches(0, 8)[::2], batches(0, 8)[1::2]):
        plain.train_on_batch(*map(np.concatenate, zip(*pair)))
    for weight, expected in zip(found, plain.get_weights()):
        np.testing.assert_allclose(weight, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_plain_keras_loads_a_file_with_options(keras, tmpdir):
    path = saved(keras, tmpdir, sparse_update='lazy')
    with h5py.File(path, 'r') as file:
        weights = keras.models.load_model(path).get_weights()
        assert optimizer_options.read(file) == {'sparse_update': 'lazy'}
    assert [weight.shape for weight in weights] == [
        weight.shape for weight in CASE.model(keras).get_weights()
    ]


def test_a_model_that_has_not_trained_keeps_its_options_too(keras, tmpdir):
    path = os.path.join(str(tmpdir), 'model.h5')
    with kp.ParallaxStrategy():
        model = CASE.model(keras)
        model.compile(kp.ParallaxOptimizer(CASE.optimizer(keras), accumulate_steps=3), CASE.loss)
    model.save(path)
    keras.backend.clear_session()
    with pytest.warns(UserWarning, match='holds no state of an optimizer'):
        assert settings_of(path)['accumulate_steps'] == 3


def test_files_without_options_load_with_the_defaults(keras, tmpdir):
    path = saved(keras, tmpdir)
    with h5py.File(path, 'r') as file:
        assert optimizer_options.OPTIONS not in file.attrs
    defaults = {'accumulate_steps': 1, 'sparse_update': 'exact', 'sparse_reduction': 'mean'}
    assert settings_of(path).items() >= defaults.items()
    keras.backend.clear_session()
    plain = CASE.model(keras)
    plain.compile(CASE.optimizer(keras), CASE.loss)
    cases.train(plain, batches(0, 1))
    plain.save(path)
    keras.backend.clear_session()
    assert settings_of(path).items() >= defaults.items()


def test_a_compression_that_a_file_cannot_hold_has_to_be_given_again(keras, tmpdir):
    path = saved(keras, tmpdir, compression=Scaled)
    with kp.ParallaxStrategy(), pytest.raises(kp.CheckpointError, match='compression=') as caught:
        kp.load_model(path)
    assert path in str(caught.value)
    keras.backend.clear_session()
    assert settings_of(path, compression=Scaled)['compression'] is Scaled


def test_an_option_of_a_later_version_is_refused_by_name():
    with pytest.raises(kp.CheckpointError, match='momentum_of_tables'):
        optimizer_options.chosen({'momentum_of_tables': 1}, {}, 'model.h5')
