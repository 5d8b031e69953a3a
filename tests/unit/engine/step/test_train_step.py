# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model's training step in one process, as callbacks and checkpoints use it."""

import numpy as np
import pytest
from any_keras import keras

import keras_parallax as kp
from keras_parallax.engine.step.dense_values import average, broadcast, dense_of
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.errors import ParallaxError


@pytest.fixture
def model():
    with kp.ParallaxStrategy():
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(keras.optimizers.Adam(), 'mse')
    yield model
    keras.backend.clear_session()


def trained(model):
    model.train_on_batch(np.ones([3, 2]), np.ones([3, 1]))
    return step_of(model)


def test_a_model_has_a_step_once_it_has_trained(model):
    with pytest.raises(ParallaxError, match='no training step of ours yet'):
        step_of(model)
    step = trained(model)
    assert step.spec.loss is model.total_loss and trained(model) is step


def test_of_one_process_it_is_all_replicas(model):
    step = trained(model)
    assert dense_of(step) == model.trainable_weights and not step.spec.has_shards
    assert (
        step.synchronization.lockstep
        and step.synchronization.waits
        and not step.synchronization.acts_in_fit
    )
    assert step.operations.interruptions == [] and step.operations.meter is None


def test_its_weights_are_listed_once(model):
    step = trained(model)
    assert step.operations.weights is step.operations.weights
    assert [weight.shape.as_list() for weight in step.operations.weights[:3]] == [[], [2, 1], [1]]


def test_what_it_runs_between_steps_is_built_once(model):
    step = trained(model)
    before = model.get_weights()
    average(step, dense_of(step))
    broadcast(step, 0)
    version = model.total_loss.graph.version
    average(step, dense_of(step))
    broadcast(step, 0)
    assert model.total_loss.graph.version == version
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_whoever_wants_to_know_hears_of_each_run(model):
    step, heard = trained(model), []

    class Hears(StepObserver):
        def after_update(self, seconds, is_measured):
            heard.append((seconds, is_measured))

    step.observers.append(Hears())
    step.runs.after_run(0.5)
    assert heard == [(0.5, False)]


def test_it_has_at_most_fifteen_public_names(model):
    names = {name for name in dir(trained(model)) if not name.startswith('_')}
    assert len(names) <= 15, sorted(names)
