# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Half precision keeps the digits of a row, however small its numbers are."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
from frameworks import tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from keras_parallax.engine.tables import half_precision


def there_and_back(rows, compression=hvd.Compression.fp16):
    """Rows after their way, and the tensor that was sent."""
    with tf.Graph().as_default(), tf.Session() as session:
        sent, restore = half_precision.compress(tf.constant(rows), compression)
        return session.run(restore(sent)), sent


@given(
    rows=arrays(np.float32, (3, 4), elements=st.floats(-1, 1, width=32)),
    scale=st.integers(-100, 100),
)
def test_no_number_is_off_by_more_than_half_a_digit_of_the_largest_of_its_row(rows, scale):
    rows = np.ldexp(rows, scale)
    found, sent = there_and_back(rows)
    assert (sent.dtype, sent.shape.as_list()) == (tf.float16, [3, 5])
    largest = np.abs(rows).max(axis=1, keepdims=True)
    # TensorFlow's threads take what is smaller than the smallest normal number for zero.
    bound = np.maximum(largest * 2.0**-11, np.finfo(np.float32).tiny)
    assert (np.abs(found - rows) <= bound).all()


@pytest.mark.parametrize('shape', [(5,), (5, 1), (5, 2, 3), (0, 3)])
def test_rows_of_any_shape_come_back(shape):
    rows = np.random.RandomState(1).normal(size=shape).astype('float32') * 1e-7
    np.testing.assert_allclose(there_and_back(rows)[0], rows, rtol=2e-3, atol=1e-9)


def test_zeros_stay_zeros_and_what_is_no_number_stays_none():
    rows = np.array([[0, 0], [np.nan, 1], [np.inf, 1]], np.float32)
    found, _ = there_and_back(rows)
    assert (found[0] == 0).all()
    assert np.isnan(found[1, 0]) and not np.isfinite(found[2, 0])


def test_double_precision_comes_back_as_such():
    found, _ = there_and_back(np.array([[1e-20, 3e-20]]))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [[1e-20, 3e-20]], rtol=1e-3)


def test_without_compression_rows_are_sent_as_they_are():
    rows = np.array([[1e-20, 3.0]], np.float32)
    found, sent = there_and_back(rows, hvd.Compression.none)
    assert np.array_equal(found, rows) and sent.dtype == tf.float32


@pytest.mark.parametrize(
    'shape, dtype', [((5,), 'float32'), ((5, 1), 'float32'), ((5, 9), 'float16'), ((5, 9), 'int32')]
)
def test_rows_that_would_not_get_smaller_are_sent_as_they_are(shape, dtype):
    rows = np.random.RandomState(1).uniform(1, 9, shape).astype(dtype)
    found, sent = there_and_back(rows)
    assert np.array_equal(found, rows) and sent.dtype == dtype
