# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which rows of a whole gradient an optimizer is given."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.step import indexed_slices

ROWS = 6


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def gradient_of(rows, width=2):
    """`IndexedSlices` of zeros."""
    rows = tf.constant(rows, tf.int32)
    return tf.IndexedSlices(tf.zeros([tf.size(rows), width]), rows, tf.constant([ROWS, width]))


@pytest.mark.parametrize('rows', [[4, 1, 4], [0], [], [5, 4, 3, 2, 1, 0]])
def test_the_rows_of_a_mask_are_those_of_the_gradient_in_order_whatever_their_values(rows):
    with tf.Graph().as_default():
        gradient = gradient_of(rows)
        mask = indexed_slices.row_mask_of(gradient, ROWS)
        found = mask.rows_of(tf.convert_to_tensor(gradient))
        numbers, values, shape = run([found.indices, found.values, found.dense_shape])
    np.testing.assert_array_equal(numbers, sorted(set(rows)))
    assert values.shape == (len(set(rows)), 2)
    np.testing.assert_array_equal(shape, [ROWS, 2])


def test_a_sum_of_masks_has_the_rows_of_each():
    with tf.Graph().as_default():
        of_ranks = [
            indexed_slices.row_mask_of(gradient_of(rows), ROWS).numbers for rows in ([1, 1], [4, 1])
        ]
        whole = tf.reshape(tf.range(12.0), [ROWS, 2])
        found = indexed_slices.RowMask(tf.add_n(of_ranks)).rows_of(whole)
        numbers, values = run([found.indices, found.values])
    np.testing.assert_array_equal(numbers, [1, 4])
    np.testing.assert_array_equal(values, [[2.0, 3.0], [8.0, 9.0]])


def test_many_lookups_of_a_row_count_once():
    with tf.Graph().as_default():
        mask = indexed_slices.row_mask_of(gradient_of([3] * 70000), ROWS)
        np.testing.assert_array_equal(run(mask.numbers), [0, 0, 0, 1, 0, 0])


def test_rows_that_a_batch_counts_up_itself_are_not_taken_for_all():
    with tf.Graph().as_default():
        table = tf.get_variable('table', [ROWS, 2])
        some = tf.gather(table, tf.range(4))
        (gradient,) = tf.gradients(tf.reduce_sum(some), [table])
        np.testing.assert_array_equal(
            run(indexed_slices.row_mask_of(gradient, ROWS).numbers), [1] * 4 + [0] * 2
        )


def test_all_rows_need_no_marks_where_the_graph_shows_them():
    with tf.Graph().as_default():
        table = tf.get_variable('table', [ROWS, 2])
        loss = tf.reduce_sum(tf.gather(table, [1, 1])) + tf.reduce_sum(tf.square(table))
        (gradient,) = tf.gradients(loss, [table])
        if not isinstance(gradient, tf.IndexedSlices):
            pytest.skip('TensorFlow 2 makes a tensor of the two')
        mask = indexed_slices.row_mask_of(gradient, ROWS)
        assert mask.numbers is None
        assert mask.mapped(tf.negative) is mask
        found = mask.rows_of(tf.ones([ROWS, 2]))
        np.testing.assert_array_equal(run(found.indices), range(ROWS))


def test_what_bounds_rows_leaves_tensors():
    with tf.Graph().as_default():
        tensor = tf.constant([3.0])
        assert indexed_slices.bounded(tensor, 1.0) is tensor
        rows = tf.IndexedSlices(tf.constant([3.0, -0.5]), tf.constant([0, 1]))
        np.testing.assert_array_equal(run(indexed_slices.bounded(rows, 1.0).values), [1.0, -0.5])
