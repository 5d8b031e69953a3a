# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs on two hosts save in parts, and other numbers of workers go on from there. Needs root."""

import os
import sys

import cases
import launch
import numpy as np
import pytest
import reference
import resumed
from any_keras import keras
from cluster.emulated_cluster import EmulatedCluster

WORKER = os.path.join(launch.HERE, 'parallel', 'resuming_worker.py')

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def folder(tmpdir_factory):
    """Where both jobs have saved; the hosts, namespaces of one machine, share it."""
    made = str(tmpdir_factory.mktemp('hosts'))
    with EmulatedCluster(2) as cluster:
        for workers, job in resumed.ON_TWO_HOSTS.items():
            environ = {'TF_CPP_MIN_LOG_LEVEL': '2'}
            outcome = cluster.run([sys.executable, WORKER, made, job], workers, environ)
            assert outcome.code == 0, outcome.output[-5000:]
    return made


@pytest.mark.parametrize('job, name', [
    (job, name) for job in resumed.ON_TWO_HOSTS.values() for name in resumed.JOBS[job]
])  # fmt: skip
def test_every_rank_ends_with_the_numbers_of_plain_keras(folder, job, name):
    entry = resumed.JOBS[job][name]
    _, _, expected = reference.run(cases.find(entry.case), keras, resumed.RANKS, entry.steps)
    folder = os.path.join(folder, 'results', name, 'end')
    assert len(os.listdir(folder)) == (4 if entry.source is None else 2)
    for rank in os.listdir(folder):
        found = np.load(os.path.join(folder, rank))
        for number, other in enumerate(expected):
            np.testing.assert_allclose(
                found['arr_%d' % number], other, rtol=0, atol=1e-5 * np.abs(other).max()
            )


def test_each_rank_has_written_a_part_also_one_that_owns_no_shard(folder):
    found = [name for name in os.listdir(os.path.join(folder, 'on hosts.parts')) if 'rank' in name]
    assert sorted(name.split('-', 1)[1] for name in found) == [
        'rank-%05d-of-00004.h5' % rank for rank in range(4)
    ]
