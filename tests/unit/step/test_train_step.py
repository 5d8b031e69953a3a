"""A model's training step in one process, as callbacks and checkpoints use it."""

import numpy as np
import pytest
from any_keras import keras

import keras_parallax as kp
from keras_parallax.errors import ParallaxError
from keras_parallax.step.train_step import step_of


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
    assert step.replicas == model.trainable_weights and not step.has_shards
    assert step.lockstep and step.waits and not step.acts_in_fit
    assert step.operations.interruptions == [] and step.operations.meter is None


def test_its_weights_are_listed_once(model):
    step = trained(model)
    assert step.weights is step.weights
    assert [weight.shape.as_list() for weight in step.weights[:3]] == [[], [2, 1], [1]]


def test_what_it_runs_between_steps_is_built_once(model):
    step = trained(model)
    before = model.get_weights()
    step.average(step.replicas)
    step.broadcast(0)
    version = model.total_loss.graph.version
    step.average(step.replicas)
    step.broadcast(0)
    assert model.total_loss.graph.version == version
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_whoever_wants_to_know_hears_of_each_run(model):
    step, heard = trained(model), []
    step.after_runs.append(lambda seconds, measured: heard.append((seconds, measured)))
    step.after_run(0.5)
    assert heard == [(0.5, False)]
