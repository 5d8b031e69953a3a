"""Rows in half precision: each with the power of two that brings it to the middle of its range.

The gradient of a mean over some thousand words is of the order of 1e-6, where half precision has
few digits or none: its smallest number with all 11 bits is 6e-5 (IEEE 754, binary16). One number
more in a row, its exponent, keeps them all.
"""

import numpy as np

from keras_parallax.compat import hvd, tf
from keras_parallax.costs import row_bytes

#: The largest exponent that is sent. Half precision holds whole numbers up to 2048.
_LARGEST = 120.0


def compress(rows, compression):
    """Makes rows smaller for their way.

    Args:
        rows: `[n] + row_shape`, with a row shape that is known where they are halved.
        compression: one of `hvd.Compression`, or another class with `compress` and `decompress`.

    Returns:
        A pair: the tensor to be sent, of length `n`, and a function that makes the rows what they
        were, `[n] + row_shape`, from what has arrived.
    """
    if compression is not hvd.Compression.fp16:
        small, context = compression.compress(rows)
        return small, lambda arrived: compression.decompress(arrived, context)
    dtype, shape = rows.dtype.base_dtype, rows.shape.as_list()[1:]
    width = int(np.prod(shape))
    if row_bytes(width, dtype.as_numpy_dtype, True) >= width * dtype.size:
        return rows, tf.identity
    flat = tf.reshape(rows, [-1, width])
    largest = tf.reduce_max(tf.abs(flat), 1, keepdims=True)
    two = tf.constant(2.0, dtype)
    # Rows of zeros have no exponent, and get the smallest.
    exponents = tf.clip_by_value(tf.floor(tf.log(largest) / tf.log(two)), -_LARGEST, _LARGEST)
    halved = tf.cast(flat * tf.pow(two, -exponents), tf.float16)

    def restore(arrived):
        arrived = tf.cast(tf.reshape(arrived, [-1, width + 1]), dtype)
        return tf.reshape(arrived[:, :width] * tf.pow(two, arrived[:, width:]), [-1] + shape)

    return tf.concat([halved, tf.cast(exponents, tf.float16)], 1), restore
