# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Numbers are rounded to one of their 16-bit neighbours, as often as they are near to it."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates import stochastic_rounding

SMALLEST = 2.0**-24  # Of float16, a subnormal number.


def rounded(values, noise):
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float64, [None])
        return session.run(stochastic_rounding.rounded(*given), dict(zip(given, (values, noise))))


def noise_of(rows, width, steps, name='table'):
    """The noise of rows in some steps, `[steps, rows, width]`."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        numbers = tf.constant(rows, tf.int64)
        noise = stochastic_rounding.noise_of(numbers, [width], step, name)
        return np.stack([session.run(noise, {step: number}) for number in steps])


def neighbours(values):
    """The largest float16 that is not above each float32, and the smallest that is not below."""
    near = values.astype(np.float16)
    wide = near.astype(np.float64)
    with np.errstate(over='ignore'):
        lower = np.where(wide <= values, near, np.nextafter(near, np.float16(-np.inf)))
        upper = np.where(wide >= values, near, np.nextafter(near, np.float16(np.inf)))
    return lower.astype(np.float64), upper.astype(np.float64)


def numbers():
    """Numbers of all sizes that float16 has, of both signs."""
    random = np.random.RandomState(1)
    values = 2.0 ** random.uniform(-26, 15.9, 3000) * random.choice([-1, 1], 3000)
    edges = [0.0, 2.0**-14, 2.0**-14 - 2.0**-30, 1.9999999, 2047.9999, 65503.9, SMALLEST / 3]
    return np.concatenate([values, edges, np.negative(edges)]).astype(np.float32)


def test_a_number_is_rounded_to_one_of_its_two_neighbours():
    values = numbers()
    for noise in (2.0**-25, 0.5 - 2.0**-25, 1 - 2.0**-25):
        found = rounded(values, np.full(len(values), noise)).astype(np.float64)
        lower, upper = neighbours(values)
        assert ((found == lower) | (found == upper)).all()


def test_the_chance_of_the_upper_neighbour_is_how_near_it_is():
    values = numbers()
    lower, upper = neighbours(values)
    with np.errstate(invalid='ignore'):
        share = np.where(lower == upper, 0, (values - lower) / (upper - lower))
    # The last noise that rounds up, and the first that does not; both are multiples of 2 ** -25.
    steps = np.round(share * 2.0**24)
    up = rounded(values, (np.maximum(steps, 1) - 0.5) * 2.0**-24).astype(np.float64)
    down = rounded(values, (np.minimum(steps, 2**24 - 1) + 0.5) * 2.0**-24).astype(np.float64)
    normal = np.abs(values) >= 2.0**-14
    np.testing.assert_array_equal(up[normal & (steps > 0)], upper[normal & (steps > 0)])
    np.testing.assert_array_equal(down[normal], lower[normal])
    # Of smaller ones there is no multiple that is exact.
    near = np.abs(share - 0.5) < 0.5 - 2.0**-22
    small = ~normal & near
    assert small.sum() > 100
    up = rounded(values, share - 2.0**-22).astype(np.float64)
    down = rounded(values, share + 2.0**-22).astype(np.float64)
    np.testing.assert_array_equal(up[small], upper[small])
    np.testing.assert_array_equal(down[small], lower[small])


def test_what_16_bits_can_hold_stays():
    held = np.arange(2**16, dtype=np.uint16).view(np.float16)
    held = held[~np.isnan(held)]
    for noise in (2.0**-25, 1 - 2.0**-25):
        found = rounded(held.astype(np.float32), np.full(len(held), noise))
        np.testing.assert_array_equal(found, held)


def test_what_is_not_finite_or_too_large_is_seen():
    found = rounded(np.array([np.nan, np.inf, -np.inf, 7e4, -1e30], np.float32), np.full(5, 0.5))
    np.testing.assert_array_equal(found, np.array([np.nan, np.inf, -np.inf, np.inf, -np.inf]))


def test_noise_is_evenly_spread_and_another_in_each_row_column_step_and_table():
    noise = noise_of(np.arange(40), 16, range(20))
    assert len(np.unique(noise)) > 0.99 * noise.size
    np.testing.assert_allclose(np.histogram(noise, 16, (0, 1))[0], noise.size / 16.0, rtol=0.15)
    for one, other in ((noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.03
    columns = noise[:, :, 1:].ravel(), noise[:, :, :-1].ravel()
    assert abs(np.corrcoef(*columns)[0, 1]) < 0.03
    # What differs by as much in the row as in the step.
    assert abs(np.corrcoef(noise[0, 1::2].ravel(), noise[1, ::2].ravel())[0, 1]) < 0.1
    other = noise_of(np.arange(40), 16, range(20), 'another')
    assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.03


def test_noise_of_a_row_does_not_depend_on_what_else_is_rounded():
    noise = noise_of(np.arange(40), 3, [5])[0]
    np.testing.assert_array_equal(noise_of([7, 30], 3, [5])[0], noise[[7, 30]])


@pytest.mark.parametrize('start', [0.3, -0.3, 0.0, 3e-6])
def test_steps_that_are_smaller_than_half_of_the_last_bit_are_not_lost_in_the_mean(start):
    rows, width, steps = 50, 20, 200
    last_bit = float(np.spacing(np.float16(max(abs(start), SMALLEST))))
    decrease = np.float32(last_bit / 50)
    with tf.Graph().as_default(), tf.Session() as session:
        held = tf.placeholder(tf.float16, [rows, width])
        step = tf.placeholder(tf.int64, [])
        noise = stochastic_rounding.noise_of(tf.range(tf.to_int64(rows)), [width], step, 'table')
        moved = stochastic_rounding.rounded(tf.cast(held, tf.float32) - decrease, noise)
        begin = values = np.full((rows, width), start, np.float16)
        for number in range(steps):
            values = session.run(moved, {held: values, step: number})
    went = (begin.astype(np.float64) - values).mean()
    # A sum of `steps` draws with a chance of 1 / 50 each has a variance of about 4.
    bound = 5 * last_bit * np.sqrt(steps / 50.0 / (rows * width))
    assert abs(went - steps * decrease) < bound < 0.1 * steps * decrease
