# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The trace of a job: spans of all workers, and how they are written for Chrome and Perfetto.

The format is Chrome's (Trace Event Format, "JSON Object Format"): a process for each worker, and in
it a row for each phase; operations of a phase that overlap get rows of their own below it.
"""

import json
import re
import statistics
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.errors import ProfileError
from keras_parallax.observing.phases import PHASES

#: Of our own part of a file.
_OURS = 'keras_parallax'
_STEP = 'step'
_ROWS_OF_PHASE = 100
#: The number of the process of Horovod's timeline; workers have their own.
_HOROVOD = 1000000


class Span(NamedTuple):
    """Something that a worker did in a step.

    Attributes:
        rank, step: which worker, in which step of its `fit`.
        phase: one of `phases.PHASES`.
        name: the operation.
        begin, end: in microseconds by the clock of rank 0, since the beginning of the trace.
        table: the table that it is about, or `None`.
        awaited: the worker whose push it waits for, or `None`.
    """

    rank: int
    step: int
    phase: str
    name: str
    begin: float
    end: float
    table: Optional[str] = None
    awaited: Optional[int] = None


class Trace(NamedTuple):
    """Steps of a job.

    Attributes:
        job: what tells it from other jobs.
        size: number of its workers.
        spans: the `Span`s.
        steps: dict from pairs of rank and step to begin and end of the whole step.
        errors: for each worker by how many microseconds its times may be wrong, at most.
    """

    job: str
    size: int
    spans: List[Span]
    steps: Dict[Tuple[int, int], Tuple[float, float]]
    errors: List[float]


_TASK = re.compile(r'/job:worker/(?:replica:\d+/)?task:(\d+)')


def spans_of(
    nodes: Iterable[Any],
    rank: int,
    step: int,
    offsets: Sequence[float],
    origin: float,
) -> List[Span]:
    """The `Span`s of a worker's step.

    Args:
        nodes: what TensorFlow has noted: for each operation its device, name, `phases.Role`, begin
            and end in microseconds. What ran in another task has the clock of that one's host.
        rank: the worker whose they are.
        step: in which step they were.
        offsets: seconds that each worker's clock is ahead.
        origin: the beginning of the trace, in seconds by the clock of rank 0.
    """
    spans = []
    for device, name, (phase, *about), begin, end in nodes:
        task = _TASK.match(device)
        clock = int(task.group(1)) if task and int(task.group(1)) < len(offsets) else rank
        shift = 1e6 * (offsets[clock] + origin)
        spans.append(Span(rank, step, phase, name, begin - shift, end - shift, *about))
    return spans


def to_chrome(trace: Trace, further: Iterable[Dict[str, Any]] = ()) -> Dict[str, Any]:
    """A `Trace` as a dict that is written as JSON, with further events of Chrome's format."""
    events: List[Dict[str, Any]] = []
    for rank in sorted({rank for rank, _ in trace.steps} | {span.rank for span in trace.spans}):
        own = [span for span in trace.spans if span.rank == rank]
        events += _named('process', rank, 0, 'rank %d' % rank, rank)
        events += _named('thread', rank, 1, _STEP, 0)
        for (of_rank, step), (begin, end) in sorted(trace.steps.items()):
            if of_rank == rank:
                event = _event(rank, 1, 'step %d' % step, begin, end)
                events.append(dict(event, cat=_STEP, args={'step': step}))
        for number, phase in enumerate(PHASES, 1):
            of_phase = sorted(
                (span for span in own if span.phase == phase), key=lambda span: span.begin
            )
            rows: List[int] = []
            for row, span in zip(lanes(of_phase), of_phase):
                thread = number * _ROWS_OF_PHASE + row
                if row == len(rows):
                    rows.append(row)
                    events += _named('thread', rank, thread, _name_of_row(phase, row), thread)
                event = _event(rank, thread, span.table or span.name, span.begin, span.end)
                events.append(dict(event, cat=phase, args=_args(span)))
    ours = {'job': trace.job, 'size': trace.size, 'errors_us': list(trace.errors)}
    return {'traceEvents': events + list(further), 'displayTimeUnit': 'ms', _OURS: ours}


def _args(span: Span) -> Dict[str, Any]:
    args = {'step': span.step, 'operation': span.name}
    if span.table is not None:
        args['table'] = span.table
    if span.awaited is not None:
        args['waits for rank'] = span.awaited
    return args


def _name_of_row(phase: str, row: int) -> str:
    return phase if row == 0 else '%s (%d)' % (phase, row + 1)


def _event(process: int, thread: int, name: str, begin: float, end: float) -> Dict[str, Any]:
    times = {'ts': round(begin, 3), 'dur': round(max(0.0, end - begin), 3)}
    return dict({'ph': 'X', 'pid': process, 'tid': thread, 'name': name}, **times)


def _named(kind: str, process: int, thread: int, name: str, order: int) -> List[Dict[str, Any]]:
    common = {'ph': 'M', 'pid': process, 'tid': thread}
    return [
        dict(common, name=kind + '_name', args={'name': name}),
        dict(common, name=kind + '_sort_index', args={'sort_index': order}),
    ]


def lanes(spans: Iterable[Span]) -> List[int]:
    """The number of the row of each span, so that spans of one row do not overlap.

    They are in the order in which they begin.

    Example:
        ```python
        >>> times = [(0, 5), (1, 2), (3, 4), (6, 7)]
        >>> lanes([Span(0, 0, 'pull', '', begin, end) for begin, end in times])
        [0, 1, 1, 0]
        ```
    """
    rows: List[int] = []
    ends: List[float] = []
    for span in spans:
        row = next((row for row, end in enumerate(ends) if end <= span.begin), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = span.end
        rows.append(row)
    return rows


def from_chrome(data: Any, path: str) -> Trace:
    """The `Trace` that a file holds, given what it says as JSON; `ProfileError` if it is none."""
    ours = data.get(_OURS) if isinstance(data, dict) else None
    if not isinstance(ours, dict) or not {'job', 'size'} <= set(ours):
        raise ProfileError(
            '%s is no trace of kp.callbacks.Profile: it does not say which job it is of.' % path
        )
    spans, steps = [], {}
    for event in data.get('traceEvents', ()):
        args = event.get('args') or {}
        if event.get('ph') != 'X' or 'step' not in args:
            continue
        rank, step, begin = event['pid'], args['step'], event['ts']
        end = begin + event['dur']
        if event['cat'] == _STEP:
            steps[rank, step] = begin, end
        else:
            names = event['cat'], args['operation']
            waits = args.get('table'), args.get('waits for rank')
            spans.append(Span(rank, step, *names, begin, end, *waits))
    if not steps:
        raise ProfileError('%s has no steps.' % path)
    errors = ours.get('errors_us') or [0.0] * ours['size']
    return Trace(ours['job'], ours['size'], spans, steps, errors)


def merged(traces: Sequence[Trace], paths: Sequence[str]) -> Trace:
    """One `Trace` of several of one job, which `paths` name; `ProfileError` if they are of others.

    Where two have the same step of a worker, the last one counts.
    """
    first = traces[0]
    for trace, path in zip(traces, paths):
        if trace.job != first.job:
            raise ProfileError(
                '%s and %s are of different jobs (%s and %s), whose steps have nothing to do with '
                'each other: draw them one by one.' % (paths[0], path, first.job, trace.job)
            )
    spans: Dict[Tuple[int, int], List[Span]] = {}
    steps: Dict[Tuple[int, int], Tuple[float, float]] = {}
    for trace in traces:
        steps.update(trace.steps)
        for key in trace.steps:
            spans[key] = []
        for span in trace.spans:
            spans.setdefault((span.rank, span.step), []).append(span)
    everything = [span for of_step in spans.values() for span in of_step]
    return Trace(first.job, first.size, everything, steps, first.errors)


def horovod_events(text: str) -> List[Dict[str, Any]]:
    """The events of Horovod's timeline, which is a list that nobody has closed yet.

    Example:
        ```python
        >>> horovod_events('[{"ph": "E", "ts": 1, "pid": 2},{"ph": "E", "ts"')
        [{'ph': 'E', 'ts': 1, 'pid': 2}]
        ```
    """
    decoder, events, place = json.JSONDecoder(), [], text.find('{')
    while place >= 0:
        try:
            event, place = decoder.raw_decode(text, place)
        except ValueError:
            break  # The rest is being written.
        events.append(event)
        place = text.find('{', place)
    return events


def folded_in(events: Sequence[Dict[str, Any]], trace: Trace) -> List[Dict[str, Any]]:
    """Horovod's events of the steps of a `Trace`, in time with its spans; none if nothing matches.

    Its clock begins when Horovod does, or long before. Both name an allreduce alike, and the last
    one of a name that is in both ends there at one moment.

    Args:
        events: as `horovod_events` returns them.
        trace: the `Trace`.
    """
    names: Dict[Any, str] = {}
    ends: Dict[str, List[float]] = {}
    traced: Dict[str, List[float]] = {}
    for event in events:
        # Horovod 0.28.1 has a process without a name.
        if event.get('name') == 'process_name' and 'name' in event['args']:
            names[event['pid']] = event['args']['name']
        elif 'ts' in event and event.get('pid') in names:
            ends.setdefault(names[event['pid']], []).append(event['ts'])
    shifts = []
    for span in trace.spans:
        moments = ends.get(span.name)
        if span.rank == 0 and span.phase == 'allreduce' and moments:
            traced.setdefault(span.name, []).append(span.end)
    for name, of_trace in traced.items():
        shifts.append(max(of_trace) - max(ends[name]))
    if not shifts:
        return []
    shift = statistics.median(shifts)
    first = min(begin for begin, _ in trace.steps.values())
    last = max(end for _, end in trace.steps.values())
    kept, used = [], set()
    for event in events:
        if 'ts' in event and event.get('pid') in names and first <= event['ts'] + shift <= last:
            used.add(event['pid'])
            moved = dict(event, pid=_HOROVOD, tid=event['pid'] * 10 + event.get('tid', 0))
            kept.append(dict(moved, ts=event['ts'] + shift))
    rows = [row for pid in used for row in _named('thread', _HOROVOD, pid * 10, names[pid], pid)]
    return _named('process', _HOROVOD, 0, 'Horovod, as rank 0 saw it', _HOROVOD) + rows + kept
