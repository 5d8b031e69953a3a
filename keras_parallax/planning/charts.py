# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where the parts of the page's pictures lie. Pure functions, in pixels from the upper left."""

import math
from typing import Callable, List, Mapping, NamedTuple, Sequence, Tuple

#: Lines of text closer than this overlap.
_LINE = 16


class Frame(NamedTuple):
    """A picture of curves: its size, and the places of the axes' ends."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


#: A picture as wide as the page, and one for a telephone, whose letters are as large.
WIDE = Frame(1120, 400, left=76, right=1020, top=30, bottom=350)
NARROW = Frame(340, 300, left=56, right=262, top=30, bottom=250)


class Tick(NamedTuple):
    """A mark of an axis: its place, and its value."""

    at: float
    value: float


class Line(NamedTuple):
    """A curve: its name, its points as pairs of places, and the height of its name beside it."""

    name: str
    points: List[Tuple[float, float]]
    label: float


class LineChart(NamedTuple):
    """Curves, and the marks of the axes."""

    lines: List[Line]
    across: List[Tick]
    up: List[Tick]


def line_chart(
    curves: Mapping[str, Sequence[Tuple[float, float]]], frame: Frame = WIDE
) -> LineChart:
    """Lays curves out over two logarithmic axes.

    Args:
        curves: a dict from names to lists of pairs of positive numbers; each list has the same
            first numbers, in order.
        frame: the picture.

    Returns:
        A `LineChart`.
    """
    columns = [x for x, _ in next(iter(curves.values()))]
    values = [y for points in curves.values() for _, y in points]
    ticks = log_ticks(min(values), max(values))
    across = _scale(columns[0], columns[-1], frame.left, frame.right)
    up = _scale(ticks[0], ticks[-1], frame.bottom, frame.top)
    lines = {name: [(across(x), up(y)) for x, y in points] for name, points in curves.items()}
    labels = apart([points[-1][1] for points in lines.values()])
    return LineChart(
        [Line(name, points, label) for (name, points), label in zip(lines.items(), labels)],
        [Tick(across(x), x) for x in columns],
        [Tick(up(y), y) for y in ticks],
    )


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """A function from values to places, by their logarithms."""
    span = math.log(high / low) or 1.0
    return lambda value: round(begin + (end - begin) * math.log(value / low) / span, 1)


def log_ticks(low: float, high: float) -> List[float]:
    """Values for the marks of a logarithmic axis, from at most `low` to at least `high`.

    They are powers of ten, or those times 1, 2 and 5 where there would be few.

    Example:
        ```python
        >>> log_ticks(0.003, 2.0)
        [0.001, 0.01, 0.1, 1.0, 10.0]
        >>> log_ticks(3.0, 30.0)
        [2.0, 5.0, 10.0, 20.0, 50.0]
        ```
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if last - first > 2 else (1, 2, 5)
    # One more on either side: the logarithm of what is next to a power of ten is rounded to it.
    values = [
        float('%de%d' % (factor, power))
        for power in range(first - 1, max(last, first + 1) + 2)
        for factor in factors
    ]
    begin = max(number for number, value in enumerate(values) if value <= low)
    end = min(number for number, value in enumerate(values) if value >= high)
    return values[begin : max(end, begin + 1) + 1]


def apart(places: Sequence[float]) -> List[float]:
    """Moves the places of lines of text down, as far as they would overlap.

    Example:
        ```python
        >>> apart([100.0, 40.0, 102.0])
        [100.0, 40.0, 116.0]
        ```
    """
    moved, lowest = list(places), -math.inf
    for number in sorted(range(len(places)), key=places.__getitem__):
        lowest = moved[number] = max(places[number], lowest + _LINE)
    return moved


class Segment(NamedTuple):
    """A piece of a bar: the number of its kind, its beginning, its width, and its value."""

    kind: int
    at: float
    width: float
    value: float


def stacked(bars: Sequence[Sequence[float]], width: float) -> List[List[Segment]]:
    """Lays bars of several pieces out, the longest of which takes the whole width.

    Args:
        bars: a list of lists of values, none of them negative, a value of each kind.
        width: the whole width.

    Returns:
        A list of lists of `Segment`s, without those of value 0.
    """
    longest = max([sum(bar) for bar in bars] + [0]) or 1.0
    laid = []
    for bar in bars:
        segments, at = [], 0.0
        for kind, value in enumerate(bar):
            if value:
                segments.append(Segment(kind, at, width * value / longest, value))
            at += width * value / longest
        laid.append(segments)
    return laid
