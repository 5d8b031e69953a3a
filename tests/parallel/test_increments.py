# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs save what has changed: no worker misses a row, and a kill in a save loses nothing."""

import os
import re

import increments
import launch
import numpy as np
import pytest

import keras_parallax as kp
from keras_parallax.checkpoint import manifest


class Jobs:
    """A folder with what a job has saved until a worker was killed, and maybe one that went on."""

    def __init__(self, folder):
        self.folder = folder
        self.saving = launch.run(2, 'parallel/increments_worker.py', folder, 'save')
        self.left = manifest.read_manifest(self.path('broken'))
        self.left_names = os.listdir(self.path('broken'))

    def path(self, name):
        return os.path.join(self.folder, name)

    def arrays(self, name, rank=0):
        found = np.load(self.path('%s-%d.npz' % (name, rank)))
        return [found['arr_%d' % number] for number in range(len(found.files))]


@pytest.fixture(scope='module')
def jobs(tmpdir_factory):
    return Jobs(str(tmpdir_factory.mktemp('increments')))


@pytest.fixture(scope='module')
def resuming(jobs):
    return launch.run(2, 'parallel/increments_worker.py', jobs.folder, 'resume')


def assert_equal(found, expected):
    assert len(found) == len(expected) > 4
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


def saves(outcome, name):
    """What a job has saved: for each save what was done, the number of deltas, and of rows."""
    told = re.findall(r'(\w+) (\w+) SAME True DELTAS (\d+) ROWS (\w+);', outcome.output)
    return [(act, int(deltas), rows) for of, act, deltas, rows in told if of == name]


def test_what_a_job_saves_is_what_a_full_save_has(jobs):
    assert saves(jobs.saving, 'compared') == [
        ('trained', 1, str(increments.touched(1))),
        ('written', 2, '3'),
    ], jobs.saving.output[-3000:]  # fmt: skip


def test_a_kill_between_a_base_and_its_delta_loses_nothing(jobs):
    assert jobs.saving.code, jobs.saving.output[-3000:]
    # Rank 1 was killed while it wrote: what is left of the delta is no part of the checkpoint.
    assert not jobs.left.deltas
    assert set(jobs.left_names) > {part.name for part in jobs.left.parts}
    # One process goes on from the parts of two workers.
    strategy, model = increments.build()
    assert strategy.resume(model, kp.latest_checkpoint(jobs.path('broken'))) == 0
    assert_equal(increments.state(model), jobs.arrays('base'))


def test_a_killed_job_ends_as_one_without_a_kill(jobs, resuming):
    assert resuming.code == 0, resuming.output[-3000:]
    for rank in range(2):
        assert_equal(jobs.arrays('resumed', rank), jobs.arrays('unbroken', rank))
    last = manifest.read_manifest(jobs.path('broken'))
    assert len(last.deltas) == 2 and last.saves[0] != jobs.left.save_id
    names = {part.name for part in last.parts} | {manifest.MANIFEST}
    assert set(os.listdir(jobs.path('broken'))) == names


def test_tables_that_move_begin_with_a_base(resuming):
    # The last save of `fit` came after the last batch.
    expected = [('trained', 4, '0'), ('moved', 0, 'None'), ('written', 1, '4')]
    assert saves(resuming, 'unbroken') == expected, resuming.output[-3000:]


def test_rows_that_any_worker_updates_are_saved(resuming):
    rows = ['None'] + [str(increments.touched(number)) for number in (1, 2)]
    assert saves(resuming, 'async') == [('trained', n, rows[n]) for n in range(3)]
