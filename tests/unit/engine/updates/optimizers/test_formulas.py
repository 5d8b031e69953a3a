# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Row formulas against Keras's own formulas, and what lazy updates leave alone.

An optimizer of Keras that is added gets a line in `OPTIMIZERS`.
"""

import cases
import numpy as np
import ours
import own_optimizers_v2
import pytest
from cases import LENGTH, ROWS, WIDTH
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates import optimizers
from keras_parallax.engine.updates.optimizer_adapter import adapter_of

STEPS = 6
PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)

#: Every optimizer class of Keras, with the settings that its formula depends on.
OPTIMIZERS = {
    'sgd': lambda keras: keras.optimizers.SGD(lr=0.1),
    'sgd_decay': lambda keras: keras.optimizers.SGD(lr=0.1, decay=0.1),
    'momentum': lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, decay=0.1),
    'nesterov': lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, nesterov=True),
    'rmsprop': lambda keras: keras.optimizers.RMSprop(lr=0.01, rho=0.8, decay=0.1),
    'adagrad': lambda keras: keras.optimizers.Adagrad(lr=0.1, decay=0.1),
    'adadelta': lambda keras: keras.optimizers.Adadelta(rho=0.8, decay=0.1),
    'adam': lambda keras: keras.optimizers.Adam(lr=0.01, beta_1=0.8, beta_2=0.9, decay=0.1),
    'amsgrad': lambda keras: keras.optimizers.Adam(lr=0.01, beta_2=0.5, amsgrad=True),
    'adamax': lambda keras: keras.optimizers.Adamax(lr=0.01, beta_1=0.8, decay=0.1),
    'nadam': lambda keras: keras.optimizers.Nadam(lr=0.01, schedule_decay=0.1),
    'epsilon': lambda keras: keras.optimizers.Adam(lr=0.01, epsilon=0.01),
}
if TF2:
    OPTIMIZERS['centered'] = lambda keras: keras.optimizers.RMSprop(0.01, rho=0.8, centered=True)
EXACT_BY_ROW = {'sgd', 'sgd_decay', 'adagrad'}


def every_row(random, size):
    """A batch that looks up every row at least once."""
    more = cases.skewed_ids(random, size * LENGTH - ROWS)
    ids = random.permutation(np.concatenate([np.arange(ROWS), more]))
    return ids.reshape(size, LENGTH), random.uniform(-1, 1, (size, 1))


def case_of(optimizer, **arguments):
    return cases.Case(
        cases.embed_and_sum(**arguments), optimizer, every_row, wrap={'sparse_update': 'lazy'}
    )


def assert_lazy_equals_plain_keras(case, package, **tolerance):
    keras = cases.keras_module(package)
    model, expected = ours.assert_equals_plain_keras(case, keras, **tolerance)
    # The table is the first weight; where it stood still, any formula would do.
    assert (cases.start_weights(model)[0] != expected[0]).any(1).all()


# --- the formulas ------------------------------------------------------------


@PACKAGES
@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_lazy_equals_keras_where_every_row_is_touched(double_precision, package, name):
    # In float64 a formula that is only almost Keras's has nothing to hide behind.
    assert_lazy_equals_plain_keras(case_of(OPTIMIZERS[name]), package, tolerance=1e-11)


@PACKAGES
@pytest.mark.parametrize(
    'arguments',
    [
        dict(embeddings_regularizer=lambda keras: keras.regularizers.l1_l2(0.01, 0.01)),
        dict(embeddings_regularizer=cases.regularizer_over_whole),
        dict(embeddings_constraint=lambda keras: keras.constraints.NonNeg()),
        dict(embeddings_constraint=lambda keras: keras.constraints.MaxNorm(0.05, axis=1)),
    ],
    ids=['regularizer', 'whole regularizer', 'non negative', 'row norm'],
)
def test_lazy_heeds_regularizer_and_constraint(package, arguments):
    assert_lazy_equals_plain_keras(case_of(OPTIMIZERS['adam'], **arguments), package)


@PACKAGES
def test_lazy_refuses_a_constraint_for_the_whole_table(package):
    # It would be computed from the touched rows as if there were no others.
    case = case_of(
        OPTIMIZERS['adam'],
        embeddings_constraint=lambda keras: keras.constraints.MaxNorm(0.05, axis=0),
    )
    model = ours.compiled(case, cases.keras_module(package))
    with pytest.raises(kp.PlanError, match="use sparse_update='exact'"):
        model._make_train_function()


@PACKAGES
@pytest.mark.parametrize('clip', [dict(clipnorm=0.1), dict(clipvalue=0.01)], ids=str)
def test_lazy_clips_as_keras_does(package, clip):
    def optimizer(keras):
        return keras.optimizers.SGD(lr=0.1, momentum=0.9, **clip)

    assert_lazy_equals_plain_keras(case_of(optimizer), package)


def test_no_two_homes_know_the_same_class_and_keras_has_every_class_that_is_compared():
    for of_home in (
        [name for known in optimizers.KNOWN_OPTIMIZERS for name in known.keras],
        [name for known in optimizers.KNOWN_OPTIMIZERS for name in known.optimizer_v2],
        [name for known in optimizers.KNOWN_OPTIMIZERS for name in known.tensorflow],
    ):
        assert len(set(of_home)) == len(of_home) > 0
    keras = cases.keras_module(KERAS_PACKAGES[-1])
    known = {name for known in optimizers.KNOWN_OPTIMIZERS for name in known.keras}
    compared = {type(optimizer(keras)).__name__ for optimizer in OPTIMIZERS.values()}
    assert compared == known - set(kp.optimizers.__all__)


# --- what a rule says --------------------------------------------


@PACKAGES
@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_rows_alone_are_exact_where_a_row_without_gradient_stands_still(package, name):
    optimizer = OPTIMIZERS[name](cases.keras_module(package))
    assert adapter_of(optimizer).rule.exact_if(optimizer) == (name in EXACT_BY_ROW)


@PACKAGES
@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_a_rule_keeps_as_many_slots_as_keras_and_uses_no_more(package, name):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    weights = []
    for number in (1, 2):
        optimizer = OPTIMIZERS[name](keras)
        variables = [keras.backend.zeros((3,)) for _ in range(number)]
        # The slots of one variable are what a second one adds.
        optimizer.get_updates(sum(keras.backend.sum(one) for one in variables), variables)
        weights.append(len(optimizer.weights))
    rule = adapter_of(optimizer).rule
    assert rule.keeps == weights[1] - weights[0]
    assert rule.uses(optimizer) <= rule.keeps


@PACKAGES
def test_lazy_updates_of_an_unknown_formula_are_refused(package):
    # Keras builds the updates when it is first asked to train.
    custom = own_optimizers_v2.entrywise if TF2 else cases.custom_optimizer
    model = ours.compiled(case_of(custom), cases.keras_module(package))
    with pytest.raises(kp.PlanError) as caught:
        model._make_train_function()
    name = type(model.optimizer).__name__
    assert name in str(caught.value) and "sparse_update='exact'" in str(caught.value)


@PACKAGES
def test_momentum_switched_on_after_compile_is_refused(package):
    # The velocities that it needs do not exist.
    keras = cases.keras_module(package)
    case = case_of(OPTIMIZERS['sgd'])._replace(wrap={'sparse_update': 'exact'})
    model = ours.compiled(case, keras)
    batch = next(cases.joined_batches(case, 1))
    model.train_on_batch(*batch)
    keras.backend.set_value(model.optimizer.momentum, 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match='compile the model again'):
        model.train_on_batch(*batch)


# --- rows without a gradient -------------------------------------------------


def linear(keras):
    """A model whose output is a row, so that the gradient of a row is what the batch says."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, WIDTH, input_length=1, name='table'),
            keras.layers.Flatten(),
        ]
    )


def product(targets, output):
    return tf.reduce_sum(targets * output, -1)


def linear_batches():
    """Batches `(ids, targets)` with repeats, in which most rows are missing."""
    random = np.random.RandomState(5)
    for _ in range(STEPS):
        yield cases.skewed_ids(random, (8, 1)), random.uniform(-1, 1, (8, WIDTH))


def row_gradients(ids, targets):
    """Gradient of the mean product, of the whole table's shape."""
    gradient = np.zeros((ROWS, WIDTH))
    np.add.at(gradient, ids[:, 0], targets / len(ids))
    return gradient


def adam(step, gradient, slots):
    mean = 0.9 * slots[0] + 0.1 * gradient
    square = 0.999 * slots[1] + 0.001 * gradient**2
    rate = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return rate * mean / (np.sqrt(square) + 1e-7), [mean, square]


def momentum(step, gradient, slots):
    velocity = 0.9 * slots[0] - 0.1 * gradient
    return -velocity, [velocity]


def rmsprop(step, gradient, slots):
    square = 0.9 * slots[0] + 0.1 * gradient**2
    return 0.1 * gradient / (np.sqrt(square) + 1e-7), [square]


FORMULAS = {
    'adam': (lambda keras: keras.optimizers.Adam(lr=0.1), adam, 2),
    'momentum': (lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9), momentum, 1),
    'rmsprop': (lambda keras: keras.optimizers.RMSprop(lr=0.1), rmsprop, 1),
}


def linear_model(keras, optimizer, sparse_update):
    """The model, the variable that holds its table, and those that hold the table's slots."""
    wrap = {'sparse_update': sparse_update}
    model = ours.compiled(cases.Case(linear, optimizer, loss=product, wrap=wrap), keras)
    model._make_train_function()
    table = model.trainable_weights[0]
    slots = [
        variable
        for variable in tf.global_variables()
        if variable is not table and variable.shape.as_list() == [ROWS, WIDTH]
    ]
    return model, table, slots


@PACKAGES
@pytest.mark.parametrize('name', sorted(FORMULAS))
def test_lazy_moves_a_row_and_its_slots_by_the_formula_when_it_is_touched(package, name):
    keras = cases.keras_module(package)
    optimizer, formula, number_of_slots = FORMULAS[name]
    model, table, slots = linear_model(keras, optimizer, 'lazy')
    assert len(slots) == number_of_slots
    rows = model.get_weights()[0].astype(np.float64)
    expected = [np.zeros((ROWS, WIDTH)) for _ in slots]
    for step, (ids, targets) in enumerate(linear_batches(), 1):
        model.train_on_batch(ids, targets)
        touched = np.unique(ids)
        gradient = row_gradients(ids, targets)[touched]
        decrease, new = formula(step, gradient, [slot[touched] for slot in expected])
        rows[touched] -= decrease
        for slot, value in zip(expected, new):
            slot[touched] = value
        np.testing.assert_allclose(keras.backend.get_value(table), rows, rtol=0, atol=3e-6)
        for slot, value in zip(slots, expected):
            np.testing.assert_allclose(keras.backend.get_value(slot), value, rtol=0, atol=1e-6)


@PACKAGES
def test_an_untouched_row_and_its_slots_rest_under_lazy_and_move_under_exact(package):
    keras = cases.keras_module(package)
    rests = {}
    for sparse_update in ('lazy', 'exact'):
        optimizer = FORMULAS['adam'][0]
        model, table, slots = linear_model(keras, optimizer, sparse_update)
        watched = [table] + slots
        # The row has to have slots that are not zero: those rest in any case.
        model.train_on_batch(np.array([[4], [5]]), np.ones((2, WIDTH)))
        before = keras.backend.batch_get_value(watched)
        model.train_on_batch(np.array([[5], [5]]), np.ones((2, WIDTH)))
        after = keras.backend.batch_get_value(watched)
        rests[sparse_update] = [bool((old[4] == new[4]).all()) for old, new in zip(before, after)]
        assert not any((old[5] == new[5]).any() for old, new in zip(before, after))
    assert rests == {'lazy': [True] * 3, 'exact': [False] * 3}


@PACKAGES
def test_a_row_touched_again_has_the_mean_that_it_was_left_with(package):
    keras = cases.keras_module(package)
    model, _, (mean, _) = linear_model(keras, FORMULAS['adam'][0], 'lazy')
    ones = np.ones((2, WIDTH))
    model.train_on_batch(np.array([[4], [4]]), ones)
    for _ in range(3):
        model.train_on_batch(np.array([[5], [5]]), ones)
    model.train_on_batch(np.array([[4], [4]]), ones)
    np.testing.assert_allclose(keras.backend.get_value(mean)[4], 0.9 * 0.1 + 0.1, rtol=1e-6)
