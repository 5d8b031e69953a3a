# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A trace as a page to look at, in one piece. Pure functions; the template stands beside them."""

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from keras_parallax.errors import ProfileError
from keras_parallax.html_templates import template_beside
from keras_parallax.observing import critical_path
from keras_parallax.observing.phases import PHASES
from keras_parallax.observing.trace import Trace

#: Of a picture: its width, in units that the page stretches over the room there is, and the height
#: of a row, in pixels.
WIDTH, ROW = 1000, 16

#: So many marks of the axis.
_MARKS = 5

#: More steps than these are left out of the page.
_MOST_STEPS = 20

#: Rows of the table of what steps are made of.
_MOST_SHARES = 12

COLOURS = {
    'pull': '#2f6fd0',
    'forward': '#12876f',
    'backward': '#45a58c',
    'allreduce': '#8a4fbf',
    'push': '#d9730d',
    'wait for pushes': '#b9bec7',
    "owner's update": '#b8336a',
    'barrier': '#8b95a3',
    critical_path.OTHER: '#6b7a1e',
}


class Bar(NamedTuple):
    """When something was under way: from `begin` to `end`, of `phase`."""

    phase: str
    begin: float
    end: float


class Row(NamedTuple):
    """A row of a picture: a worker's phase, `bars` in microseconds since the step began."""

    rank: int
    name: str
    bars: List[Bar]


def rows_of(trace: Trace, path: critical_path.StepPath) -> List[Row]:
    """The `Row`s of a step: for each worker those of the phases that it has, and of the chain.

    Bars that are closer than could be seen are one.

    Args:
        trace: the `trace.Trace`.
        path: the `critical_path.StepPath`.
    """
    least = (path.end - path.begin) / WIDTH
    rows = []
    for rank in sorted({rank for rank, step in trace.steps if step == path.step}):
        own = [span for span in trace.spans if (span.rank, span.step) == (rank, path.step)]
        for phase in PHASES:
            times = [(span.begin, span.end) for span in own if span.phase == phase]
            bars = [
                Bar(phase, begin - path.begin, end - path.begin)
                for begin, end in together(times, least)
            ]
            if bars:
                rows.append(Row(rank, phase, bars))
        chain = [
            Bar(link.phase, link.begin - path.begin, link.end - path.begin)
            for link in path.links
            if link.rank == rank and link.end - link.begin > least / 4
        ]
        rows.append(Row(rank, 'longest chain', chain))
    return rows


def together(times: Iterable[Tuple[float, float]], least: float) -> List[Tuple[float, float]]:
    """Pairs of begin and end, in order, those that overlap or are closer than `least` made one.

    Example:
        ```python
        >>> together([(5, 6), (0, 2), (1, 3), (3.5, 4)], 1)
        [(0, 4), (5, 6)]
        ```
    """
    found: List[Tuple[float, float]] = []
    for begin, end in sorted(times):
        if found and begin < found[-1][1] + least:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def to_html(trace: Trace) -> str:
    """The page of a `trace.Trace`; `ProfileError` if what makes pages is missing."""
    return template_beside(__file__, ProfileError).render(content_of(trace))


def content_of(trace: Trace) -> Dict[str, Any]:
    """What the template shows: a dict."""
    paths = critical_path.paths_of(trace)
    mean = sum(path.end - path.begin for path in paths) / len(paths)
    return {
        'job': trace.job,
        'words': critical_path.in_words(trace, paths),
        'colours': COLOURS,
        'shares': [
            {
                'rank': rank,
                'phase': phase,
                'table': table or '',
                'milliseconds': length / 1e3,
                'percent': 100 * length / mean,
            }
            for (rank, phase, table), length in list(critical_path.shares(paths).items())[
                :_MOST_SHARES
            ]
        ],
        'steps': [_picture(trace, path) for path in paths[:_MOST_STEPS]],
        'left_out': max(0, len(paths) - _MOST_STEPS),
        'width': WIDTH,
        'row_height': ROW,
    }


def _picture(trace: Trace, path: critical_path.StepPath) -> Dict[str, Any]:
    length = path.end - path.begin
    ranks: Dict[int, List[Dict[str, Any]]] = {}
    for row in rows_of(trace, path):
        bars = [
            {
                'x': bar.begin * WIDTH / length,
                'width': max(1.0, (bar.end - bar.begin) * WIDTH / length),
                'colour': COLOURS[bar.phase],
                'title': '%s: %.2f ms from %.2f ms'
                % (bar.phase, (bar.end - bar.begin) / 1e3, bar.begin / 1e3),
            }
            for bar in row.bars
        ]
        ranks.setdefault(row.rank, []).append({'name': row.name, 'bars': bars})
    return {
        'step': path.step,
        'milliseconds': length / 1e3,
        'ranks': ranks,
        'marks': [length / 1e3 * mark / (_MARKS - 1) for mark in range(_MARKS)],
        'waits': [
            'rank %d waited %.1f ms for %s'
            % (wait.rank, wait.length / 1e3, critical_path.wait_in_words(wait))
            for wait in path.waits[:4]
        ],
    }
