# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers of Keras that take rows: what they keep, and how they clip."""

import cases
import numpy as np
import ours
import own_optimizers_v2
import pytest
from frameworks import keras_module, tf

from keras_parallax.compat import keras_optimizers
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import PlanError
from keras_parallax.planning.classify import ANY_ROWS, Described

pytestmark = pytest.mark.skipif(
    not keras_optimizers.OPTIMIZER_V2, reason='TensorFlow 1 has no such optimizers'
)


@pytest.fixture
def keras():
    module = keras_module('tf.keras')
    module.backend.clear_session()
    return module


def trained_on_two_variables(optimizer):
    """Applies an optimizer once to two variables; gives these."""
    variables = [
        tf.get_variable(name, [3, 2], initializer=tf.ones_initializer(), use_resource=True)
        for name in ('first', 'second')
    ]
    optimizer.apply_gradients([(tf.ones([3, 2]), variable) for variable in variables])
    return variables


def test_slots_are_told_by_variable_and_counters_belong_to_none(keras):
    adam = keras.optimizers.Adam()
    variables = trained_on_two_variables(adam)
    counters, slots, _ = keras_optimizers.kept_by(adam, variables)
    assert [counter is adam.iterations for counter in counters] == [True]
    assert list(slots) == ['m', 'v']
    for name, of_variables in slots.items():
        assert [slot.name for slot in of_variables] == [
            'Adam/%s/%s:0' % (variable.name[:-2], name) for variable in variables
        ]


def test_slots_that_are_forgotten_are_made_anew(keras):
    adam = keras.optimizers.Adam()
    first, second = trained_on_two_variables(adam)
    before = keras_optimizers.kept_by(adam, [first, second])[1]
    keras_optimizers.forget_slots(adam, [first])
    assert keras_optimizers.kept_by(adam, [first, second]) is None
    adam.apply_gradients([(tf.ones([3, 2]), variable) for variable in (first, second)])
    after = keras_optimizers.kept_by(adam, [first, second])[1]
    assert after['m'][0] is not before['m'][0] and after['m'][1] is before['m'][1]
    assert len(adam.weights) == 5


def test_the_adapter_of_keras_own_knows_that_it_takes_rows(keras):
    adapter = adapter_of(keras.optimizers.Adagrad(clipnorm=0.5))
    assert adapter.takes_rows and adapter.inner is None and adapter.name == 'Adagrad'
    assert adapter.bounds == (None, 0.5, None)


def use(name):
    return Described(name, (9, 2), 'float32', rows=True)


@pytest.mark.parametrize('name', sorted(own_optimizers_v2.OWN))
def test_an_optimizer_of_a_users_is_given_every_variable_and_rows_as_they_come(keras, name):
    adapter = adapter_of(own_optimizers_v2.OWN[name](keras))
    variables = (use('table'), use('other'))
    assert 'from others too' in adapter.reach(variables, frozenset(['table'])).together
    assert adapter.takes_slices(variables)
    assert not adapter.bounds.clips


@pytest.mark.parametrize('name', ['apply_gradients', 'get_gradients', '_transform_gradients'])
def test_a_method_of_an_objects_own_makes_it_a_users(keras, name):
    optimizer = keras.optimizers.Adam(clipnorm=0.5)
    assert adapter_of(optimizer).reach((use('table'),), frozenset(['table'])) == ANY_ROWS
    assert not adapter_of(optimizer).takes_slices((use('table'),))
    setattr(optimizer, name, getattr(optimizer, name))
    assert adapter_of(optimizer).takes_slices((use('table'),))


@pytest.mark.parametrize('bound', ['clipnorm', 'clipvalue', 'global_clipnorm'])
@pytest.mark.parametrize('name', ['SGD', 'Adam'])
def test_a_bound_that_binds_clips_as_keras_clips(keras, name, bound):
    def optimizer(keras):
        return getattr(keras.optimizers, name)(0.05, **{bound: 0.02})

    case = cases.Case(cases.embed_and_sum(), optimizer, cases.ids_and_targets)
    unbound = case._replace(optimizer=lambda keras: getattr(keras.optimizers, name)(0.05))
    _, weights = ours.assert_equals_plain_keras(case, keras)
    _, others = ours.assert_equals_plain_keras(unbound, keras)
    assert any(np.abs(one - other).max() > 1e-4 for one, other in zip(weights, others))


@pytest.mark.parametrize(
    'name, slots',
    [('Adam', ['m', 'm', 'v', 'v']), ('Ftrl', ['accumulator', 'linear', 'accumulator', 'linear'])],
)
def test_weights_are_in_the_order_in_which_the_optimizer_makes_them(keras, name, slots):
    """Ftrl makes both slots of a variable before those of the next one."""
    optimizer = getattr(keras.optimizers, name)(0.05)
    variables = trained_on_two_variables(optimizer)
    _, by_name, order = keras_optimizers.kept_by(optimizer, variables)
    assert order[0] is optimizer.iterations
    assert [list(by_name)[number] for _, number in order[1:]] == slots
    # As when a table gets other shards.
    keras_optimizers.forget_slots(optimizer, variables[:1])
    optimizer.apply_gradients([(tf.ones([3, 2]), variable) for variable in variables])
    assert keras_optimizers.kept_by(optimizer, variables)[2][1:] == order[1:]
    case = cases.CASES['adam']._replace(
        optimizer=lambda keras: getattr(keras.optimizers, name)(0.05)
    )
    ours.assert_equals_plain_keras(case, keras, slots=True)


@pytest.mark.parametrize('bound', ['clipnorm', 'clipvalue', 'global_clipnorm'])
def test_a_bound_beside_a_regularizer_of_a_table_is_refused(keras, bound):
    model = cases.embed_and_sum(embeddings_regularizer=lambda keras: keras.regularizers.l1(0.01))
    case = cases.Case(
        model, lambda keras: keras.optimizers.SGD(0.05, **{bound: 0.02}), cases.ids_and_targets
    )
    with pytest.raises(PlanError, match='SGD has a bound .* and table/embeddings a regularizer'):
        ours.assert_equals_plain_keras(case, keras)
