# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Losses that Keras divides by what masks and sample weights sum up to, in one process."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF1_15, TF2, tf

import keras_parallax as kp
from keras_parallax.compat import keras_losses

#: Packages with which every model takes sample weights that a loss is divided by.
BY_WEIGHTS = pytest.mark.parametrize(
    'package',
    [
        pytest.param(
            package, marks=pytest.mark.skipif(TF2, reason='a loss is not divided by weights')
        )
        for package in KERAS_PACKAGES
    ],
)
PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)
_OF_STACK = keras_losses.generation
DIVIDING = pytest.mark.skipif(TF1_15, reason='losses are means over all entries')


def compiled(package, case, **wrap):
    """A model of a strategy, its batches, and its Keras package."""
    keras, case = cases.keras_module(package), cases.find(case)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = case.model(keras)
        optimizer = kp.ParallaxOptimizer(case.optimizer(keras), **wrap)
        model.compile(optimizer, case.loss, **cases.compile_arguments(case))
    return model, list(cases.joined_batches(case, 1, 2)), keras


@DIVIDING
@PACKAGES
def test_a_mask_that_reaches_the_loss_is_refused_with_accumulated_batches(package):
    model, batches, _ = compiled(package, 'mask_of_loss', accumulate_steps=2)
    before = model.get_weights()
    with pytest.raises(kp.PlanError, match='accumulate_steps=2.*mask'):
        model.train_on_batch(*batches[0])
    for own, other in zip(model.get_weights(), before):
        np.testing.assert_array_equal(own, other)


@BY_WEIGHTS
def test_sample_weights_are_refused_with_accumulated_batches_and_ones_are_not(package):
    model, batches, _ = compiled(package, 'zero_weights', accumulate_steps=2)
    ids, targets, weights = batches[0]
    model.train_on_batch(ids, targets)
    for train in (
        lambda: model.train_on_batch(ids, targets, weights),
        lambda: model.train_on_batch(ids, targets > 0, class_weight={0: 1.0, 1: 2.0}),
        lambda: model.fit(ids, targets, sample_weight=weights, verbose=0),
    ):
        with pytest.raises(kp.PlanError, match='accumulate_steps=2.*sample weights'):
            train()


@BY_WEIGHTS
def test_a_step_of_the_scripts_own_fails_with_weights_and_accumulated_batches(package):
    model, batches, keras = compiled(package, 'zero_weights', accumulate_steps=2)
    backend, optimizer = keras.backend, model.optimizer
    updates = optimizer.get_updates(loss=model.total_loss, params=model.trainable_weights)
    inputs = model.inputs + model.targets + model.sample_weights
    train = backend.function(inputs, [model.total_loss], updates=updates)
    ids, targets, weights = batches[0]
    train([ids, targets, np.ones_like(weights)])
    with pytest.raises(tf.errors.InvalidArgumentError, match='accumulate_steps=2'):
        train([ids, targets, weights])


@pytest.mark.skipif(not TF2 or TF1_15, reason='such weights are known at the first batch')
@PACKAGES
def test_weights_of_a_loss_that_is_a_number_are_refused_with_accumulated_batches(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((2,), dtype='int32')
        rows = keras.layers.Embedding(5, 3)(ids)
        model = keras.models.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
        model.compile(
            kp.ParallaxOptimizer(keras.optimizers.SGD(0.1), accumulate_steps=2),
            lambda targets, outputs: tf.reduce_mean(tf.square(targets - outputs)),
        )
    batch = np.array([[1, 2], [3, 4]]), np.ones((2, 1))
    for _ in range(2):
        model.train_on_batch(*batch)
    with pytest.raises(kp.PlanError, match='accumulate_steps=2.*sample weights'):
        model.train_on_batch(*batch, sample_weight=np.array([1.0, 2.0]))


@PACKAGES
def test_one_process_builds_nothing_for_masks_and_weights(package):
    model, batches, _ = compiled(package, 'masked_outputs')
    model.train_on_batch(*batches[0])
    step = model.optimizer._parallax_step
    assert step.spec.trained is step.spec.loss and not step.spec.parts.terms


@DIVIDING
@PACKAGES
def test_what_keras_divides_a_loss_by_is_known(package):
    model, batches, keras = compiled(package, 'masked_outputs')
    divided = keras_losses.divided_in([model.total_loss])
    by_weights = package in _OF_STACK.DIVIDED_BY_WEIGHTS
    assert [one.is_masked for one in divided] == [True, False][: 1 + by_weights]
    function = keras.backend.function(
        model._feed_inputs + model._feed_targets + model._feed_sample_weights,
        [one.value for one in divided]
        + [_computed(one) for one in divided]
        + [divided[0].divisors[0]],
    )
    inputs, targets, weights = batches[1]
    *values, divisor = function(inputs + targets + (weights if by_weights else []))
    values, computed = values[: len(divided)], values[len(divided) :]
    np.testing.assert_allclose(computed, values, rtol=1e-6)
    mask = inputs[0] != 0
    by_sum = by_weights and package == 'tf.keras'
    expected = (mask * weights[0]).sum() if by_sum else mask.mean()
    np.testing.assert_allclose(divisor, expected, rtol=1e-6)


def _computed(one):
    """The value of a quotient, from its parts."""
    value = one.numerator
    for factor in one.factors:
        value = value * factor
    for divisor in one.divisors:
        value = one.divide(value, divisor)
    return value
