# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Numbers that follow from an id alone, the same in every process and after every resume.

The mixing of 64 bits is SplitMix64's (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
Generators, OOPSLA 2014). TensorFlow 1.11 multiplies integers of 64 bits with a sign alone; they
overflow as those without one do.
"""

import math

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Tensor

_STEP = 0x9E3779B97F4A7C15


#: Pairs of a shift and what is multiplied with after it; the last is a shift alone.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None))


#: Which sequence of numbers tells the home of an id; the seeds of initial values tell others.
_OF_HOMES = 0x5368617264730A01


def homes_of(ids: Tensor, rows: int) -> Tensor:
    """A row of a table for each id `[n]` int64, of so many rows: `[n]` int64, evenly spread.

    An id belongs to the shard that has this row, though its own row may be another.
    """
    return tf.floormod(mixed_with(ids, tf.constant(_signed(_OF_HOMES), tf.int64)), rows)


def mixed_with(ids: Tensor, seed: Tensor) -> Tensor:
    """Random bits for each id `[n]` int64: `[n]` int64. The seed is a scalar int64."""
    return _mixed(tf.bitwise.bitwise_xor(ids, seed))


def chances(ids: Tensor, seed: Tensor) -> Tensor:
    """The same, as numbers from 0 to less than 1, multiples of 2 ** -24: `[n]` float64."""
    return _top_bits(_mixed(mixed_with(ids, seed)), 24) * 2.0**-24


def uniform(ids: Tensor, width: int, seed: int) -> Tensor:
    """Numbers evenly spread over (0, 1).

    Args:
        ids: `[n]` int64.
        width: how many numbers an id has.
        seed: an integer.

    Returns:
        `[n, width]` float64, multiples of 2 ** -25.
    """
    return (_top_bits(_of_columns(ids, width, seed), 24) + 0.5) * 2.0**-24


def normal(ids: Tensor, width: int, seed: int) -> Tensor:
    """Numbers of the standard normal distribution, by the formula of Box and Muller.

    Args:
        ids: `[n]` int64.
        width: how many numbers an id has.
        seed: an integer.

    Returns:
        `[n, width]` float64.
    """
    bits = _of_columns(ids, width, seed)
    radius = (_top_bits(bits, 32) + 0.5) * 2.0**-32
    turn = _top_bits(tf.bitwise.left_shift(bits, tf.constant(32, tf.int64)), 32) * 2.0**-32
    return tf.sqrt(-2.0 * tf.log(radius)) * tf.cos(2.0 * math.pi * turn)


def _of_columns(ids: Tensor, width: int, seed: int) -> Tensor:
    """Random bits, `[n, width]` int64: SplitMix64's sequence that begins where the id says."""
    begin = _mixed(tf.bitwise.bitwise_xor(ids, _mixed(tf.constant(_signed(seed), tf.int64))))
    steps = [_signed((column + 1) * _STEP) for column in range(width)]
    return _mixed(begin[:, None] + tf.constant(steps, tf.int64)[None, :])


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in _ROUNDS:
        bits = tf.bitwise.bitwise_xor(bits, _shifted(bits, shift))
        bits = bits if factor is None else bits * tf.constant(_signed(factor), tf.int64)
    return bits


def _shifted(bits: Tensor, shift: int) -> Tensor:
    """Bits moved to the right, with zeros in their place, whatever the sign."""
    moved = tf.bitwise.right_shift(bits, tf.constant(shift, tf.int64))
    return tf.bitwise.bitwise_and(moved, tf.constant(2 ** (64 - shift) - 1, tf.int64))


def _top_bits(bits: Tensor, count: int) -> Tensor:
    return tf.cast(_shifted(bits, 64 - count), tf.float64)


def _signed(bits: int) -> int:
    """The number with a sign whose 64 bits are those of one without."""
    bits %= 2**64
    return bits - 2**64 if bits >= 2**63 else bits
