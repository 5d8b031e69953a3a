# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rates that follow a schedule, whatever order Horovod has its arguments in."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp

WARMUP = kp.callbacks.LearningRateWarmupCallback
SCHEDULE = kp.callbacks.LearningRateScheduleCallback


@pytest.mark.parametrize('package', KERAS_PACKAGES)
@pytest.mark.parametrize(
    'make, expected',
    [
        (lambda: WARMUP(warmup_epochs=2), [0.2] * 8),
        (lambda: WARMUP(warmup_epochs=2, initial_lr=0.4), [0.4] * 8),
        (lambda: SCHEDULE(0.5, start_epoch=1), [0.2] * 2 + [0.1] * 6),
        (lambda: SCHEDULE(0.5, 1, 3, initial_lr=0.8), [0.2] * 2 + [0.4] * 6),
        (
            lambda: SCHEDULE(lambda epoch: 1 + epoch, staircase=False, initial_lr=0.1),
            [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45],
        ),
    ],
)
def test_each_batch_of_one_process_has_the_rate_that_was_asked_for(package, make, expected):
    keras, rates = cases.keras_module(package), []
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(keras.optimizers.SGD(0.2), 'mse')
    note = keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: rates.append(keras.backend.get_value(model.optimizer.lr))
    )
    model.fit(np.ones([4, 2]), np.ones([4, 1]), 2, 4, verbose=0, callbacks=[make(), note])
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize(
    'make',
    [
        lambda: WARMUP(0.1),
        lambda: WARMUP(0.1, 5),
        lambda: WARMUP(1.0, 5),
        lambda: SCHEDULE(0.1, 0.5),
        lambda: SCHEDULE(0.1, lambda epoch: 0.1**epoch),
    ],
)
def test_the_order_of_horovod_28_is_refused_rather_than_taken_for_that_of_19(make):
    with pytest.raises(kp.PlanError, match='order of Horovod 0.19, .* give initial_lr by its name'):
        make()
