# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How workers tell by a few numbers whether their weights are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.callbacks import sketches
from keras_parallax.errors import ReplicaMismatchError


def check(values):
    of_ranks = [[sketches.sketch(value)] for value in values]
    sketches.check_sketches(of_ranks, ['kernel'], 'now')


@given(st.integers(0, 2**32 - 1), st.sampled_from([(1,), (3, 4), (300, 500)]))
def test_replicas_may_differ_by_rounding_and_by_no_more(seed, shape):
    random = np.random.RandomState(seed)
    value = random.normal(size=shape).astype(np.float32)
    check([value, value * (1 + 1e-7 * random.normal(size=shape).astype(np.float32))])
    with pytest.raises(ReplicaMismatchError, match='kernel now: ranks 0 and 1 differ'):
        check([value, value * np.float32(1.01)] if value.size == 1 else [value, value + 0.1])


def test_two_entries_that_changed_places_are_a_difference():
    value = np.random.RandomState(3).normal(size=(50, 40))
    with pytest.raises(ReplicaMismatchError, match='ranks 0 and 2'):
        check([value, value, value[::-1]])


def test_replicas_that_are_no_numbers_are_left_to_others_to_complain_of():
    check([np.full(3, np.nan), np.full(3, np.nan)])


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 400))
def test_blocks_of_rows_have_the_sketch_of_the_whole(rows, width, block):
    value = np.random.RandomState(rows).normal(size=(rows, width)).astype(np.float32)
    blocks = sketches.Sketch()
    for first in range(0, rows, block):
        blocks[first : first + block] = value[first : first + block]
    np.testing.assert_allclose(blocks.numbers, sketches.sketch(value), rtol=1e-9)


def found(*values, **named):
    of_ranks = [[sketches.sketch(value), sketches.sketch(np.ones(3))] for value in values]
    return sketches.differences(of_ranks, ['kernel', 'bias'], **named)


def test_a_difference_names_the_weight_the_farthest_rank_and_the_distance():
    value = np.array([3.0, 4.0])
    (one,) = found(value, value + [0.0, 0.05], value + [0.0, 0.5], value)
    assert (one.name, one.rank) == ('kernel', 2) and one.distance == pytest.approx(0.1)
    text = sketches.warning_of([one])
    assert 'kernel (rank 2, by about 10 %)' in text and 'weights of rank 0' in text


def test_without_rounding_the_smallest_difference_counts():
    value = np.float32([1.0, 2.0])
    assert not found(value, np.nextafter(value, 9, dtype=np.float32))
    assert len(found(value, np.nextafter(value, 9, dtype=np.float32), rounding=0.0)) == 1
    assert not found(value, value, rounding=0.0)


def test_a_number_and_no_number_are_a_difference():
    value, nan = np.ones(3), np.full(3, np.nan)
    assert [one.rank for one in found(value, nan)] == [1] == [one.rank for one in found(nan, value)]
    assert [one.distance for one in found(np.zeros(3), value)] == [np.inf]
    assert not found(nan, nan) and not found(np.zeros(3), np.zeros(3))


def test_a_warning_names_the_eight_farthest_weights_and_counts_the_others():
    many = [sketches.Difference('w%d' % number, 1, number / 10) for number in range(11)]
    text = sketches.warning_of(many)
    assert 'w10 ' in text and 'w3 ' in text and 'w2 ' not in text and 'and 3 more' in text
