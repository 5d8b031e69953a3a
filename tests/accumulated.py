# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models whose gradients of several batches are added up, and the batches for them."""

import cases
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES

import keras_parallax as kp

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)
SAMPLES, BATCH = 20, 4


def compiled(package, accumulate_steps, optimizer=None, build=None, **arguments):
    """A model of a strategy with start weights that depend on nothing."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = (build or cases.embed_and_sum())(keras)
        optimizer = (optimizer or adam)(keras)
        wrapped = kp.ParallaxOptimizer(
            optimizer, keras=package, accumulate_steps=accumulate_steps, **arguments
        )
        model.compile(wrapped, 'mse')
    model.set_weights(cases.start_weights(model))
    return model


def adam(keras):
    return keras.optimizers.Adam(lr=0.01)


def data(rows=cases.ROWS):
    random = np.random.RandomState(3)
    return random.randint(0, rows, (SAMPLES, cases.LENGTH)), random.uniform(-1, 1, (SAMPLES, 1))


def batches(x, y, size=BATCH):
    return [(x[begin : begin + size], y[begin : begin + size]) for begin in range(0, len(x), size)]


def assert_close(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def plain_fit(package, optimizer, numbers, epochs):
    """Plain Keras with an update for so many samples each, over and over."""
    keras = cases.keras_module(package)
    case = cases.Case(cases.embed_and_sum(), optimizer)
    model, (x, y) = reference.compiled(case, keras), data()
    for _ in range(epochs):
        for part in np.split(np.arange(SAMPLES), np.cumsum(numbers)[:-1]):
            model.train_on_batch(x[part], y[part])
    return model.get_weights(), model.evaluate(x, y, verbose=0)
