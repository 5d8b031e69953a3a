# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where the parts of the page's pictures lie."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keras_parallax.planning import charts

VALUES = st.floats(1e-7, 1e7)


def test_a_curve_rises_where_its_values_do_and_ends_at_the_edge():
    (line,) = charts.line_chart({'one': [(2, 0.1), (4, 1.0), (8, 10.0)]}).lines
    across, up = zip(*line.points)
    assert across[0] == charts.WIDE.left and across[-1] == charts.WIDE.right
    # Powers of two are as far from each other, and so are powers of ten.
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])
    assert up[0] - up[1] == pytest.approx(up[1] - up[2]) and up[0] > up[2]


@pytest.mark.parametrize('frame', [charts.WIDE, charts.NARROW])
@given(
    values=st.dictionaries(
        st.text(max_size=3), st.lists(VALUES, min_size=3, max_size=3), min_size=1
    )
)
def test_every_point_lies_within_the_axes(frame, values):
    curves = {name: list(zip((2, 4, 8), ys)) for name, ys in values.items()}
    for line in charts.line_chart(curves, frame).lines:
        assert all(frame.left <= x <= frame.right for x, _ in line.points)
        assert all(frame.top - 0.1 <= y <= frame.bottom + 0.1 for _, y in line.points)


@given(VALUES, VALUES)
@example(9999999.999999998, 10000000.0)
@example(1.0, 1000.0000000000001)
def test_ticks_are_in_order_and_enclose_the_values(one, other):
    low, high = sorted([one, other])
    ticks = charts.log_ticks(low, high)
    assert ticks == sorted(set(ticks)) and 2 <= len(ticks) <= 16
    assert ticks[0] <= low and high <= ticks[-1]


@given(st.lists(st.floats(0, 300), max_size=6))
def test_lines_of_text_never_overlap_and_keep_their_order(places):
    moved = charts.apart(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    ordered = [moved[number] for number in order]
    assert all(after - before >= 15.9 for before, after in zip(ordered, ordered[1:]))
    assert all(now >= before for before, now in zip(places, moved))


def test_bars_are_as_long_as_their_values_one_piece_after_the_other():
    first, second = charts.stacked([[1.0, 0.0, 3.0], [2.0, 0.0, 0.0]], 100)
    assert [tuple(segment) for segment in first] == [(0, 0.0, 25.0, 1.0), (2, 25.0, 75.0, 3.0)]
    assert [tuple(segment) for segment in second] == [(0, 0.0, 50.0, 2.0)]
    assert charts.stacked([[0.0], []], 100) == [[], []]
