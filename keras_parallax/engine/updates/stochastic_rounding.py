# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Rounding to 16 bits that is right in the mean, by noise that is the same in every job.

A row of float16 has 11 bits. A step that is smaller than half of the last one would be lost if the
sum were rounded to the nearest, in every step anew. Rounded up as often as it is near to the upper
neighbour, and down otherwise, the row has the mean of an exact one.

The noise follows from the table, the row, the column and the number of the step: it does not depend
on how many workers or shards there are, and a job that goes on from a checkpoint has the same.
"""

import zlib
from typing import List

import numpy as np

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import id_hashes
from keras_parallax.framework_types import Tensor

#: Of the exponent in the 32 bits of a float32 (IEEE 754, binary32).
_EXPONENT_BITS = 0x7F800000


#: The smallest number that float16 has with all 11 bits, and the power of two of its largest, which
#: is 65504 (IEEE 754, binary16). Below the first its numbers are evenly spaced.
_SMALLEST, _LARGEST = 2.0**-14, 2.0**15


def rounded(values: Tensor, noise: Tensor) -> Tensor:
    """Rounds numbers to one of their neighbours.

    Args:
        values: float32, of any shape.
        noise: float64 of the same shape, evenly spread over (0, 1), in multiples of 2 ** -25.

    Returns:
        float16. What it can hold stays as it is. The chance of the upper neighbour is exact from
        2 ** -14 on, and nearer than 2 ** -24 below. More than 65504 may be infinite.
    """
    bits = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), tf.constant(_EXPONENT_BITS))
    power = tf.clip_by_value(tf.bitcast(bits, tf.float32), _SMALLEST, _LARGEST)
    # Neighbours are 2 ** -10 of the power of two apart. All of this is exact in float32.
    step = power * 2.0**-10
    scaled = values / step
    below = tf.floor(scaled)
    up = noise < tf.cast(scaled - below, tf.float64)
    return tf.cast((below + tf.cast(up, tf.float32)) * step, tf.float16)


def noise_of(rows: Tensor, row_shape: List[int], step: Tensor, name: str) -> Tensor:
    """The noise of rows of a table in a step.

    Args:
        rows: their numbers in the whole table, `[n]` int64.
        row_shape: the shape of a row, a list.
        step: the number of the step, a scalar int64.
        name: the table's name.

    Returns:
        float64 `[n] + row_shape`, as `rounded` takes it.
    """
    of_table = tf.constant(zlib.crc32(name.encode('utf-8')), tf.int64)
    # Mixed before it meets the row: row 1 of step 0 is not to have the noise of row 0 of step 1.
    of_step = id_hashes.mixed_with(tf.reshape(step, [1]), of_table)[0]
    width = int(np.prod(row_shape, dtype=np.int64))
    noise = id_hashes.uniform(id_hashes.mixed_with(rows, of_step), width, 0)
    return tf.reshape(noise, [-1] + row_shape)
