# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The trace of a job: written, read again, put together, with Horovod's timeline in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.errors import ProfileError
from keras_parallax.observing import trace as traces
from keras_parallax.observing.trace import Span, Trace

SPANS = [
    Span(0, 3, 'pull', 'gather', 10.0, 20.0, 'words'),
    Span(0, 3, 'pull', 'stitch', 15.0, 25.0, 'words'),
    Span(0, 3, 'allreduce', 'P.0.kernel', 30.0, 60.0),
    Span(1, 3, 'wait for pushes', 'dequeue', 5.0, 50.0, 'words', 0),
]
TRACE = Trace('job', 2, SPANS, {(0, 3): (0.0, 70.0), (1, 3): (1.0, 71.0)}, [0.0, 4.0])


def written(trace, further=()):
    return json.loads(json.dumps(traces.to_chrome(trace, further)))


def test_what_is_written_is_read_again():
    found = traces.from_chrome(written(TRACE), 'trace.json')
    assert sorted(found.spans) == sorted(SPANS)
    assert found._replace(spans=[]) == TRACE._replace(spans=[])


def test_each_rank_is_a_process_with_a_row_for_each_phase():
    events = written(TRACE)['traceEvents']
    names = {
        (event['pid'], event['tid']): event['args']['name']
        for event in events
        if event['name'] in ('process_name', 'thread_name') and event['ph'] == 'M'
    }
    of_rank_0 = sorted(name for (process, _), name in names.items() if process == 0)
    assert of_rank_0 == ['allreduce', 'pull', 'pull (2)', 'rank 0', 'step']
    assert 'wait for pushes' in names.values() and 'rank 1' in names.values()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_spans_of_a_row_do_not_overlap(times):
    spans = [Span(0, 0, 'pull', '', float(b), float(b + n)) for b, n in sorted(times)]
    rows = {}
    for row, span in zip(traces.lanes(spans), spans):
        assert rows.get(row, 0.0) <= span.begin
        rows[row] = span.end


def test_times_of_another_task_are_by_its_clock():
    nodes = [
        ['/job:worker/replica:0/task:%d/device:CPU:0' % task, 'gather', ['pull', 't', None], at, at]
        for task, at in ((0, 12000000), (1, 512000000))
    ]
    spans = traces.spans_of(nodes, 0, 7, [0.0, 500.0], 10.0)
    assert [span.begin for span in spans] == [2e6, 2e6]
    assert {(span.rank, span.step, span.phase, span.table) for span in spans} == {
        (0, 7, 'pull', 't')
    }


@pytest.mark.parametrize(
    'data', [[], {}, {'traceEvents': []}, {'keras_parallax': {}}, {'keras_parallax': 3}]
)
def test_what_is_no_trace_of_ours_is_refused(data):
    with pytest.raises(ProfileError, match='x.json is no trace of kp.callbacks.Profile'):
        traces.from_chrome(data, 'x.json')


def test_traces_of_different_jobs_are_refused_by_name():
    other = TRACE._replace(job='another')
    with pytest.raises(ProfileError, match='a.json and b.json are of different jobs'):
        traces.merged([TRACE, other], ['a.json', 'b.json'])


def test_traces_of_one_job_are_put_together_and_the_last_counts():
    later = [Span(0, 3, 'push', 'enqueue', 0.0, 1.0), Span(0, 4, 'push', 'enqueue', 80.0, 90.0)]
    other = TRACE._replace(spans=later, steps={(0, 3): (0.0, 2.0), (0, 4): (75.0, 95.0)})
    found = traces.merged([TRACE, other], ['a', 'b'])
    assert sorted(found.spans) == sorted([SPANS[3]] + later)
    assert found.steps == {**TRACE.steps, **other.steps}


#: As Horovod 0.28.1 writes it, two events on a line and the last one not yet whole.
TIMELINE = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":17}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "P.0.kernel"}},
{"ph": "B", "name": "ALLREDUCE", "ts": 900, "pid": 1},{"ph": "E", "ts": 920, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 1035, "pid": 1},{"ph": "E", "ts": 1060, "pid": 1},
{"ph": "B", "name": "ALL"""


def test_horovods_events_of_the_steps_are_in_time_with_them():
    events = traces.horovod_events(TIMELINE)
    found = [event for event in traces.folded_in(events, TRACE) if event['ph'] != 'M']
    # Its last allreduce ends when the operation does, at 60; the one before was in no step.
    assert [(event['ph'], event['ts']) for event in found] == [('B', 35), ('E', 60)]
    assert {event['pid'] for event in found}.isdisjoint([0, 1])
    assert traces.from_chrome(written(TRACE, found), 'x').spans


def test_a_timeline_of_other_names_is_left_out():
    assert traces.folded_in(traces.horovod_events(TIMELINE.replace('kernel', 'bias')), TRACE) == []
    assert traces.horovod_events('') == []
