# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Clocks that are compared in collectives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.observing import clock_offsets

SECONDS = st.floats(0, 1)


@given(
    ahead=st.floats(-1000, 1000), ways=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1)
)
def test_a_clock_is_ahead_by_what_is_told_up_to_the_error_that_is_told(ahead, ways):
    rounds, now = [], 0.0
    for early, late, after in ways:
        # Nobody leaves before both have come.
        leaves = now + max(early, late) + after
        rounds.append([(now + early, leaves), (now + late + ahead, leaves + ahead + early)])
        now = leaves + 1
    first, second = clock_offsets.offsets(rounds)
    assert first == (0.0, 0.0)
    assert abs(second.seconds - ahead) <= second.error + 1e-6
    assert (
        second.error
        <= min(early + late + after for early, late, after in ways)
        + max(max(way) for way in ways)
        + 1e-6
    )


def test_clocks_that_may_be_right_are_taken_to_be():
    assert clock_offsets.offsets([[(0.0, 0.5), (0.1, 0.6)]])[1].seconds == 0


def test_every_collective_narrows_it_down():
    wide, narrow = [(0.0, 1.0), (10.0, 11.0)], [(5.0, 5.1), (15.0, 15.1)]
    offset = clock_offsets.offsets([wide, narrow])[1]
    assert offset.seconds == pytest.approx(10.0) and offset.error == pytest.approx(0.1)
