# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step's time goes to: the chain of work and waiting that ends it, and who waits for whom.

The chain is followed backwards from the moment at which the last worker is done. What ended last
before a moment, in a phase that counts, is what it waited for; at an allreduce that is on the
worker that came last, at the end of a wait for a push on the worker that pushed, at the end of a
barrier on the owner that updated last. The graph is not asked, so that two things of a phase that
ended at the same moment may be taken for each other.
"""

import bisect
import collections
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.observing.phases import (
    ALLREDUCE,
    BACKWARD,
    BARRIER,
    FORWARD,
    PHASES,
    PULL,
    PUSH,
    UPDATE,
    WAIT,
)
from keras_parallax.observing.trace import Span, Trace

#: Between operations, and before the first one: Python, Keras, the session.
OTHER = 'before and between operations'

#: What a worker does for itself.
_WORK = (PULL, FORWARD, BACKWARD)

#: In which phases lies what a phase needs on the same rank, where that is not any of them.
_NEEDED: Dict[str, Tuple[str, ...]] = {
    phase: _WORK for phase in (PULL, FORWARD, BACKWARD, ALLREDUCE)
}
_NEEDED[PUSH] = (*_WORK, PUSH)

#: Microseconds between two operations that follow each other.
_SCHEDULING = 100.0

#: A chain goes back by so many microseconds at least.
_LEAST = 1e-3


class Link(NamedTuple):
    """A part of the chain: in `phase`, on a worker, from `begin` to `end` in microseconds."""

    rank: int
    phase: str
    begin: float
    end: float
    table: Optional[str] = None


class Wait(NamedTuple):
    """How long a worker that was done waited for another: for what, in microseconds."""

    rank: int
    awaited: int
    phase: str
    table: Optional[str]
    length: float


class StepPath(NamedTuple):
    """What a step's time went to.

    Attributes:
        step: its number.
        begin, end: from the first worker's begin to the last worker's end, in microseconds.
        links: the chain, in order of time.
        waits: the `Wait`s, longest first.
    """

    step: int
    begin: float
    end: float
    links: List[Link]
    waits: List[Wait]


def paths_of(trace: Trace) -> List[StepPath]:
    """The `StepPath` of each step of a `trace.Trace`, in order."""
    numbers = sorted({step for _, step in trace.steps})
    by_step: Dict[int, List[Span]] = collections.defaultdict(list)
    for span in trace.spans:
        by_step[span.step].append(span)
    found = []
    for number in numbers:
        times = {rank: time for (rank, step), time in trace.steps.items() if step == number}
        begin, end = min(b for b, _ in times.values()), max(e for _, e in times.values())
        step = _Step(by_step[number], times)
        found.append(StepPath(number, begin, end, step.chain(begin), step.waits()))
    return found


class _Step:
    """The spans of a step, in ways in which they are looked for."""

    def __init__(self, spans: Iterable[Span], times: Dict[int, Tuple[float, float]]) -> None:
        self._times = times
        self._by_rank: Dict[int, List[Span]] = collections.defaultdict(list)
        self._by_phase: Dict[Tuple[int, str], List[Span]] = collections.defaultdict(list)
        self._reduced: Dict[str, List[Span]] = collections.defaultdict(list)
        for span in sorted(spans, key=lambda span: span.end):
            self._by_rank[span.rank].append(span)
            self._by_phase[span.rank, span.phase].append(span)
            if span.phase == ALLREDUCE:
                self._reduced[span.name].append(span)
        self._ends = {key: [span.end for span in own] for key, own in self._by_phase.items()}

    def chain(self, first: float) -> List[Link]:
        """The `Link`s from a moment to the end of the step, joined where they are alike."""
        rank = max(self._times, key=lambda rank: self._times[rank][1])
        now = self._times[rank][1]
        links: List[Link] = []
        phases: Sequence[str] = PHASES
        while now > first + _LEAST:
            span = self._last_before(rank, now, phases)
            if span is None or span.end <= first:
                links.append(Link(rank, OTHER, first, now))
                break
            if span.end < now - _SCHEDULING:
                links.append(Link(rank, OTHER, span.end, now))
                now = span.end
            # Else it goes on until then, but for a pause of the scheduler's.
            other, since, phases = self._before(span)
            since = max(first, min(since, now - _LEAST))
            links.append(Link(rank, span.phase, since, now, span.table))
            rank, now = other, since
        return joined(links[::-1])

    def _last_before(self, rank: int, moment: float, phases: Sequence[str]) -> Optional[Span]:
        """What ended last on a worker until a moment, in some phases; `None` if nothing did."""
        ended: List[Span] = []
        for key in [(rank, phase) for phase in phases]:
            place = bisect.bisect_right(self._ends.get(key, []), moment + _LEAST / 2)
            ended += self._by_phase[key][place - 1 : place]
        return max(ended, key=lambda span: span.end, default=None)

    def _before(self, span: Span) -> Tuple[int, float, Sequence[str]]:
        """What was before the end of a span: on which worker, until when, in which phases."""
        cause = self._cause(span)
        if cause is not None:
            begun = span.phase == ALLREDUCE
            moment = cause.begin if begun else cause.end
            if span.begin < moment < span.end:
                return cause.rank, moment, _NEEDED[ALLREDUCE] if begun else [cause.phase]
        return span.rank, span.begin, _NEEDED.get(span.phase, PHASES)

    def _cause(self, span: Span) -> Optional[Span]:
        """The span of another worker that a span waited for, or `None`."""
        if span.phase == ALLREDUCE:
            last = max(self._reduced[span.name], key=lambda one: one.begin)
            return None if last.rank == span.rank else last
        if span.phase == WAIT and span.awaited is not None:
            return self._latest(self._by_phase[span.awaited, PUSH], span, span.table)
        if span.phase == BARRIER:
            done = [self._latest(self._by_phase[rank, UPDATE], span) for rank in self._times]
            return max(filter(None, done), key=lambda one: one.end, default=None)
        return None

    def _latest(
        self, spans: Sequence[Span], before: Span, table: Optional[str] = None
    ) -> Optional[Span]:
        """What ended last before the end of a span, of a table if one is given."""
        ended = (
            one
            for one in reversed(spans)
            if one.end < before.end and _may_be_about(one.table, table)
        )
        return next(ended, None)

    def waits(self) -> List[Wait]:
        """How long workers waited for others, longest first; of what is alike the longest.

        A worker that still computes does not wait, whatever it has begun.
        """
        longest: Dict[Tuple[int, int, str, Optional[str]], float] = {}
        for rank, own in self._by_rank.items():
            busy = max((span.end for span in own if span.phase in _WORK), default=0.0)
            for span in own:
                cause = self._cause(span)
                if cause is None or cause.rank == rank:
                    continue
                until = cause.begin if span.phase == ALLREDUCE else cause.end
                table = span.table if span.phase == WAIT else None
                key = rank, cause.rank, span.phase, table
                longest[key] = max(
                    longest.get(key, 0.0), min(until, span.end) - max(span.begin, busy)
                )
        waits = [Wait(*key, length) for key, length in longest.items() if length > 0]
        return sorted(waits, key=lambda wait: -wait.length)


def _may_be_about(tables: Optional[str], others: Optional[str]) -> bool:
    """Whether names of tables, with commas between, have one in common, or are not known."""
    if tables is None or others is None:
        return True
    return not set(tables.split(', ')).isdisjoint(others.split(', '))


def joined(links: Iterable[Link]) -> List[Link]:
    """Links in order of time, those that follow each other and are alike made one.

    Example:
        ```python
        >>> parts = [Link(0, 'pull', 0, 1, 't'), Link(0, 'pull', 1, 3, 't')]
        >>> joined(parts)
        [Link(rank=0, phase='pull', begin=0, end=3, table='t')]
        ```
    """
    found: List[Link] = []
    for link in links:
        if found and link._replace(begin=0, end=0) == found[-1]._replace(begin=0, end=0):
            found[-1] = found[-1]._replace(end=link.end)
        else:
            found.append(link)
    return found


def shares(paths: Sequence[StepPath]) -> Dict[Tuple[int, str, Optional[str]], float]:
    """What the chains of some steps are made of: `(rank, phase, table)` to microseconds a step.

    A dict, largest first.
    """
    total: Any = collections.Counter()  # A `Counter` of floats.
    for path in paths:
        for link in path.links:
            total[link.rank, link.phase, link.table] += (link.end - link.begin) / len(paths)
    return collections.OrderedDict(total.most_common())


def in_words(trace: Trace, paths: Sequence[StepPath], most: int = 5) -> List[str]:
    """What a trace shows, in some sentences."""
    lengths = [path.end - path.begin for path in paths]
    mean = sum(lengths) / len(paths)
    ranks = sorted({rank for rank, _ in trace.steps})
    lines = [
        'A step took %s in the mean, from the first worker that began to the last that was done '
        '(steps %d to %d; %s of %d).'
        % (_length(mean), paths[0].step, paths[-1].step, _ranks(ranks), trace.size)
    ]
    parts = list(shares(paths).items())[:most]
    lines.append(
        'Its longest chain of work and waiting: %s.'
        % ', '.join(
            '%s (%.0f %%) %s' % (_length(length), 100 * length / mean, _link(*key))
            for key, length in parts
        )
    )
    if len(ranks) > 1:
        lines.append(_of_waits(paths))
    error = max(trace.errors, default=0.0)
    if error > 0:
        lines.append('Clocks of workers may be apart by up to %s.' % _length(error))
    return lines


def _of_waits(paths: Sequence[StepPath]) -> str:
    """Who waited longest for whom, over all steps."""
    total: Any = collections.Counter()  # A `Counter` of floats.
    for path in paths:
        for wait in path.waits:
            total[wait._replace(length=0)] += wait.length / len(paths)
    if not total:
        return 'No worker waited for another.'
    wait, length = total.most_common(1)[0]
    return 'What was waited for longest: %s waited %s a step for %s.' % (
        'rank %d' % wait.rank,
        _length(length),
        wait_in_words(wait),
    )


def wait_in_words(wait: Wait) -> str:
    """What a `Wait` was for.

    Example:
        ```python
        >>> wait_in_words(Wait(0, 1, 'wait for pushes', 'words/embeddings', 5e3))
        "rank 1's push of words/embeddings"
        ```
    """
    if wait.phase == WAIT:
        return "rank %d's push of %s" % (wait.awaited, wait.table or 'a variable')
    if wait.phase == BARRIER:
        return 'rank %d to update its shards' % wait.awaited
    return 'rank %d to come to the allreduce' % wait.awaited


def _link(rank: int, phase: str, table: Optional[str]) -> str:
    return '%s on rank %d%s' % (phase, rank, ' of %s' % table if table else '')


def _ranks(ranks: Sequence[int]) -> str:
    return 'rank %d' % ranks[0] if len(ranks) == 1 else '%d workers' % len(ranks)


def _length(microseconds: float) -> str:
    return '%.1f ms' % (microseconds / 1e3)
