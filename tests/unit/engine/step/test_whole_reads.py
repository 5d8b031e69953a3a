# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The gradients of a table on shards that a loss reads whole."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.step import whole_reads
from keras_parallax.engine.step.exchange import RowGradients
from keras_parallax.engine.tables.table import Table
from keras_parallax.errors import PlanError
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import PlannedVariable

ROWS = 7
SERVERS = Servers(devices=('/device:CPU:0',), owners=(0,))


def table_of(row_shape):
    shape = (ROWS,) + row_shape
    plan = PlannedVariable('table', shape, 'float32', 'sparse', 'a test', (Shard(0, ROWS),))
    return Table(tf.Variable(tf.zeros(shape)), plan, servers=SERVERS)


def tied(wholes, rows, ids):
    """A loss that looks rows up and reads the whole of it, in the ways asked for."""
    loss = tf.reduce_sum(tf.sin(rows) * tf.reshape(tf.cast(ids, tf.float32), [-1, 1]))
    for number, (how, whole) in enumerate(wholes):
        factor = number + 2.0
        if how == 'whole':
            loss += factor * tf.reduce_sum(tf.cos(whole))
        elif how == 'gathered':
            loss += factor * tf.reduce_sum(tf.exp(tf.gather(whole, [6, 2, 6])))
    return loss


@pytest.mark.parametrize(
    'hows',
    [('whole',), ('whole', 'whole'), ('gathered',), ('whole', 'gathered'), ('held', 'whole')],
)
@pytest.mark.parametrize('ids', [[4, 1, 4], []])
def test_they_are_those_of_the_rows_that_tensorflow_joins(hows, ids):
    start = np.random.RandomState(1).normal(size=(ROWS, 2)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        variable, numbers = tf.Variable(start, use_resource=True), tf.constant(ids, tf.int32)
        reads = [tf.convert_to_tensor(variable) for _ in hows]
        loss = tied(list(zip(hows, reads)), tf.gather(variable, numbers), numbers)
        (expected,) = tf.gradients(loss, [variable])
        looked_up = tf.identity(tf.gather(start, numbers))
        values = [tf.constant(start) for _ in hows]
        loss = tied(list(zip(hows, values)), looked_up, numbers)
        of_rows, *of_wholes = tf.gradients(loss, [looked_up] + values)
        gradients = {
            value: gradient for value, gradient in zip(values, of_wholes) if gradient is not None
        }
        of_rows = [RowGradients(numbers, of_rows)]
        found = whole_reads.joined(table_of((2,)), values, of_rows, gradients, tf.no_op())
        session.run(variable.initializer)
        rows, values = session.run(list(found))
        whole = np.zeros_like(start)
        whole[rows] = values
        np.testing.assert_allclose(whole, session.run(tf.convert_to_tensor(expected)), rtol=1e-5)
        # Each row once, and no others than those that an optimizer moves in plain Keras.
        moved = range(ROWS)
        if isinstance(expected, tf.IndexedSlices):  # TensorFlow 2 joins them with a tensor to one.
            moved = set(session.run(expected.indices))
        assert sorted(rows) == sorted(moved)


def test_a_table_of_numbers_has_rows_without_a_shape():
    with tf.Graph().as_default(), tf.Session() as session:
        value = tf.constant(np.arange(ROWS, dtype=np.float32))
        gradients = {value: 2.0 * value}
        of_rows = [RowGradients(tf.constant([3], tf.int64), tf.constant([10.0]))]
        found = whole_reads.joined(table_of(()), [value], of_rows, gradients, tf.no_op())
        rows, values = session.run(list(found))
        assert list(rows) == list(range(ROWS))
        assert list(values) == [0, 2, 4, 16, 8, 10, 12]


def test_nothing_of_it_is_there_before_the_rank_has_all_its_gradients():
    with tf.Graph().as_default():
        value, computed = tf.zeros([ROWS, 2]), tf.no_op()
        found = whole_reads.joined(table_of((2,)), [value], [], {value: value + 1.0}, computed)
        assert computed in found.values.op.control_inputs


@pytest.mark.parametrize(
    'size, has_gradient, refused', [(2, True, True), (1, True, False), (2, False, False)]
)
def test_a_bound_is_refused_if_each_of_several_workers_has_a_part_of_what_it_bounds(
    size, has_gradient, refused
):
    with tf.Graph().as_default():
        table, value = table_of((2,)), tf.zeros([ROWS, 2])
        gradients = {value: value} if has_gradient else {}
        if not refused:
            whole_reads.require_no_bounds({table: [value]}, gradients, size)
            return
        with pytest.raises(PlanError, match='clipnorm.* table '):
            whole_reads.require_no_bounds({table: [value]}, gradients, size)
