# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Workers that share a host: the same numbers, and each row is sent once. Needs root."""

import os
import re
import sys
import time

import cases
import dynamic
import launch
import numpy as np
import pytest
import reference
from cluster.emulated_cluster import EmulatedCluster
from frameworks import KERAS_PACKAGES

HERE = os.path.dirname(os.path.abspath(__file__))
#: The cases on which two hosts with two workers each are compared, with `tf.keras`.
EQUAL = [
    'adam',
    'clipnorm',
    'looked_up_twice',
    'ps_tied',
    'search_ps',
    'waiting',
    'accumulated_adam',
    'dense_ps_tf_momentum',
]
#: What is there after this long is left over.
SETTLE_SECONDS = 60
ROWS, WIDTH, IDS, STEPS = 20000, 128, 8192, 10

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(2) as made:
        yield made


def run(cluster, workers, script, *arguments, **environ):
    """Runs a script with some workers on each of two hosts, and looks for what is left over."""
    command = [sys.executable, os.path.join(HERE, script)] + list(arguments)
    environ['TF_CPP_MIN_LOG_LEVEL'] = '2'
    outcome = cluster.start(command, slots_per_host=workers, environ=environ).wait(300)
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(map(cluster.processes, range(cluster.hosts))) and time.monotonic() < deadline:
        time.sleep(0.1)  # sshd's processes for the launcher's connections outlive it a little.
    left_over = list(map(cluster.processes, range(cluster.hosts)))
    cluster.end_processes()
    assert left_over == [[], []], outcome.output
    return outcome


def test_two_workers_on_each_of_two_hosts_equal_plain_keras(cluster, tmp_path):
    package, folder = KERAS_PACKAGES[-1], str(tmp_path)
    outcome = run(
        cluster,
        2,
        '../parallel/equality_worker.py',
        package,
        folder,
        *EQUAL,
        KERAS_PARALLAX_CACHE=folder,
    )
    assert outcome.code == 0, outcome.output[-5000:]
    for name in EQUAL:
        found = np.load(os.path.join(folder, name + '.npz'))
        reference.check(found, cases.find(name), cases.keras_module(package), 4)


def test_raw_ids_of_two_workers_on_each_of_two_hosts_train_as_plain_keras(cluster, tmp_path):
    script, folder = '../parallel/dynamic_worker.py', str(tmp_path)
    outcome = run(cluster, 2, script, KERAS_PACKAGES[0], folder, 'fp16')
    assert outcome.code == 0, outcome.output[-5000:]
    paths = [os.path.join(folder, 'fp16.%d.npz' % rank) for rank in range(4)]
    dynamic.assert_as_plain(list(map(np.load, paths)), tolerance=2e-3)


def test_steps_that_a_session_runs_go_through_the_hosts_leader_too(cluster, tmp_path):
    # Keras 2.2.4 runs those of a model with a sparse input so.
    names = ['sparse_input', 'session_run']
    script, folders = '../parallel/sessions_worker.py', [str(tmp_path / 'plain'), str(tmp_path)]
    package = KERAS_PACKAGES[0]
    os.makedirs(folders[0])
    outcome = launch.run(0, 'parallel/sessions_worker.py', folders[0], package, 'plain', *names)
    assert outcome.code == 0, outcome.output[-5000:]
    outcome = run(cluster, 2, script, folders[1], package, 'strategy', *names)
    assert outcome.code == 0, outcome.output[-5000:]
    for name in names:
        plain = np.load(os.path.join(folders[0], name + '.0.npz'))
        for rank in range(4):
            results = np.load(os.path.join(folders[1], '%s.%d.npz' % (name, rank)))
            assert results['counted'] == results['ran']
            for weight in (key for key in plain.files if key.startswith('weight')):
                np.testing.assert_allclose(results[weight], plain[weight], rtol=0, atol=1e-5)
        assert any(
            np.load(os.path.join(folders[1], '%s.%d.npz' % (name, rank)))['connections'] > 0
            for rank in range(4)
        )


@pytest.fixture(scope='module')
def sent(cluster):
    """Bytes that each host sends in a step: for workers a host, and local aggregation or not."""
    found = {}
    for workers, together in ((1, 1), (2, 1), (2, 0)):
        outcome = run(cluster, workers, 'bytes_worker.py', ROWS, WIDTH, IDS, STEPS, together)
        assert outcome.code == 0, outcome.output[-5000:]
        found[workers, together] = list(map(int, re.findall(r'BYTES (\d+);', outcome.output)))
        assert len(found[workers, together]) == 2
        # What `StepMetrics` logs is counted on leaders, too. A host's count may begin or end with
        # another's step half done.
        logged = sum(map(int, re.findall(r'MEASURED (\d+);', outcome.output)))
        assert 0.9 * logged <= sum(found[workers, together]) <= 1.1 * logged
    return found


def test_two_workers_on_a_host_send_what_one_sends_for_the_same_rows(sent):
    for of_two, of_one in zip(sent[2, 1], sent[1, 1]):
        assert 0.9 * of_one <= of_two <= 1.1 * of_one


def test_each_row_of_a_host_is_sent_once_each_way(sent):
    # Half of the rows are on the other host: each sends as many pulled as it pushes.
    floor = 2 * (IDS // 2) * (WIDTH * 4 + 4)
    for of_host in sent[2, 1]:
        assert 0.95 * floor <= of_host <= 1.1 * floor


def test_without_local_aggregation_each_worker_sends_its_own_rows(sent):
    # Half of the rows are in both batches, the others in one: 2 * 1/2 + 1/2 times as many.
    for alone, together in zip(sent[2, 0], sent[2, 1]):
        assert 1.35 * together <= alone <= 1.65 * together


def test_a_leader_and_a_worker_predict_while_the_others_of_their_hosts_train(cluster):
    outcome = run(cluster, 2, 'host_worker.py', 'predicts', 0, 3)
    assert outcome.code == 0, outcome.output[-5000:]
    assert re.findall(r'PREDICTED ALONE: rank (\d);', outcome.output) == ['0', '3']


@pytest.mark.parametrize('rank', [1, 2], ids=['worker', 'leader'])
def test_a_bad_id_ends_the_job_with_the_reason(cluster, rank):
    outcome = run(cluster, 2, 'host_worker.py', 'bad_id', rank)
    assert outcome.code not in (0, None), outcome.output[-5000:]
    said = 'Rank %d: layer words looked up id 57' % rank
    # By the rank itself, whose error has said it all: no other repeats it.
    assert 'IdOutOfRangeError: ' + said in outcome.output
    assert outcome.output.count(said) == 1, outcome.output[-5000:]


def test_a_leader_that_has_fewer_batches_ends_the_job_with_the_reason(cluster):
    outcome = run(cluster, 2, 'host_worker.py', 'ends_early', 2)
    assert outcome.code not in (0, None), outcome.output[-5000:]
    assert 'Rank 2 ended after 3 training batches while rank' in outcome.output
