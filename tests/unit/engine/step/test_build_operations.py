# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The operations of a step, and which combinations of arguments are refused."""

import numpy as np
import own_optimizers
import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.engine.step import build_operations as build_module
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.engine.updates import update_dependencies
from keras_parallax.errors import PlanError


class Workers:
    """Worker 1 of two, of which worker 0 says what it is told to."""

    rank, size = 1, 2

    def __init__(self, other=None):
        self.other, self.told = other, []

    def gather(self, value):
        self.told.append(value)
        return [self.other, value]


@pytest.fixture(autouse=True)
def graph():
    keras.backend.clear_session()
    yield
    keras.backend.clear_session()


def step_of_model(optimizer, regularizer=None, **wrap):
    """The step of a model of one table, in one process."""
    with kp.ParallaxStrategy():
        table = keras.layers.Embedding(
            7, 2, input_length=3, name='words', embeddings_regularizer=regularizer
        )
        layers = [table, keras.layers.Flatten(), keras.layers.Dense(1, name='out')]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer(optimizer, keras=KERAS_PACKAGES[0], **wrap), 'mse')
    model.train_on_batch(np.zeros([2, 3]), np.ones([2, 1]))
    return step_of(model)


def built(step, spec=None):
    """The operations of the same step once more."""
    return build_module.build_operations(spec or step.spec, step.spec.request, step.tables)


def test_every_step_has_names_of_its_own_and_knows_what_was_built_for_it():
    step = step_of_model('sgd')
    before = tf.get_default_graph().get_operations()
    operations = built(step)
    name, number = operations.prefix.rsplit('.', 1)
    assert step.operations.prefix == '%s.%d' % (name, int(number) - 1)
    new = set(tf.get_default_graph().get_operations()) - set(before)
    first, last = operations.span
    assert {first, last} <= set(map(tensorflow_api.operation_id, new))
    assert operations.update is None and operations.sums == []


def test_batches_that_are_added_up_are_exchanged_by_a_run_of_its_own():
    operations = step_of_model('sgd', accumulate_steps=2).operations
    run = graph_queries.ancestors(operations.operations)
    assert operations.computed in run and operations.update not in run
    update = graph_queries.ancestors([operations.update])
    # It needs no batch, and empties the sums.
    assert operations.computed not in update and operations.forget in update
    assert {one.op for one in operations.sums} & {
        tensor.op for one in update for tensor in one.inputs
    }


def test_workers_draw_the_random_numbers_of_a_formula_from_the_same_seeds():
    with tf.Graph().as_default():
        draws = update_dependencies.draws(
            [tf.random_normal([2]).op, tf.random_uniform([2], seed=3).op], -1
        )
        own = [[draw.get_attr('seed'), draw.get_attr('seed2')] for draw in draws]
        workers = Workers([[11, 12], [13, 14]])
        build_module._agree_on_draws(workers, draws)
        found = [[draw.get_attr('seed'), draw.get_attr('seed2')] for draw in draws]
    assert found == [[11, 12], [13, 14]]
    (told,) = workers.told
    # One that has no seeds would draw other numbers in each process.
    assert own[0] == [0, 0] and told[0][1] > 0 and told[1] == own[1]


def test_one_process_draws_as_it_likes_and_without_draws_nobody_is_asked():
    class Alone(Workers):
        rank, size = 0, 1

    for workers, draws in ((Alone(), ['a draw']), (Workers(), [])):
        build_module._agree_on_draws(workers, draws)
        assert workers.told == []


@pytest.mark.skipif(not TF2, reason='only optimizers of Keras 2.4 and later bound rows')
@pytest.mark.parametrize(
    'bound, regularizer, refused', [(1.0, 'l2', True), (None, 'l2', False), (1.0, None, False)]
)
def test_a_bound_beside_a_regularizer_of_a_table_is_refused(bound, regularizer, refused):
    optimizer = keras.optimizers.SGD(0.1, **({'clipvalue': bound} if bound else {}))
    if not refused:
        assert step_of_model(optimizer, regularizer).operations.operations
        return
    with pytest.raises(PlanError, match='SGD has a bound.*words/embeddings a regularizer'):
        step_of_model(optimizer, regularizer)


def test_a_formula_that_takes_rows_as_they_come_goes_with_no_optimizers_of_tables():
    # Of a user's optimizer of Keras 2.4 and later nothing else is known.
    optimizer = own_optimizers.OWN['entrywise' if TF2 else 'by_slices'](keras)
    with pytest.raises(PlanError, match='takes the rows of gradients as they come'):
        step_of_model(optimizer, tables='sgd')
