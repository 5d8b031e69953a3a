# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Profiles of one process. `tests/parallel/test_behaviour.py` has them of two workers."""

import json

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.observing import phases, trace

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def model_of(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile('adagrad', 'mse')
    return model


def fit(model, callback, epochs=2):
    x, y = np.ones([12, 2]), np.ones([12, 1])
    return model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=[callback])


@PACKAGES
def test_steps_are_counted_over_epochs(package, tmpdir):
    fit(model_of(package), kp.callbacks.Profile(str(tmpdir), steps=(2, 4)))
    found = trace.from_chrome(json.loads(tmpdir.join('trace-2-3.json').read()), 'x')
    assert sorted(found.steps) == [(0, 2), (0, 3)]
    of_steps = {span.phase for span in found.spans}
    assert {phases.FORWARD, phases.BACKWARD, phases.UPDATE} == of_steps


@PACKAGES
def test_the_first_step_can_be_traced(package, tmpdir):
    fit(model_of(package), kp.callbacks.Profile(str(tmpdir), steps=(0, 1)))
    assert tmpdir.join('trace-0-0.json').check()


@PACKAGES
def test_steps_that_training_does_not_come_to_are_told_and_there_is_no_file(package, tmpdir):
    with pytest.warns(UserWarning, match='asked for the steps 100 to 109, but training had 6'):
        fit(model_of(package), kp.callbacks.Profile(str(tmpdir)))
    assert tmpdir.listdir() == []


@PACKAGES
def test_a_directory_that_cannot_be_written_is_told_and_training_goes_on(package, tmpdir):
    file = tmpdir.join('file')
    file.write('no folder')
    with pytest.warns(UserWarning, match='Profile: it could not write to .*Training goes on'):
        history = fit(model_of(package), kp.callbacks.Profile(str(file), steps=(0, 1)))
    assert len(history.history['loss']) == 2


@pytest.mark.parametrize('steps', [(3, 3), (5, 2), (-1, 2), (1,), (0.5, 2)])
def test_what_are_no_steps_is_refused(steps):
    with pytest.raises(ValueError, match='steps must be the first step'):
        kp.callbacks.Profile('folder', steps=steps)
