# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Losses of a script's own are tried with the first batch: sums, means, and neither.

One process with `accumulate_steps` averages batches, as several workers do.
"""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.errors import PlanError
from keras_parallax.planning.loss_kinds import MEAN, SUM

SAMPLES, LENGTH = 6, cases.LENGTH
STEPS = 3


def keras_of(number):
    """The packages take turns."""
    keras = cases.keras_module(KERAS_PACKAGES[number % len(KERAS_PACKAGES)])
    keras.backend.clear_session()
    return keras


def squares(targets, outputs):
    return tf.square(targets - outputs)


def one_layer(keras, width=2, batch=None, **arguments):
    return keras.models.Sequential(
        [keras.layers.Dense(width, batch_input_shape=(batch, LENGTH), name='out', **arguments)]
    )


def factors(model, loss, batch=None, **arguments):
    """The factors of the terms that are tried, after a step that a model has trained."""
    package = 'tf.keras' if TF2 or 'tensorflow' in type(model).__module__ else 'keras'
    with kp.ParallaxStrategy():
        optimizer = kp.ParallaxOptimizer('sgd', keras=package, accumulate_steps=STEPS, **arguments)
        model.compile(optimizer, loss)
    model.train_on_batch(*(batch or batch_of(model)))
    sums = model.optimizer._parallax_step.spec.sums
    session = model.optimizer._parallax_step.spec.package.backend.get_session()
    return [float(session.run(term.factor)) for term in sums.untried]


def batch_of(model):
    random = np.random.RandomState(1)
    shape = [SAMPLES] + model.outputs[0].shape.as_list()[1:]
    return random.uniform(-1, 1, (SAMPLES, LENGTH)), random.uniform(-1, 1, shape)


#: Functions of targets and outputs that are sums over the samples.
SUMS = [
    lambda t, p: tf.reduce_sum(squares(t, p)),
    lambda t, p: tf.reduce_sum(t * p),
]
#: Functions that are means.
MEANS = [
    squares,
    lambda t, p: tf.reduce_mean(squares(t, p)),
    lambda t, p: tf.reduce_sum(squares(t, p)) / tf.cast(tf.shape(t)[0], tf.float32),
    lambda t, p: p,
]
NEITHER = {
    'root_of_sum': lambda t, p: tf.sqrt(tf.reduce_sum(squares(t, p))),
    # Doubled with the same samples it stays, and yet it is no mean over them.
    'root_of_mean': lambda t, p: tf.sqrt(tf.reduce_mean(squares(t, p))),
    'share': lambda t, p: tf.reduce_sum(t * t * p) / tf.reduce_sum(t * t),
    'among_the_batch': lambda t, p: tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.range(tf.shape(p)[0]), logits=tf.matmul(p, t, transpose_b=True)
    ),
}


@pytest.mark.parametrize('number', range(len(KERAS_PACKAGES)))
def test_a_loss_that_is_a_sum_counts_as_often_as_there_are_batches(number):
    keras = keras_of(number)
    inputs = keras.layers.Input((LENGTH,))
    outputs = [
        keras.layers.Dense(2, name='out%d' % number)(inputs)
        for number, _ in enumerate(SUMS + MEANS)
    ]
    model = keras.models.Model(inputs, outputs)
    inputs, targets = batch_of(model)
    found = factors(model, SUMS + MEANS, (inputs, [targets] * len(outputs)))
    assert found == [STEPS] * len(SUMS) + [1] * len(MEANS)


@pytest.mark.parametrize('number, name', list(enumerate(NEITHER)))
def test_a_loss_that_is_neither_a_sum_nor_a_mean_is_refused_and_trains_nothing(number, name):
    model = one_layer(keras_of(number))
    before = model.get_weights()
    with pytest.raises(PlanError) as refused:
        factors(model, NEITHER[name])
    for fact in ('output out', 'loss_reduction', '%d batches' % STEPS):
        assert fact in str(refused.value)
    for weight, own in zip(before, model.get_weights()):
        np.testing.assert_array_equal(weight, own)


@pytest.mark.parametrize('reduction', [SUM, MEAN])
def test_a_script_may_say_what_its_losses_are(reduction):
    model = one_layer(keras_of(0))
    assert factors(model, NEITHER['root_of_mean'], loss_reduction=reduction) == []
    terms = model.optimizer._parallax_step.spec.sums.terms
    assert [term.factor for term in terms] == [STEPS] * (reduction == SUM)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="loss_reduction must be one of None, 'mean', 'sum'"):
        kp.ParallaxOptimizer('sgd', loss_reduction='none')


def test_losses_of_keras_are_not_tried():
    keras = keras_of(1)
    model = one_layer(keras, activity_regularizer=keras.regularizers.l2(0.1))
    assert factors(model, 'mse') == []
    summed = [term.factor for term in model.optimizer._parallax_step.spec.sums.terms]
    assert summed == ([] if TF2 else [STEPS])


def test_random_numbers_of_two_batches_are_those_of_the_joined_one():
    keras = keras_of(0)
    inputs = keras.layers.Input((LENGTH,))
    noisy = keras.layers.Lambda(lambda x: x + tf.random_normal(tf.shape(x)))(inputs)
    dropped = keras.layers.Dropout(0.5)(noisy)
    model = keras.models.Model(inputs, keras.layers.Dense(2, name='out')(dropped))
    assert factors(model, lambda t, p: tf.reduce_sum(squares(t, p))) == [STEPS]


def test_a_loss_may_read_other_layers():
    keras = keras_of(1)
    inputs = keras.layers.Input((LENGTH,))
    hidden = keras.layers.Dense(3)(inputs)
    model = keras.models.Model(inputs, keras.layers.Dense(2, name='out')(hidden))
    summed = tf.reduce_sum(tf.square(hidden), -1, keepdims=True)
    assert factors(model, lambda t, p: squares(t, p) + summed) == [1]


@pytest.mark.parametrize('loss, factor', [(SUMS[0], STEPS), (MEANS[0], 1)])
def test_batches_of_a_fixed_size_are_made_up(loss, factor):
    model = one_layer(keras_of(0), batch=SAMPLES)
    assert factors(model, loss) == [factor]


def test_a_loss_that_is_zero_for_the_first_batch_is_tried_with_outputs_that_are_made_up():
    model = one_layer(keras_of(1), kernel_initializer='zeros')
    inputs, targets = batch_of(model)
    assert factors(model, SUMS[0], (inputs, np.zeros_like(targets))) == [STEPS]


def test_a_loss_that_has_no_gradient_is_whatever_it_is():
    keras = keras_of(1)
    model = one_layer(keras, activity_regularizer=keras.regularizers.l2(0.1))
    assert factors(model, lambda t, p: tf.zeros_like(p)) == [1]


def test_a_loss_that_layers_add_is_refused_if_it_is_zero_for_the_first_batch():
    keras = keras_of(0)

    def penalty(outputs):
        return tf.norm(outputs)

    model = one_layer(keras, activity_regularizer=penalty, kernel_initializer='zeros')
    with pytest.raises(PlanError, match='it is 0 for the first batch'):
        factors(model, 'mse')


@pytest.mark.skipif(TF2, reason='Keras divides such a penalty by the number of samples')
def test_operations_tell_where_the_first_batch_does_not():
    keras = keras_of(0)

    def penalty(outputs):
        return tf.reduce_sum(tf.square(outputs))

    model = one_layer(keras, activity_regularizer=penalty, kernel_initializer='zeros')
    assert factors(model, 'mse') == [STEPS]


@pytest.mark.parametrize('mean', [True, False])
def test_an_added_loss_of_batches_of_the_graph_is_known_by_its_operations(mean):
    keras = keras_of(1)
    random = np.random.RandomState(1)
    given = keras.layers.Input(tensor=tf.constant(random.uniform(size=(6, 3)), tf.float32))
    model = keras.models.Model(given, keras.layers.Dense(2, name='out')(given))
    model.add_loss((tf.reduce_mean if mean else tf.reduce_sum)(tf.square(model.outputs[0])))
    package = 'tf.keras' if TF2 or 'tensorflow' in type(model).__module__ else 'keras'
    with kp.ParallaxStrategy():
        optimizer = kp.ParallaxOptimizer('sgd', keras=package, accumulate_steps=STEPS)
        model.compile(optimizer, None)
    model.train_on_batch(None, None)
    (term,) = model.optimizer._parallax_step.spec.sums.untried
    session = model.optimizer._parallax_step.spec.package.backend.get_session()
    assert float(session.run(term.factor)) == (1 if mean else STEPS)


@pytest.mark.parametrize('package', KERAS_PACKAGES)
def test_a_trial_draws_no_random_numbers_of_the_training(package):
    keras, losses = cases.keras_module(package), []
    for reduction in (None, 'mean'):  # The latter has nothing tried.
        keras.backend.clear_session()
        tf.set_random_seed(3)

        def noisy(targets, outputs):
            noise = tf.random_uniform(tf.shape(outputs), seed=5)
            return tf.reduce_mean(tf.square(targets - outputs * noise))

        with kp.ParallaxStrategy():
            model = one_layer(keras)
            optimizer = keras.optimizers.SGD(0.1)
            wrapped = kp.ParallaxOptimizer(
                optimizer, accumulate_steps=STEPS, loss_reduction=reduction
            )
            model.compile(wrapped, noisy)
        shapes = [weight.shape for weight in model.get_weights()]
        model.set_weights([np.full(shape, 0.5) for shape in shapes])
        losses.append([model.train_on_batch(*batch_of(model)) for _ in range(2 * STEPS)])
    assert losses[0] == losses[1]


def test_a_sum_and_accumulated_batches_that_an_epoch_leaves_do_not_go_together():
    model = one_layer(keras_of(0))
    factors(model, SUMS[0])
    model.optimizer._parallax_step.runs.drop_pending()
    inputs, targets = (np.concatenate([array] * 4) for array in batch_of(model))
    with pytest.raises(PlanError, match='the gradients of 1 batches'):
        model.fit(inputs, targets, batch_size=SAMPLES, verbose=0)
    model.optimizer._parallax_step.runs.drop_pending()
    model.fit(inputs[:18], targets[:18], batch_size=SAMPLES, verbose=0)
