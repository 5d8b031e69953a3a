# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Weights of a model that was made again from its configuration, and whose they are."""

import cases
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.checkpoint.weight_pairs import paired_weights
from keras_parallax.errors import CheckpointError


@pytest.fixture(params=KERAS_PACKAGES)
def package(request):
    module = cases.keras_module(request.param)
    module.backend.clear_session()
    return module


def made_again(package, model):
    return package.models.Model.from_config(model.get_config())


def test_a_frozen_part_does_not_change_whose_a_weight_is(package):
    layers, models = package.layers, package.models
    inner = models.Sequential(
        [layers.Dense(3, input_shape=(3,), name='first'), layers.Dense(3, name='second')],
        name='inner',
    )
    inner.trainable = False
    inputs = layers.Input((3,))
    model = models.Model(inputs, layers.Dense(3, name='out')(inner(inputs)))
    pairs = paired_weights(model, made_again(package, model))
    assert len(pairs) == len(model.weights) == 6
    assert {variable for _, variable in pairs} == set(model.weights)
    for copy, variable in pairs:
        kind = variable.name.rsplit('/', 1)[1].split(':')[0].split('_')[0]
        assert '/%s' % kind in copy.name
        assert copy.name.split('/')[0].split('_')[0] == variable.name.split('/')[0].split('_')[0]


def test_a_weight_without_a_counterpart_is_named(package):
    inputs = package.layers.Input((3,))
    model = package.models.Model(inputs, package.layers.Dense(2, name='out')(inputs))
    other = package.models.Model(
        inputs, package.layers.Dense(2, use_bias=False, name='out')(inputs)
    )
    with pytest.raises(CheckpointError, match='The weight out/bias.* has no counterpart'):
        paired_weights(model, other)


def test_a_weight_of_another_shape_is_named_with_both(package):
    inputs = package.layers.Input((3,))
    model = package.models.Model(inputs, package.layers.Dense(2, name='out')(inputs))
    other = package.models.Model(inputs, package.layers.Dense(4, name='out')(inputs))
    with pytest.raises(CheckpointError, match=r'out/kernel.* has shape \(3, 2\), but \(3, 4\) in'):
        paired_weights(model, other)
