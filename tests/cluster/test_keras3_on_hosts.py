# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 on two hosts: plain Keras's numbers; a host that is cut off. Needs root."""

import json
import os
import re
import sys

import frameworks
import launch
import pytest
from cluster.emulated_cluster import EmulatedCluster

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')

#: Against hangs; no verdict depends on how long a job takes.
LIMIT_SECONDS = 600
CASES = ('adam', 'same_ids', 'masked_weights', 'adamw')
#: What differs by rounding alone.
BOUND = 2e-5


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(2) as made:
        yield made


def start(cluster, workers, script, *arguments):
    """Starts a script of Keras 3 with some workers on each of two hosts."""
    command = [sys.executable, os.path.join(launch.HERE, 'parallel', script), *arguments]
    environ = {'TF_CPP_MIN_LOG_LEVEL': '2'}
    return cluster.start(command, slots_per_host=workers, environ=environ)


@pytest.mark.parametrize(
    'backend, workers',
    [
        pytest.param('tensorflow', 1, marks=pytest.mark.exhaustive),
        pytest.param('tensorflow', 2, marks=pytest.mark.exhaustive),
        pytest.param('jax', 1, marks=pytest.mark.exhaustive),
        pytest.param('jax', 2, marks=pytest.mark.exhaustive),
    ],
)
def test_workers_on_two_hosts_equal_plain_keras_3(cluster, backend, workers, tmp_path):
    if backend == 'jax':
        pytest.importorskip('jax')
    job = start(cluster, workers, 'keras3_worker.py', backend, str(tmp_path), *CASES)
    try:
        outcome = job.wait(LIMIT_SECONDS)
    finally:
        cluster.end_processes()
    assert outcome.code == 0, outcome.output[-5000:]
    for rank in range(2 * workers):
        found = json.loads((tmp_path / ('%d.json' % rank)).read_text())
        for case in CASES:
            assert 'refused' not in found[case], found[case]
            history = found[case]['history'].values()
            assert max(found[case]['weights'], found[case]['predictions'], *history) < BOUND


@pytest.mark.parametrize(
    'backend, model',
    [
        ('tensorflow', 'tables'),
        pytest.param('tensorflow', 'dense', marks=pytest.mark.exhaustive),
        pytest.param('jax', 'tables', marks=pytest.mark.exhaustive),
        pytest.param('jax', 'dense', marks=pytest.mark.exhaustive),
    ],
)
def test_a_host_that_is_cut_off_is_named(cluster, backend, model):
    if backend == 'jax':
        pytest.importorskip('jax')
    job = start(cluster, 1, 'keras3_failure_worker.py', backend, 'never_ends', model)
    launch.wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    cluster.set_link(1, up=False)
    try:
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        said = r'Rank 1 on host h1 does not answer \(its host is down, or the network to it\)'
        assert re.search(said, outcome.output), outcome.output
    finally:
        cluster.set_link(1, up=True)
        cluster.end_processes()
