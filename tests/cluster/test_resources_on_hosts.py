# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A job on the hosts that a file names. Needs root."""

import os
import sys

import launch
import pytest
from cluster.emulated_cluster import EmulatedCluster

COMMAND = os.path.join(os.path.dirname(sys.executable), 'keras-parallax')
WORKER = os.path.join(launch.HERE, 'parallel', 'resources_worker.py')

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


def test_workers_are_where_the_file_says_and_each_uses_its_card(tmp_path):
    with EmulatedCluster(2) as cluster:
        file = tmp_path / 'resources'
        file.write_text('%s: 2, 3\n%s: 1\n' % (cluster.address(0), cluster.address(1)))
        horovodrun = ['horovodrun', '--gloo', '--disable-cache', '--network-interface', 'eth0']
        words = horovodrun + [sys.executable, WORKER, 'on']
        outcome = cluster.exec(
            0,
            [COMMAND, 'run', '--resources', str(file), '--output', str(tmp_path)] + words,
            environ={'TF_CPP_MIN_LOG_LEVEL': '2'},
        )
        cluster.end_processes()
    assert outcome.code == 0, outcome.output
    for rank, (card, host) in enumerate([(2, 'h0'), (3, 'h0'), (1, 'h1')]):
        printed = (tmp_path / ('rank-%d.log' % rank)).read_text()
        assert 'rank %d of 3 has card %d, on %s' % (rank, card, host) in printed
