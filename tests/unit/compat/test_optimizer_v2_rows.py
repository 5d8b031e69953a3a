# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Formulas for rows against the sparse updates of Keras's own optimizers that take rows."""

import numpy as np
import pytest
from frameworks import keras_module, tf

import keras_parallax as kp
from keras_parallax.compat import keras_optimizers, optimizer_v2_rows
from keras_parallax.engine.updates import optimizers

pytestmark = pytest.mark.skipif(
    not keras_optimizers.OPTIMIZER_V2, reason='TensorFlow 1.11 has no such optimizers'
)
ROWS, WIDTH, STEPS = 5, 3, 4

#: Those whose own sparse updates leave rows without a gradient alone.
OPTIMIZERS = {
    'sgd': lambda of: of.SGD(0.1, decay=0.1),
    'momentum': lambda of: of.SGD(0.1, momentum=0.9),
    'nesterov': lambda of: of.SGD(0.1, momentum=0.9, nesterov=True),
    'adagrad': lambda of: of.Adagrad(0.1, decay=0.1),
    'adadelta': lambda of: of.Adadelta(0.5, rho=0.8),
    'adamax': lambda of: of.Adamax(0.1, beta_1=0.8),
    'rmsprop': lambda of: of.RMSprop(0.1, rho=0.8, momentum=0.5),
    'centered': lambda of: of.RMSprop(0.1, rho=0.8, momentum=0.5, centered=True, epsilon=0.01),
    'rowwise': lambda of: kp.optimizers.RowwiseAdagrad(0.1, keras='tf.keras'),
    'lazy': lambda of: kp.optimizers.LazyAdam(0.1, keras='tf.keras'),
}


def trained(name, updating, dtype=tf.float32):
    """Rows after some steps, and the optimizer's weights, all arrays; and the start of the rows.

    Args:
        name: of an optimizer.
        updating: function from the optimizer and the rows, a variable, to what applies gradients.
        dtype: that of the rows.
    """
    keras, random = keras_module('tf.keras'), np.random.RandomState(0)
    keras.backend.clear_session()
    optimizer = OPTIMIZERS[name](keras.optimizers)
    start = random.uniform(-1, 1, (ROWS, WIDTH))
    rows = tf.Variable(tf.constant(start, dtype), use_resource=True, name='rows')
    values, numbers = tf.placeholder(tf.float32, (None, WIDTH)), tf.placeholder(tf.int32, (None,))
    gradient = tf.IndexedSlices(values, numbers, (5, 3))
    step = updating(optimizer, rows).apply_gradients([(gradient, rows)])
    session = keras.backend.get_session()
    session.run([one.initializer for one in [rows, *optimizer.weights]])
    for _ in range(STEPS):
        few = random.permutation(ROWS)[:2]
        session.run(step, {values: random.uniform(-1, 1, (2, WIDTH)), numbers: few})
    return session.run([rows, *optimizer.weights]), start


def formula_of(optimizer):
    return optimizers.rows_of_v2(type(optimizer), optimizer).row_formula


def itself(optimizer, variable):
    return optimizer


def narrow(keep):
    """What `trained` takes, for rows of fewer bits, given what makes them of wide ones."""

    def updating(optimizer, variable):
        rows = [optimizer_v2_rows.NarrowRows(variable, tf.float32, keep)]
        return optimizer_v2_rows.updating(
            optimizer, type(optimizer), formula_of(optimizer), narrow=rows
        )

    return updating


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_a_formula_moves_rows_and_slots_as_the_optimizers_own_update(name):
    (found, _), (expected, start) = (
        trained(name, narrow(lambda rows, values: values)),
        trained(name, itself),
    )
    assert (found[0] != start.astype(np.float32)).any()
    assert len(found) == len(expected)
    for ours, plain in zip(found, expected):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_rows_of_fewer_bits_have_slots_of_all(name):
    half = narrow(lambda rows, values: tf.cast(values, tf.float16))
    (found, _), (expected, _) = trained(name, half, tf.float16), trained(name, itself)
    assert found[0].dtype == np.float16
    assert {slot.dtype for slot in found[2:]} <= {np.dtype('float32')}
    np.testing.assert_allclose(found[0], expected[0], atol=0.01)


@pytest.mark.parametrize('name', ['sgd', 'rowwise', 'lazy'])
def test_rows_are_subtracted_by_a_kernel_that_locks_where_several_workers_write(name):
    def not_alone(optimizer, variable):
        return optimizer_v2_rows.updating(
            optimizer, type(optimizer), formula_of(optimizer), name != 'sgd', alone=False
        )

    found, _ = trained(name, not_alone)
    types = {user.type for user in tf.get_default_graph().get_operations()}
    assert 'ResourceSparseApplyProximalGradientDescent' in types
    expected, _ = trained(name, itself)
    for ours, plain in zip(found, expected):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_rows_that_come_once_are_not_summed_again_and_move_by_the_same_bits(name):
    def as_they_come(optimizer, variable):
        return optimizer_v2_rows.updating(optimizer, type(optimizer))

    found, start = trained(name, as_they_come)
    types = {one.type for one in tf.get_default_graph().get_operations()}
    expected, _ = trained(name, itself)
    assert not {'Unique', 'UnsortedSegmentSum'} & types
    assert not np.array_equal(found[0], start)
    for value, plain in zip(found, expected):
        np.testing.assert_array_equal(value, plain)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_no_method_and_no_class_of_the_optimizer_is_changed(name):
    def updating(optimizer, variable):
        kept.append((optimizer, type(optimizer), set(vars(optimizer)), vars(optimizer).copy()))
        rows = [optimizer_v2_rows.NarrowRows(variable, tf.float32, lambda rows, values: values)]
        return optimizer_v2_rows.updating(
            optimizer, type(optimizer), formula_of(optimizer), True, False, rows
        )

    kept = []
    trained(name, updating)
    ((optimizer, cls, names, before),) = kept
    assert type(optimizer) is cls
    # What any step sets: hyperparameters, slots and whatever Keras itself remembers of them.
    assert not any(callable(getattr(cls, name, None)) for name in vars(optimizer))
    assert vars(optimizer)['_use_locking'] is before['_use_locking']
    assert {name for name in names if vars(optimizer)[name] is not before[name]} <= {
        '_hypers_created',
        '_iterations',
    }


def test_gradients_that_are_clipped_are_not_clipped_again():
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    sgd = keras.optimizers.SGD(1.0, clipvalue=0.25)
    variable = tf.get_variable('one', [2], initializer=tf.zeros_initializer(), use_resource=True)
    updating = optimizer_v2_rows.updating(sgd, type(sgd))
    whole = updating.apply_gradients([(tf.ones([2]), variable)])
    clipped = sgd.apply_gradients([(tf.ones([2]), variable)])
    assert sgd.clipvalue == 0.25
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(whole)
        np.testing.assert_allclose(session.run(variable), [-1, -1])
        session.run(clipped)
        np.testing.assert_allclose(session.run(variable), [-1.25, -1.25])
