# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sums of rows by segment against NumPy, and which rows are sorted for them."""

import numpy as np
import pytest
from frameworks import TF2, tf

from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.segment_sums import segment_sum


def summed(rows, segments, count, row_shape, dtype):
    """What `segment_sum` and NumPy sum up, and the types of operations that did."""
    values = np.random.RandomState(1).randn(rows, *row_shape).astype(dtype)
    expected = np.zeros((count,) + row_shape, dtype)
    np.add.at(expected, segments, values)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        given = tf.placeholder(dtype, (None,) + row_shape)
        total = segment_sum(given, tf.constant(segments), tf.constant(count))
        assert total.shape.as_list()[1:] == list(row_shape)
        types = {operation.type for operation in graph.get_operations()}
        return session.run(total, {given: values}), expected, types


@pytest.mark.parametrize('segments', (np.int32, np.int64))
@pytest.mark.parametrize('dtype', (np.float32, np.float64))
@pytest.mark.parametrize('row_shape', ((), (3,), (128,), (4, 64)))
def test_rows_are_summed_by_segment(row_shape, dtype, segments):
    numbers = np.array([3, 0, 3, 3, 5, 0] * 20, segments)
    total, expected, _ = summed(120, numbers, 7, row_shape, dtype)
    # A sum of sixty numbers, in another order.
    np.testing.assert_allclose(total, expected, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_a_sum_on_a_card_is_not_sorted():
    with tf.Graph().as_default() as graph:
        segment_sum(tf.zeros([4, 128]), tf.zeros([4], tf.int32), tf.constant(2), on_card=True)
        assert 'UnsortedSegmentSum' in {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize('width', (3, 128))
def test_no_rows_are_summed_to_zeros(width):
    total, expected, _ = summed(0, np.zeros(0, np.int32), 2, (width,), np.float32)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize(
    'row_shape, dtype, is_sorted',
    [
        ((127,), np.float32, False),
        ((128,), np.float32, TF2),
        ((2, 64), np.float64, TF2),
        ((128,), np.float16, False),
    ],
)
def test_wide_rows_are_sorted_with_tensorflow_2_alone(monkeypatch, row_shape, dtype, is_sorted):
    # On the CPU of a machine with a card as well.
    monkeypatch.setattr(generation, 'visible_cards', lambda: 1)
    _, _, types = summed(4, np.array([1, 0, 1, 1], np.int32), 2, row_shape, dtype)
    assert ('UnsortedSegmentSum' in types) != is_sorted
