# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the training function of a model reports, and which sample weights it takes."""

from types import SimpleNamespace

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

from keras_parallax.engine.step import joint_losses
from keras_parallax.engine.step.loss_terms import LossTerm
from keras_parallax.errors import PlanError


@pytest.fixture(autouse=True)
def graph():
    yield
    keras.backend.clear_session()


class Parts:
    """The `BatchParts` of a model with one input of sample weights."""

    def __init__(self, weights):
        self.weights, self.takes_weights, self.checked = [weights], False, 0

    def check_weights(self):
        self.checked += 1

    def turn_on(self, session):
        self.takes_weights = True


class Trained:
    """A model that has a function to train it: losses are twice the mean of what it is given."""

    def __init__(self, terms=True):
        given, weights = (keras.backend.placeholder((None,)) for _ in range(2))
        self.loss = 2.0 * tf.reduce_mean(given * weights)
        part = self.loss * 1.0
        self.parts, self.gathered = Parts(weights), []
        spec = SimpleNamespace(
            loss=self.loss,
            trained=self.loss * 10.0,
            terms=[LossTerm(part, 100.0)] if terms else [],
            parts=self.parts,
            package=SimpleNamespace(backend=keras.backend),
        )
        job = SimpleNamespace(call=lambda name: tf.name_scope(None), gather=self.gathered.append)
        self.optimizer = SimpleNamespace(
            _parallax_training=joint_losses.TrainingFunction(),
            _parallax_step=SimpleNamespace(spec=spec, job=job),
        )
        self.train_function = keras.backend.function([given, weights], [self.loss, part])

    def train(self, weights=(1.0, 1.0)):
        values = [np.array([3.0, 5.0]), np.array(weights)]
        return [float(value) for value in self.train_function(values)]


def test_while_keras_builds_a_function_it_is_known_for_which_model():
    training = joint_losses.TrainingFunction()
    with pytest.raises(KeyError), training.built('a model'):
        assert (training.is_being_built, training.model) == (True, 'a model')
        raise KeyError
    assert (training.is_being_built, training.model) == (False, None)


def test_losses_are_reported_as_the_joined_batch_has_them_and_once():
    model = Trained()
    joint_losses.use_joint_losses(model)
    # The total is the one that is trained; a term counts as often as it says.
    assert model.train() == [80.0, 8000.0]
    function = model.train_function
    joint_losses.use_joint_losses(model)
    assert model.train_function is function and model.train() == [80.0, 8000.0]


def test_a_function_without_terms_and_weights_stays_as_it_is():
    model = Trained(terms=False)
    model.parts.weights = []
    function = model.train_function
    joint_losses.use_joint_losses(model)
    assert model.train_function is function and model.train() == [8.0, 8.0]


def test_weights_that_the_workers_have_not_exchanged_are_refused():
    model = Trained()
    joint_losses.use_joint_losses(model)
    model.train((1.0, 1.0))
    with pytest.raises(PlanError, match='train_function was called with sample weights'):
        model.train((1.0, 2.0))
    model.parts.takes_weights = True
    assert model.train((1.0, 2.0)) == [130.0, 13000.0]


def test_weights_that_a_batch_was_given_are_exchanged_from_then_on():
    model = Trained()
    training = model.optimizer._parallax_training

    def train_on_batch(model, x, y, sample_weight, class_weight):
        return x, y, sample_weight, class_weight

    noting = joint_losses.noting_weights(train_on_batch)
    assert noting(model, 1) == (1, None, None, None) and not training.has_weights
    assert noting(model, 1, 2, class_weight=3) == (1, 2, None, 3) and training.has_weights
    joint_losses.use_joint_losses(model)
    assert model.gathered == [True] and model.parts.takes_weights and model.parts.checked
    joint_losses.use_joint_losses(model)
    assert model.gathered == [True]
