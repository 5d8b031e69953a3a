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


def compress(rows, compression, widths=None):
    """Makes rows smaller for their way.

    Args:
        rows: `[n] + row_shape`, with a row shape that is known where they are halved.
        compression: one of `hvd.Compression`, or another class with `compress` and `decompress`.
        widths: how many numbers of a row belong to each of the tables that are joined in it, each
            with an exponent of its own; by default they are all of one.

    Returns:
        A pair: the tensor to be sent, of length `n`, and a function that makes the rows what they
        were, `[n] + row_shape`, from what has arrived.
    """
    if compression is not hvd.Compression.fp16:
        small, context = compression.compress(rows)
        return small, lambda arrived: compression.decompress(arrived, context)
    dtype, shape = rows.dtype.base_dtype, rows.shape.as_list()[1:]
    width = int(np.prod(shape))
    widths = widths or [width]
    if sum(row_bytes(one, dtype.as_numpy_dtype, True) for one in widths) >= width * dtype.size:
        return rows, tf.identity
    parts = tf.split(tf.reshape(rows, [-1, width]), widths, 1)
    largest = tf.concat([tf.reduce_max(tf.abs(part), 1, keepdims=True) for part in parts], 1)
    two = tf.constant(2.0, dtype)
    # Rows of zeros have no exponent, and get the smallest.
    exponents = tf.clip_by_value(tf.floor(tf.log(largest) / tf.log(two)), -_LARGEST, _LARGEST)
    whose = np.repeat(np.arange(len(widths), dtype=np.int32), widths)

    def scaled(numbers, powers):
        return numbers * tf.gather(tf.pow(two, powers), whose, axis=1)

    halved = tf.cast(scaled(tf.concat(parts, 1), -exponents), tf.float16)

    def restore(arrived):
        arrived = tf.cast(tf.reshape(arrived, [-1, width + len(widths)]), dtype)
        return tf.reshape(scaled(arrived[:, :width], arrived[:, width:]), [-1] + shape)

    return tf.concat([halved, tf.cast(exponents, tf.float16)], 1), restore
