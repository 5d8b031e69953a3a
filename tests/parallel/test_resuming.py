# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs go on from what jobs of another size, architecture or set of servers have saved."""

import contextlib
import functools
import os

import cases
import launch
import numpy as np
import pytest
import reference
import resumed
import servers
from any_keras import keras

TOLERANCE = 1e-5
NAMES = [(job, name) for job in resumed.RANKS_OF for name in resumed.JOBS[job]]


@pytest.fixture(scope='module')
def folder(request, tmpdir_factory):
    """Where the jobs have saved, each going on from those before it: what selected tests need."""
    made = tmpdir_factory.mktemp('resuming')
    selected = [item for item in request.session.items if item.module is request.module]
    names = resumed.with_sources([item.callspec.params['name'] for item in selected])
    for job in resumed.RANKS_OF:
        others = resumed.SHUFFLES.get(job, []) + resumed.WITHIN.get(job, [])
        if not names.intersection(list(resumed.JOBS[job]) + others):
            continue
        with contextlib.ExitStack() as stack:
            addresses = []
            if job == 'dedicated servers':
                started = [
                    stack.enter_context(servers.Server(servers.free_port(), made, '--keep'))
                    for _ in range(2)
                ]
                addresses = [server.address for server in started]
            outcome = launch.run(
                resumed.RANKS_OF[job],
                'parallel/resuming_worker.py',
                made,
                job,
                *addresses,
                environ={'ENTRIES': ';'.join(names)},
            )
        assert outcome.code == 0, outcome.output[-5000:]
    return str(made)


def results(folder, name):
    """What each worker has noted, a list of lists of arrays."""
    folder = os.path.join(folder, 'results', name)
    found = [np.load(os.path.join(folder, file)) for file in sorted(os.listdir(folder))]
    return [[one['arr_%d' % n] for n in range(len(one.files) - ('epoch' in one))] for one in found]


@functools.lru_cache(maxsize=None)
def plain_keras(case, steps):
    """The weights of one process at the start and after some steps."""
    start, _, weights = reference.run(cases.find(case), keras, resumed.RANKS, steps)
    return start, weights


def assert_close(found, expected):
    assert len(found) == len(expected) > 2
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * np.abs(other).max())


@pytest.mark.parametrize('job, name', NAMES)
def test_the_numbers_at_the_end_are_those_of_plain_keras_without_a_break(folder, job, name):
    entry = resumed.JOBS[job][name]
    if not entry.equals_plain_keras:
        pytest.skip('workers do not wait for each other')
    start, expected = plain_keras(entry.case, entry.steps)
    for found in results(folder, name + '/end'):
        assert_close(found[: len(expected)], expected)
    assert not np.array_equal(start[0], expected[0])


@pytest.mark.parametrize('job, name', [
    (job, name) for job, name in NAMES if resumed.JOBS[job][name].source
])  # fmt: skip
def test_every_weight_and_slot_is_the_one_that_was_saved(folder, job, name):
    saved, _ = resumed.JOBS[job][name].source
    expected = results(folder, saved + '/half')[0]
    for found in results(folder, name + '/half'):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('name', sum(resumed.SHUFFLES.values(), []))
def test_samples_come_in_the_order_of_a_run_without_a_break(folder, name):
    folder = os.path.join(folder, 'results', 'shuffled', name)
    for rank in range(2):
        unbroken, found = (
            np.load(os.path.join(folder, '%s-%d.npz' % (which, rank)))
            for which in ('unbroken', 'resumed')
        )
        assert len(unbroken.files) > 4
        for one in unbroken.files:
            np.testing.assert_array_equal(found[one], unbroken[one])


def within(folder, name, run, ranks):
    """What each worker has come to in a run that was broken off within an epoch, or not."""
    folder = os.path.join(folder, 'results', 'within', name)
    files = ['%s-%d-of-%d.npz' % (run, rank, ranks) for rank in range(ranks)]
    return [dict(np.load(os.path.join(folder, file))) for file in files]


@pytest.mark.parametrize('name', resumed.WITHIN['two workers'])
def test_a_run_broken_off_within_an_epoch_ends_as_an_unbroken_one_to_the_bit(folder, name):
    runs = [within(folder, name, run, 2) for run in ('resumed', 'unbroken')]
    for found, unbroken in zip(*runs):
        assert sorted(found) == sorted(unbroken)
        assert len(found['history_loss']) == 3 and len(found) > 10
        for one in unbroken:
            np.testing.assert_array_equal(found[one], unbroken[one])


@pytest.mark.parametrize('name', resumed.WITHIN['three workers'])
def test_one_more_worker_goes_on_within_an_epoch_as_an_unbroken_run(folder, name):
    unbroken = within(folder, name, 'unbroken', 2)[0]
    for found in within(folder, name, 'resumed', 3):
        assert sorted(found) == sorted(unbroken)
        for one in unbroken:
            largest = np.abs(unbroken[one]).max()
            np.testing.assert_allclose(found[one], unbroken[one], rtol=0, atol=TOLERANCE * largest)
