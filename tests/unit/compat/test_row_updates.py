"""Formulas for rows against the sparse updates of Keras's own optimizers that take rows."""

import contextlib

import numpy as np
import pytest
from frameworks import keras_module, tf

import keras_parallax as kp
from keras_parallax.compat import keras_optimizers, row_updates

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


def trained(name, context, dtype=tf.float32):
    """Rows after some steps, whose updates are built in a context, and the optimizer's weights."""
    keras, random = keras_module('tf.keras'), np.random.RandomState(0)
    keras.backend.clear_session()
    optimizer = OPTIMIZERS[name](keras.optimizers)
    start = random.uniform(-1, 1, (ROWS, WIDTH))
    rows = tf.Variable(tf.constant(start, dtype), use_resource=True, name='rows')
    values, numbers = tf.placeholder(tf.float32, (None, WIDTH)), tf.placeholder(tf.int32, (None,))
    with context(optimizer, rows):
        step = optimizer.apply_gradients([(tf.IndexedSlices(values, numbers, (5, 3)), rows)])
    session = keras.backend.get_session()
    session.run([one.initializer for one in [rows, *optimizer.weights]])
    for _ in range(STEPS):
        few = random.permutation(ROWS)[:2]
        session.run(step, {values: random.uniform(-1, 1, (2, WIDTH)), numbers: few})
    return session.run([rows, *optimizer.weights]), start


@contextlib.contextmanager
def own_update(optimizer, variable):
    yield


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_a_formula_moves_rows_and_slots_as_the_optimizers_own_update(name):
    def by_formula(optimizer, variable):
        same = lambda rows, values: values  # noqa: E731
        return row_updates.rounded(optimizer, [(variable, tf.float32, same)])

    (found, _), (expected, start) = trained(name, by_formula), trained(name, own_update)
    assert (found[0] != start.astype(np.float32)).any()
    assert len(found) == len(expected)
    for ours, plain in zip(found, expected):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_rows_of_fewer_bits_have_slots_of_all(name):
    def half(optimizer, variable):
        cast = lambda rows, values: tf.cast(values, tf.float16)  # noqa: E731
        return row_updates.rounded(optimizer, [(variable, tf.float32, cast)])

    (found, _), (expected, _) = trained(name, half, tf.float16), trained(name, own_update)
    assert found[0].dtype == np.float16
    assert {slot.dtype for slot in found[2:]} <= {np.dtype('float32')}
    np.testing.assert_allclose(found[0], expected[0], atol=0.01)


@pytest.mark.parametrize('name', ['rowwise', 'lazy'])
def test_ours_subtract_from_rows_where_several_workers_write(name):
    found, _ = trained(name, lambda of, variable: row_updates.by_formula(of, False, alone=False))
    types = {user.type for user in tf.get_default_graph().get_operations()}
    assert 'ResourceSparseApplyProximalGradientDescent' in types
    expected, _ = trained(name, own_update)
    for ours, plain in zip(found, expected):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_rows_that_come_once_are_not_summed_again_and_move_by_the_same_bits(name):
    counted = []

    @contextlib.contextmanager
    def as_they_come(optimizer, variable):
        with row_updates.given_each_row_once(optimizer):
            yield
        counted.append([one.type for one in tf.get_default_graph().get_operations()])

    found, start = trained(name, as_they_come)
    expected, _ = trained(name, own_update)
    assert not {'Unique', 'UnsortedSegmentSum'} & set(counted[0])
    assert not np.array_equal(found[0], start)
    for value, plain in zip(found, expected):
        np.testing.assert_array_equal(value, plain)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_an_optimizer_sums_rows_again_once_it_is_no_more_given_each_once(name):
    optimizer = OPTIMIZERS[name](keras_module('tf.keras').optimizers)
    before = dict(vars(optimizer))
    with row_updates.given_each_row_once(optimizer):
        pass
    assert vars(optimizer) == before
