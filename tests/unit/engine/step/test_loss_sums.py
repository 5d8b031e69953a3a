# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which terms of a loss are known to be sums over a batch, and which have to be tried."""

import pytest
from any_keras import keras
from frameworks import TF2

import keras_parallax as kp
from keras_parallax.engine.step.loss_sums import Sums, sums_in, sums_of_script
from keras_parallax.errors import PlanError
from keras_parallax.planning.loss_kinds import MEAN, SUM

K = keras.backend


def compiled(loss, layer=None, add_loss=None):
    """A model of one output, compiled in the scope of a strategy."""
    K.clear_session()
    with kp.ParallaxStrategy():
        inputs = keras.layers.Input((3,))
        outputs = (layer or keras.layers.Dense(1))(inputs)
        model = keras.models.Model(inputs, outputs)
        if add_loss is not None:
            model.add_loss(add_loss(outputs))
        model.compile('sgd', loss)
    return model


def squares_summed(targets, outputs):
    return K.sum(K.square(targets - outputs))


def found(model, reduction=None):
    """The factors of the terms of a model, and how many of them are untried."""
    sums = sums_in(model.total_loss, model, 2, reduction)
    untried = {term.factor.op.name for term in sums.untried}
    known = [term.factor for term in sums.terms if isinstance(term.factor, float)]
    assert len(known) + len(untried) == len(sums.terms)
    return known, len(untried)


def test_a_loss_of_keras_is_a_mean_and_has_no_term():
    assert found(compiled('mse')) == ([], 0)


def test_a_loss_of_the_users_own_is_to_be_tried():
    assert found(compiled(squares_summed)) == ([], 1)


@pytest.mark.parametrize('reduction, known', [(SUM, [2.0]), (MEAN, [])])
def test_what_the_user_says_is_not_tried(reduction, known):
    assert found(compiled(squares_summed), reduction) == (known, 0)


def test_a_penalty_of_weights_counts_once_on_every_rank():
    layer = keras.layers.Dense(1, kernel_regularizer='l2')
    assert found(compiled('mse', layer)) == ([], 0)


@pytest.mark.skipif(TF2, reason='Keras divides such a penalty by the number of samples')
def test_a_penalty_of_outputs_is_known_to_be_a_sum():
    layer = keras.layers.Dense(1, activity_regularizer='l2')
    assert found(compiled('mse', layer)) == ([2.0], 0)


def test_a_step_of_the_scripts_own_has_sums_only_if_the_script_says_so():
    model = compiled(squares_summed)
    with model.total_loss.graph.as_default():
        assert sums_of_script(model.total_loss, 2, None).terms == []
        (term,) = sums_of_script(model.total_loss, 2, SUM).terms
    assert term.factor == 2.0


def test_sums_need_as_many_batches_as_they_count_for():
    some = Sums(terms=['a known sum'])
    some.require_batches(4, 2)
    Sums().require_batches(3, 2)
    with pytest.raises(PlanError, match='accumulate_steps=2.* 1 batches'):
        some.require_batches(3, 2)
