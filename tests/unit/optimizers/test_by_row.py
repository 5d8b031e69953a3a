# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.optimizers` against their formulas in NumPy, in plain Keras and in a strategy."""

import os

import cases
import numpy as np
import ours
import pytest
import reference
import rested_rows
from cases import ROWS, WIDTH
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp

OPTIMIZERS = {
    'RowwiseAdagrad': {'lr': 0.1, 'decay': 0.1, 'epsilon': 1e-3},
    'LazyAdam': {'lr': 0.01, 'beta_1': 0.8, 'beta_2': 0.9, 'decay': 0.1},
}
every_package = pytest.mark.parametrize('package', KERAS_PACKAGES)
every_optimizer = pytest.mark.parametrize('name', sorted(OPTIMIZERS))
#: The rows that are looked up, each several times in a batch.
TOUCHED = [2, 3, 5, 7, 11]


def setting(number):
    """A number as Keras has it: with TensorFlow 2 always in single precision."""
    return float(np.float32(number)) if TF2 else number


def rowwise_adagrad(step, weight, gradient, slots):
    """A step of some rows, in place."""
    slots[0] += (gradient**2).reshape([len(gradient), -1]).mean(1)
    total = slots[0].reshape([-1] + [1] * (gradient.ndim - 1))
    weight -= setting(0.1) / (1 + setting(0.1) * step) * gradient / (np.sqrt(total) + 1e-3)


def lazy_adam(step, weight, gradient, slots):
    """The same."""
    rate, beta_1, beta_2, decay = map(setting, (0.01, 0.8, 0.9, 0.1))
    slots[0][:] = beta_1 * slots[0] + (1 - beta_1) * gradient
    slots[1][:] = beta_2 * slots[1] + (1 - beta_2) * gradient**2
    rate *= np.sqrt(1 - beta_2 ** (step + 1)) / (1 - beta_1 ** (step + 1)) / (1 + decay * step)
    weight -= rate * slots[0] / (np.sqrt(slots[1]) + 1e-7)


FORMULAS = {'RowwiseAdagrad': rowwise_adagrad, 'LazyAdam': lazy_adam}
SLOTS = {'RowwiseAdagrad': 1, 'LazyAdam': 2}


def few_ids(random, size):
    return random.choice(TOUCHED, (size, cases.LENGTH)), random.uniform(-1, 1, (size, 1))


def case_of(name, **arguments):
    optimizer = cases.of_ours(name, **OPTIMIZERS[name])
    return cases.Case(cases.embed_and_sum(**arguments), optimizer, few_ids)


def by_numpy(keras, name, case, steps):
    """The weights and slots after some steps, of gradients by which Keras moves weights.

    Those of its loss, which TensorFlow 1.15 weighs in single precision.
    """
    by_gradients = case._replace(optimizer=lambda keras: keras.optimizers.SGD(1.0))
    model = reference.compiled(by_gradients, keras)
    weights = cases.start_weights(model)
    shapes = [w.shape[:1] if name == 'RowwiseAdagrad' else w.shape for w in weights]
    slots = [[np.zeros(shape) for _ in range(SLOTS[name])] for shape in shapes]
    weights = [weight.astype(np.float64) for weight in weights]
    for step, (ids, targets) in enumerate(cases.joined_batches(case, 1, steps)):
        model.set_weights(weights)
        model.train_on_batch(ids, targets)
        gradients = [before - after for before, after in zip(weights, model.get_weights())]
        for number, gradient in enumerate(gradients):
            rows = np.unique(ids) if number == 0 else np.arange(len(gradient))
            of_rows, moved = [slot[rows] for slot in slots[number]], weights[number][rows]
            FORMULAS[name](step, moved, gradient[rows].astype(np.float64), of_rows)
            weights[number][rows] = moved
            for slot, values in zip(slots[number], of_rows):
                slot[rows] = values
    return weights + [of_variable[place] for place in range(SLOTS[name]) for of_variable in slots]


@every_package
@every_optimizer
def test_plain_keras_and_a_strategy_follow_the_formula(double_precision, package, name):
    keras, case, steps = cases.keras_module(package), case_of(name), 5
    truth = by_numpy(keras, name, case, steps)
    for make in (reference.compiled, ours.compiled):
        model = make(case, keras)
        cases.train(model, cases.joined_batches(case, 1, steps))
        found = model.get_weights() + model.optimizer.get_weights()[1:]
        assert len(found) == len(truth)
        for weight, expected in zip(found, truth):
            assert weight.shape == expected.shape
            np.testing.assert_allclose(weight, expected, rtol=1e-9, atol=1e-12)
    start = cases.start_weights(model)[0]
    assert sorted(np.flatnonzero((found[0] != start).any(1))) == TOUCHED


@every_package
@every_optimizer
@pytest.mark.parametrize(
    'arguments',
    [
        dict(embeddings_regularizer=lambda keras: keras.regularizers.l2(0.01)),
        dict(embeddings_constraint=lambda keras: keras.constraints.NonNeg()),
    ],
    ids=['regularizer', 'constraint'],
)
def test_what_concerns_every_row_is_as_in_plain_keras(package, name, arguments):
    keras = cases.keras_module(package)
    model, expected = ours.assert_equals_plain_keras(case_of(name, **arguments), keras)
    moved = (cases.start_weights(model)[0] != expected[0]).any(1)
    assert set(np.flatnonzero(moved)) > set(TOUCHED)


@every_package
@every_optimizer
@pytest.mark.parametrize('bound', ['clipnorm', 'clipvalue'])
def test_clipped_gradients_still_move_touched_rows_only(package, name, bound):
    keras = cases.keras_module(package)
    clipped = cases.of_ours(name, **{bound: 0.01}, **OPTIMIZERS[name])
    # Where a gradient is a tensor, Adam moves a row that was touched before.
    case = case_of(name)._replace(optimizer=clipped, batch=rested_rows.ids_and_targets)
    model, expected = ours.assert_equals_plain_keras(case, keras)
    moved = (cases.start_weights(model)[0] != expected[0]).any(1)
    assert set(np.flatnonzero(moved)) == set(range(rested_rows.MORE))


@every_package
@every_optimizer
def test_an_optimizer_is_saved_and_goes_on(package, name, tmp_path):
    keras, case = cases.keras_module(package), case_of(name)
    model = ours.compiled(case, keras)
    batches = list(cases.joined_batches(case, 1, 6))
    cases.train(model, batches[:3])
    path = os.path.join(str(tmp_path), 'model.h5')
    model.save(path)
    cases.train(model, batches[3:])
    weights, config = model.get_weights(), model.optimizer.get_config()
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        again = kp.load_model(path)
    cases.train(again, batches[3:])
    for weight, expected in zip(again.get_weights(), weights):
        np.testing.assert_array_equal(weight, expected)
    assert again.optimizer.get_config() == config
    keras.backend.clear_session()
    objects = {name: getattr(kp.optimizers, name)}
    plain = keras.models.load_model(path, custom_objects=objects)
    assert plain.optimizer.get_config() == config
    cases.train(plain, batches[3:])
    for weight, expected in zip(plain.get_weights(), weights):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


@every_package
def test_slots_of_a_table_are_a_number_a_row_and_the_plan_says_so(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = cases.embed_and_sum()(keras)
        model.compile(kp.optimizers.RowwiseAdagrad(keras=package), 'mse')
    model._make_train_function()
    assert [weight.shape for weight in model.optimizer.get_weights()][1] == (ROWS,)
    update = strategy.plan(model)['table/embeddings'].update
    assert update.slots == pytest.approx(1 / WIDTH)
    assert update.words == 'touched rows only, which is exact for RowwiseAdagrad'


@pytest.mark.skipif(not TF2, reason="Keras 2.2.4's optimizers know `lr` alone")
@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_the_rate_may_be_given_by_either_of_its_names(name):
    made = getattr(kp.optimizers, name)
    configs = [made(**{key: 0.25}).get_config() for key in ('lr', 'learning_rate')]
    assert configs[0] == configs[1] and configs[0]['lr'] == 0.25


@pytest.mark.skipif(not TF2, reason='Keras 2.2.4 has no schedules')
@every_optimizer
def test_the_rate_may_be_a_schedule_and_is_one_again_from_a_config(name):
    keras, given = cases.keras_module('tf.keras'), dict(OPTIMIZERS[name])
    lr, decay = given.pop('lr'), given.pop('decay')
    schedule = keras.optimizers.schedules.InverseTimeDecay(lr, 1, decay)
    scheduled = case_of(name)._replace(optimizer=cases.of_ours(name, lr=schedule, **given))

    def again(keras):
        optimizer = scheduled.optimizer(keras)
        return type(optimizer).from_config(optimizer.get_config())

    model = ours.compiled(case_of(name), keras)
    _, decayed = ours.trained(model, case_of(name), steps=6)
    for case in (scheduled, scheduled._replace(optimizer=again)):
        _, weights = ours.trained(ours.compiled(case, keras), case, steps=6)
        for weight, expected in zip(weights, decayed):
            np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-7)
