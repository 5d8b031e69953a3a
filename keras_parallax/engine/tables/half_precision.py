# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rows in half precision: each with the power of two that brings it to the middle of its range.

The gradient of a mean over some thousand words is of the order of 1e-6, where half precision has
few digits or none: its smallest number with all 11 bits is 6e-5 (IEEE 754, binary16). One number
more in a row, its exponent, keeps them all.
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Tensor
from keras_parallax.planning.costs import row_bytes

#: The largest exponent that is sent. Half precision holds whole numbers up to 2048.
_LARGEST = 120.0


def compress(
    rows: Tensor, compression: Any, widths: Optional[List[int]] = None
) -> Tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Makes rows `[n] + row_shape` smaller for their way.

    The shape of rows in half precision is known. Where a row holds a row of each of several tables,
    each table has some of its numbers, its width, and an exponent of its own. Returns the tensor to
    be sent, of length `n`, and a function that makes the rows what they were from what has arrived.
    """
    if compression is not hvd.Compression.fp16:
        small, context = compression.compress(rows)
        return small, lambda arrived: compression.decompress(arrived, context)
    dtype, shape = rows.dtype.base_dtype, rows.shape.as_list()[1:]
    width = int(np.prod(shape))
    widths = widths or [width]
    if sum(row_bytes(size, dtype.as_numpy_dtype, True) for size in widths) >= width * dtype.size:
        return rows, tf.identity
    of_tables = _columns(tf.reshape(rows, [-1, width]), widths)
    exponents = list(map(_exponents, of_tables))
    # A power is broadcast over its row: gathered for each number, it took half of all the time.
    sent_columns = [
        tf.cast(of_table * _power_of_two(-exponent), tf.float16)
        for of_table, exponent in zip(of_tables, exponents)
    ]
    sent_columns += [tf.cast(exponent, tf.float16) for exponent in exponents]

    def restore(arrived: Tensor) -> Tensor:
        arrived = tf.reshape(arrived, [-1, width + len(widths)])
        columns = [tf.cast(sent, dtype) for sent in _columns(arrived, widths + [1] * len(widths))]
        exponents = columns[len(widths) :]
        scaled = [values * _power_of_two(exponent) for values, exponent in zip(columns, exponents)]
        return tf.reshape(scaled[0] if len(scaled) == 1 else tf.concat(scaled, 1), [-1] + shape)

    return tf.concat(sent_columns, 1), restore


def _columns(rows: Tensor, widths: Sequence[int]) -> List[Tensor]:
    return [rows] if len(widths) == 1 else tf.split(rows, widths, 1)


def _exponents(rows: Tensor) -> Tensor:
    largest = tf.reduce_max(tf.abs(rows), 1, keepdims=True)
    exponents = tf.log(largest) / tf.log(tf.constant(2.0, rows.dtype))
    # Rows of zeros have none, and get the smallest.
    return tf.clip_by_value(tf.floor(exponents), -_LARGEST, _LARGEST)


def _power_of_two(exponents: Tensor) -> Tensor:
    return tf.pow(tf.constant(2.0, exponents.dtype), exponents)
