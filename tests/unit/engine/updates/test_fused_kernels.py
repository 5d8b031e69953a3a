# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Updates by TensorFlow's kernels against Keras's own formulas, and where they are not used."""

import cases
import numpy as np
import ours
import pytest
import reference
from cases import LENGTH
from frameworks import KERAS_PACKAGES

from keras_parallax.compat.tensorflow_api import tf

STEPS = 6
PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)

#: Every kernel, with the settings that its formula depends on: the optimizer, and the kernel.
FUSED = {
    'sgd': (lambda keras: keras.optimizers.SGD(lr=0.1, decay=0.1), 'ApplyMomentum'),
    'momentum': (
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, decay=0.1),
        'ApplyMomentum',
    ),
    'nesterov': (
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, nesterov=True),
        'ApplyMomentum',
    ),
    'clipped': (
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, clipnorm=0.1),
        'ApplyMomentum',
    ),
    'adadelta': (
        lambda keras: keras.optimizers.Adadelta(rho=0.8, decay=0.1),
        'ApplyAdadelta',
    ),
    'adam': (
        lambda keras: keras.optimizers.Adam(lr=0.01, beta_1=0.8, beta_2=0.9, decay=0.1),
        'ApplyAdam',
    ),
    'epsilon': (lambda keras: keras.optimizers.Adam(lr=0.01, epsilon=0.01), 'ApplyAdam'),
    'adamax': (
        lambda keras: keras.optimizers.Adamax(lr=0.01, beta_1=0.8, decay=0.1),
        'ApplyAdaMax',
    ),
}
NOT_FUSED = {
    'adagrad': lambda keras: keras.optimizers.Adagrad(lr=0.1),
    'rmsprop': lambda keras: keras.optimizers.RMSprop(lr=0.01),
    'nadam': lambda keras: keras.optimizers.Nadam(lr=0.01),
    'amsgrad': lambda keras: keras.optimizers.Adam(lr=0.01, amsgrad=True),
    "a user's": cases.custom_optimizer,
}


def two_layers(**arguments):
    """A model of dense layers, of which the first one takes the arguments."""

    def model(keras):
        made = {name: value(keras) for name, value in arguments.items()}
        return keras.models.Sequential(
            [
                keras.layers.Dense(5, activation='tanh', input_shape=(LENGTH,), **made),
                keras.layers.Dense(1),
            ]
        )

    return model


def numbers(random, size):
    return random.normal(size=(size, LENGTH)), random.uniform(-1, 1, (size, 1))


def case_of(optimizer, **arguments):
    return cases.Case(two_layers(**arguments), optimizer, numbers)


def kernels():
    """The types of all training kernels in the graph, with how often they are there."""
    types = [operation.type for operation in tf.get_default_graph().get_operations()]
    found = [one.replace('Resource', '') for one in types if 'Apply' in one]
    return {one: found.count(one) for one in found}


@PACKAGES
@pytest.mark.parametrize('name', sorted(FUSED))
def test_a_kernel_equals_keras_to_the_last_digits_of_float64(double_precision, package, name):
    # Weights, slots and counters; what is only almost Keras's formula has nothing to hide behind.
    ours.assert_equals_plain_keras(
        case_of(FUSED[name][0]), cases.keras_module(package), 1e-11, slots=True
    )


@PACKAGES
@pytest.mark.parametrize('name', sorted(FUSED))
def test_every_dense_variable_has_one_kernel_and_no_other_update(package, name):
    optimizer, kernel = FUSED[name]
    model = ours.compiled(case_of(optimizer), cases.keras_module(package))
    model._make_train_function()
    variables = model.trainable_weights
    assert kernels() == {kernel: len(variables)}


@PACKAGES
@pytest.mark.parametrize('name', sorted(NOT_FUSED))
def test_an_optimizer_with_a_formula_of_its_own_updates_by_it(package, name):
    case, keras = case_of(NOT_FUSED[name]), cases.keras_module(package)
    ours.assert_equals_plain_keras(case, keras, 1e-5, slots=True)
    assert kernels() == {}


@PACKAGES
def test_a_constraint_is_heeded(package):
    def non_negative(keras):
        return keras.constraints.NonNeg()

    case = case_of(FUSED['adam'][0], kernel_constraint=non_negative)
    keras = cases.keras_module(package)
    ours.assert_equals_plain_keras(case, keras, 1e-5, slots=True)
    assert kernels() == {}


@PACKAGES
@pytest.mark.parametrize('name', ['lr', 'momentum'])
def test_a_rate_or_a_momentum_that_changes_acts_on_the_next_step(package, name):
    keras = cases.keras_module(package)

    def change(model):
        keras.backend.set_value(getattr(model.optimizer, name), 0.5)

    ours.assert_equals_plain_keras(
        case_of(FUSED['sgd'][0]), keras, 1e-5, between=change, slots=True
    )


@PACKAGES
def test_a_model_resumes_in_plain_keras_from_the_state_of_a_kernel(package, tmp_path):
    keras = cases.keras_module(package)
    case, path = case_of(FUSED['adam'][0]), str(tmp_path / 'model.h5')
    straight, *_ = ours.trained(reference.compiled(case, keras), case, STEPS)

    def save(model):
        model.save(path)

    ours.trained(ours.compiled(case, keras), case, STEPS, save)
    keras.backend.clear_session()
    resumed = reference.load_model(keras, path, keras.optimizers.Adam)
    batches = cases.batches(case, 1, STEPS // 2, STEPS)
    losses = cases.train(resumed, batches)
    np.testing.assert_allclose(losses, straight[STEPS // 2 :], rtol=1e-5)
