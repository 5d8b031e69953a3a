# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step waited for, in steps made by hand. Times are in microseconds."""

import pytest

from keras_parallax.observing import critical_path
from keras_parallax.observing.critical_path import OTHER
from keras_parallax.observing.trace import Span, Trace

MS = 1000.0


def span(rank, phase, begin, end, name='x', table=None, awaited=None):
    return Span(rank, 5, phase, name, begin * MS, end * MS, table, awaited)


def path_of(spans, ends):
    trace = Trace('job', len(ends), spans, {(r, 5): (0.0, e * MS) for r, e in enumerate(ends)}, [])
    (path,) = critical_path.paths_of(trace)
    return trace, path


def links(path):
    return [(one.rank, one.phase, one.begin / MS, one.end / MS) for one in path.links]


def test_the_chain_goes_over_to_the_rank_that_came_last_to_an_allreduce():
    spans = [
        span(0, 'forward', 0, 10),
        span(0, 'allreduce', 10, 52, 'kernel'),
        span(1, 'forward', 0, 50),
        span(1, 'allreduce', 50, 51, 'kernel'),
        span(0, "owner's update", 52, 60),
    ]
    _, path = path_of(spans, [60, 51])
    assert links(path) == [
        (1, 'forward', 0, 50),
        (0, 'allreduce', 50, 52),
        (0, "owner's update", 52, 60),
    ]
    (wait,) = path.waits
    assert (wait.rank, wait.awaited, wait.length) == (0, 1, 40 * MS)


def test_the_chain_goes_over_to_the_rank_whose_push_was_waited_for():
    spans = [
        span(0, 'backward', 0, 5),
        span(0, 'wait for pushes', 0, 32, table='words', awaited=1),
        span(0, "owner's update", 32, 40, table='words'),
        span(1, 'backward', 0, 20),
        span(1, 'push', 20, 30, table='words, items'),
        # Of another table, and later.
        span(1, 'push', 20, 31, table='others'),
    ]
    trace, path = path_of(spans, [40, 31])
    assert links(path) == [
        (1, 'backward', 0, 20),
        (1, 'push', 20, 30),
        (0, 'wait for pushes', 30, 32),
        (0, "owner's update", 32, 40),
    ]
    words = critical_path.in_words(trace, [path])
    assert words[0].startswith('A step took 40.0 ms in the mean')
    assert '20.0 ms (50 %) backward on rank 1' in words[1]
    assert words[2].endswith("rank 0 waited 25.0 ms a step for rank 1's push of words.")


def test_the_chain_goes_over_to_the_owner_that_updated_last():
    spans = [
        span(0, 'backward', 0, 10),
        span(0, 'barrier', 10, 31),
        span(1, "owner's update", 0, 30),
    ]
    _, path = path_of(spans, [31, 30])
    assert links(path) == [(1, "owner's update", 0, 30), (0, 'barrier', 30, 31)]


def test_a_rank_that_still_computes_did_not_wait_for_a_push_that_came_meanwhile():
    spans = [
        span(0, 'forward', 0, 20),
        # It ends between two operations that do not need it.
        span(0, 'wait for pushes', 0, 20.01, table='words', awaited=1),
        span(0, 'backward', 20.02, 60),
        span(0, "owner's update", 60, 62, table='words'),
        span(1, 'push', 15, 19.9, table='words'),
    ]
    _, path = path_of(spans, [62, 20])
    assert {rank for rank, *_ in links(path)} == {0} and path.waits == []


def test_what_is_between_operations_is_told_but_not_a_schedulers_pause():
    spans = [span(0, 'pull', 5, 10), span(0, 'forward', 10.05, 20), span(0, 'backward', 30, 40)]
    _, path = path_of(spans, [40])
    assert [(phase, begin) for _, phase, begin, _ in links(path)] == [
        (OTHER, 0),
        ('pull', 5),
        ('forward', pytest.approx(10.05)),
        (OTHER, 20),
        ('backward', 30),
    ]
    total = sum(critical_path.shares([path]).values())
    assert total == pytest.approx(40 * MS)


def test_ranks_whose_clocks_disagree_end_the_search_all_the_same():
    spans = [
        span(0, 'allreduce', 0, 10, 'a'),
        span(1, 'allreduce', 12, 14, 'a'),
        span(0, 'barrier', 0, 20),
        span(1, "owner's update", 15, 25),
    ]
    _, path = path_of(spans, [20, 25])
    assert path.links[0].begin == 0 and path.links[-1].end == 25 * MS
    for one, following in zip(path.links, path.links[1:]):
        assert one.end == following.begin


def test_of_one_rank_nobody_waits_and_nothing_is_said_of_it():
    trace, path = path_of([span(0, 'forward', 0, 9)], [9])
    assert path.waits == [] and len(critical_path.in_words(trace, [path])) == 2
