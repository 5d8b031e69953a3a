"""Rows in half precision: each with the power of two that brings it to the middle of its range.

The gradient of a mean over some thousand words is of the order of 1e-6, where half precision has
few digits or none: its smallest number with all 11 bits is 6e-5 (IEEE 754, binary16). A byte a row
keeps them all.
"""

from keras_parallax.compat import hvd, tf

#: The largest exponent that is sent.
_LARGEST = 120.0


def compress(rows, compression):
    """Makes rows smaller for their way.

    Args:
        rows: `[n] + row_shape`.
        compression: one of `hvd.Compression`, or another class with `compress` and `decompress`.

    Returns:
        A pair: a list of tensors to be sent, each of length `n`, and what `decompress` needs to
        know besides.
    """
    if compression is not hvd.Compression.fp16 or not rows.dtype.is_floating:
        small, context = compression.compress(rows)
        return [small], context
    axes = list(range(1, rows.shape.ndims))
    largest = tf.reduce_max(tf.abs(rows), axes, keepdims=True) if axes else tf.abs(rows)
    # Rows of zeros have no exponent, and get the smallest.
    two = tf.constant(2.0, rows.dtype)
    exponents = tf.clip_by_value(tf.floor(tf.log(largest) / tf.log(two)), -_LARGEST, _LARGEST)
    halves, context = compression.compress(rows * tf.pow(two, -exponents))
    return [halves, tf.cast(tf.reshape(exponents, [-1]), tf.int8)], context


def decompress(tensors, compression, context):
    """Makes rows what they were, of `[n] + row_shape`, from what `compress` returned."""
    rows = compression.decompress(tensors[0], context)
    if len(tensors) == 1:
        return rows
    exponents = tf.reshape(tf.cast(tensors[1], rows.dtype), [-1] + [1] * (rows.shape.ndims - 1))
    return rows * tf.pow(tf.constant(2.0, rows.dtype), exponents)
