# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers of tables beside one of dense variables, in one process."""

import os

import cases
import numpy as np
import pytest
from cases import ROWS, WIDTH
from frameworks import KERAS_PACKAGES, TF1_15, TF2

import keras_parallax as kp

#: What the sums of squares of Keras's Adagrad begin with.
ADAGRAD_BEGINS = 0.1 if TF2 else 0.0
every_package = pytest.mark.parametrize('package', KERAS_PACKAGES)


def model_of(package, given=lambda keras: {}):
    """`shared`'s inputs on two tables, which are `given` optimizers of their own or not."""
    keras = cases.keras_module(package)
    left, right = keras.layers.Input((5,)), keras.layers.Input((5,))
    towers = [
        keras.layers.Flatten()(keras.layers.Embedding(ROWS, WIDTH, name=name)(ids))
        for name, ids in (('user', left), ('item', right))
    ]
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(towers))
    model = keras.models.Model([left, right], out)
    optimizer = keras.optimizers.SGD(lr=0.1, decay=0.5)
    model.compile(kp.ParallaxOptimizer(optimizer, **given(keras)), 'mse')
    return model


def ours(package, given=lambda keras: {}):
    cases.keras_module(package).backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = model_of(package, given)
    model.set_weights(cases.start_weights(model))
    return strategy, model


def batches(steps):
    random = np.random.RandomState(2)
    return [cases.shared_batch(random, 6) for _ in range(steps)]


def expected(package, steps, weights):
    """SGD with decay for what is dense, Adagrad for users, RMSprop of touched rows for items."""
    keras = cases.keras_module(package)
    _, model = ours(package)
    compute = cases.gradients_of(keras, model)
    slots = [np.zeros_like(weight) for weight in weights]
    slots[0] += ADAGRAD_BEGINS
    for step, (ids, targets) in enumerate(batches(steps)):
        model.set_weights(weights)
        for number, gradient in enumerate(compute([*ids, targets])):
            name = model.trainable_weights[number].name.split('/')[0]
            if name == 'out':
                weights[number] -= 0.1 / (1 + 0.5 * step) * gradient
            elif name == 'user':
                slots[number] += gradient**2
                weights[number] -= 0.2 * gradient / (np.sqrt(slots[number]) + 1e-7)
            else:
                rows = np.unique(ids[1])
                slots[number][rows] = 0.9 * slots[number][rows] + 0.1 * gradient[rows] ** 2
                rate = 0.01 / (1 + 0.5 * step)
                moved = rate * gradient[rows] / (np.sqrt(slots[number][rows]) + 1e-7)
                weights[number][rows] -= moved
    return weights


def of_each(keras):
    adagrad = keras.optimizers.Adagrad(lr=0.2)
    # An OptimizerV2 makes its number of steps when somebody reads it, and lets nobody set it then.
    assert adagrad.iterations is not None
    return {
        'tables': keras.optimizers.RMSprop(lr=0.01, decay=0.5),
        'per_table': {'user': adagrad},
        'sparse_update': 'lazy',
    }


@every_package
def test_each_variable_follows_its_own_optimizer(package):
    strategy, model = ours(package, of_each)
    cases.train(model, batches(4))
    found = model.get_weights()
    plan = strategy.plan(model)
    truth = expected(package, 4, cases.start_weights(model))
    for weight, of_numpy in zip(found, truth):
        np.testing.assert_allclose(weight, of_numpy, rtol=1e-4, atol=1e-6)
    for name in ('user', 'item'):
        words = plan[name + '/embeddings'].update.words
        assert words.endswith('the optimizer of this table')


@every_package
def test_a_model_goes_on_from_a_file_with_all_slots_and_rates(package, tmp_path):
    keras = cases.keras_module(package)
    given = []
    _, model = ours(package, lambda keras: given.append(of_each(keras)) or given[0])
    cases.train(model, batches(2))
    keras.backend.set_value(given[0]['per_table']['user'].lr, 0.3)
    path = os.path.join(str(tmp_path), 'model.h5')
    model.save(path)
    cases.train(model, batches(4)[2:])
    truth = model.get_weights()
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        rates = of_each(keras)
        rates['per_table']['user'] = keras.optimizers.Adagrad(lr=0.3)
        again = kp.load_model(path, **rates)
    cases.train(again, batches(4)[2:])
    for weight, of_first in zip(again.get_weights(), truth):
        np.testing.assert_array_equal(weight, of_first)


def test_the_rate_of_a_table_is_restored_from_a_checkpoint(tmp_path):
    package = KERAS_PACKAGES[0]
    keras, given = cases.keras_module(package), []
    note = lambda keras: given.append(of_each(keras)) or given[-1]  # noqa: E731
    _, model = ours(package, note)
    keras.backend.set_value(given[0]['per_table']['user'].lr, 0.375)
    path = os.path.join(str(tmp_path), 'model.h5')
    ids, targets = batches(1)[0]
    model.fit(ids, targets, verbose=0, callbacks=[kp.callbacks.ModelCheckpoint(path)])
    strategy, again = ours(package, note)
    assert strategy.resume(again, path) == 1
    assert keras.backend.get_value(given[1]['per_table']['user'].lr) == 0.375


def test_a_file_of_other_optimizers_of_tables_is_refused(tmp_path):
    package = KERAS_PACKAGES[0]
    _, model = ours(package, of_each)
    cases.train(model, batches(1))
    path = os.path.join(str(tmp_path), 'model.h5')
    model.save(path)
    cases.keras_module(package).backend.clear_session()
    with kp.ParallaxStrategy(), pytest.raises(
        kp.CheckpointError,
        match=r'RMSprop for all others, Adagrad for user\) for tables, but .* no',
    ):
        kp.load_model(path)


@pytest.mark.parametrize(
    'arguments, sentence',
    [
        (
            lambda keras: {'per_table': {'out': 'adagrad'}},
            r'an optimizer for out, but out/kernel is read whole by MatMul.*tables are item/embed',
        ),
        (
            lambda keras: {'per_table': {'nobody': 'adagrad'}},
            'an optimizer for nobody, but there is none; tables are item/embeddings, user/embed',
        ),
        (
            lambda keras: {'tables': 'adam'},
            'table user/embeddings moves touched rows only, but .*Adam.* moves (every|all) row',
        ),
        (lambda keras: {'tables': 'nadam'}, 'single rows is known.* but Nadam was given'),
        (
            lambda keras: {'tables': keras.optimizers.SGD(clipnorm=1.0)},
            'has no clipvalue or clipnorm.* of its own',
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(arguments, sentence):
    with pytest.raises(kp.PlanError, match=sentence):
        _, model = ours(KERAS_PACKAGES[0], arguments)
        model._make_train_function()


@pytest.mark.skipif(not TF2 or TF1_15, reason='no other TensorFlow scales the loss')
def test_an_optimizer_that_scales_the_loss_is_that_of_the_model():
    def given(keras):
        scaling = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
        return {'tables': scaling}

    with pytest.raises(kp.PlanError, match='but LossScaleOptimizer was given'):
        ours(KERAS_PACKAGES[0], given)


def test_automatic_architectures_are_refused():
    cases.keras_module(KERAS_PACKAGES[0]).backend.clear_session()
    with kp.ParallaxStrategy(architecture='auto'):
        model = model_of(KERAS_PACKAGES[0], lambda keras: {'tables': 'adagrad'})
    with pytest.raises(kp.PlanError, match="architecture='auto' may have tables updated as dense"):
        model._make_train_function()


@every_package
def test_the_second_model_of_a_process_follows_options_that_name_layers(package):
    cases.keras_module(package).backend.clear_session()
    models = []
    for _ in range(2):
        with kp.ParallaxStrategy(overrides={'item': 'dense'}) as strategy:
            rowwise = {'user': kp.optimizers.RowwiseAdagrad(lr=0.1)}
            models.append(model_of(package, lambda keras, rowwise=rowwise: {'per_table': rowwise}))
    models[1].train_on_batch(*batches(1)[0])
    user, item = strategy.plan(models[1]).variables[:2]
    assert (user.name, user.kind) == ('user_1/embeddings', 'sparse')
    assert (item.name, item.kind) == ('item_1/embeddings', 'dense')
    # Row-wise Adagrad keeps one number for each row of the layer's table.
    assert [ROWS] in [weight.shape.as_list() for weight in models[1].optimizer.weights]
