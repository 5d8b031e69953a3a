# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Shards on servers of hosts and on machines of their own, between real hosts. Needs root."""

import os
import re
import sys

import cases
import numpy as np
import pytest
import reference
from cluster.emulated_cluster import EmulatedCluster
from frameworks import KERAS_PACKAGES
from refused import reason
from servers import COMMAND

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, 'parallel')
PORT = 12345
QUIET = {'TF_CPP_MIN_LOG_LEVEL': '2'}
PACKAGE = KERAS_PACKAGES[0]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    """Two hosts for workers, two for servers."""
    with EmulatedCluster(4) as made:
        yield made


def asked_for(*names):
    """Those of some cases for which this stack can be asked, a list."""
    return [name for name in names if reason(name) is None]


def train(cluster, folder, names, slots, servers):
    """Trains cases on hosts 0 and 1; gives the `Outcome`."""
    job = cluster.start(
        [sys.executable, os.path.join(WORKER, 'equality_worker.py'), PACKAGE, folder] + names,
        slots_per_host=slots,
        environ=dict(QUIET, STRATEGY='{"servers": %s}' % servers, KERAS_PARALLAX_CACHE=str(folder)),
        hosts=[0, 1],
    )
    return job.wait()


def check_equality(folder, name, ranks):
    """Compares with plain Keras; gives the devices of the shards."""
    case, found = cases.find(name), np.load(str(folder / (name + '.npz')))
    start, losses, weights = reference.run(case, cases.keras_module(PACKAGE), ranks)
    np.testing.assert_allclose(found['losses'], losses, rtol=case.tolerance)
    for number, (begin, expected) in enumerate(zip(start, weights)):
        scale = max(np.abs(begin).max(), np.abs(expected).max())
        np.testing.assert_allclose(
            found['arr_%d' % number], expected, rtol=0, atol=case.tolerance * scale
        )
    assert not np.array_equal(start[0], weights[0])
    return list(found['devices'])


def test_dedicated_servers_hold_all_shards_equal_plain_keras_and_end_with_the_job(
    cluster, tmp_path
):
    names = ['shared_adam', 'ps_tied']
    # Plans that change on the way: a table that becomes dense, and shards that grow in number.
    changing = ['auto_400_adam', 'search_adam']
    # The second is for stacks whose Keras refuses the constraint that the first has.
    fp16 = asked_for('fp16_both_columns', 'fp16_both_sgd')[:1]
    servers = [cluster.spawn(host, COMMAND + ['--port', PORT], dict(QUIET)) for host in (2, 3)]
    addresses = ['%s:%d' % (cluster.address(host), PORT) for host in (2, 3)]
    before = cluster.counters()
    # Two workers a host: they pull and push together.
    everything = names + changing + fp16
    outcome = train(cluster, tmp_path, everything, 2, str(addresses).replace("'", '"'))
    assert outcome.code == 0, outcome.output[-5000:]
    for server in servers:
        ended = server.wait(120)
        assert ended.code == 0 and ended.output.splitlines()[-1].endswith('the job is gone')
    assert not any(cluster.processes(host) for host in range(4))
    check_equality(tmp_path, 'auto_400_adam', 4)
    assert np.load(str(tmp_path / 'auto_400_adam.npz'))['kinds'][0] == 'dense'
    for name in names + fp16 + ['search_adam']:
        devices = check_equality(tmp_path, name, 4)
        if name == 'search_adam':
            assert devices and all(device.startswith('/job:server_') for device in devices)
            continue
        tasks = [re.fullmatch(r'/job:server_\w+/task:(\d)/device:CPU:0', each) for each in devices]
        assert [task.group(1) for task in tasks] == ['0', '1']
    # Rows really cross the wire between workers and servers.
    for host in (2, 3):
        assert cluster.counters()[host].sent - before[host].sent > 50000


def test_one_server_a_host_holds_all_shards_and_equals_plain_keras(cluster, tmp_path):
    names = asked_for('shared_adam', 'custom', 'ps_tied')
    outcome = train(cluster, tmp_path, names, 2, '"host"')
    assert outcome.code == 0, outcome.output[-5000:]
    for name in names:
        assert check_equality(tmp_path, name, 4) == [
            '/job:worker/task:%d/device:CPU:0' % rank for rank in (0, 2)
        ]
