# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What workers on several hosts need their hosts' names for. Needs root."""

import os
import sys

import pytest
from cluster.emulated_cluster import EmulatedCluster

from keras_parallax.compat.horovod_api import connects_by_host_name

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'host_worker.py')
#: `horovodrun` tells its workers so on several hosts.
TOLD = {'HOROVOD_CONTROLLER': 'gloo', 'HOROVOD_GLOO_IFACE': 'eth0'}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.mark.parametrize(
    'line, problem',
    [
        ('127.0.0.1 localhost', 'has no address.'),
        # What installers of Debian write.
        ('127.0.1.1 h1', 'has the address 127.0.1.1, where no other host finds it.'),
    ],
    ids=['unknown', 'loopback'],
)
def test_a_name_that_does_not_lead_to_its_host_is_named_where_horovod_goes_by_names(
    tmp_path, line, problem
):
    (tmp_path / 'hosts').write_text(line + '\n')
    with EmulatedCluster(2) as cluster:
        covered = cluster.exec(1, ['mount', '--bind', tmp_path / 'hosts', '/etc/hosts'])
        assert covered.code == 0, covered.output
        command = [sys.executable, WORKER, 'predicts', 0]
        outcome = cluster.run(command, environ={'TF_CPP_MIN_LOG_LEVEL': '2'})
    if connects_by_host_name(TOLD):
        said = 'StackError: Horovod connects workers by the names of their hosts, and the name of '
        assert outcome.code not in (0, None), outcome.output
        assert said + 'this one, h1, ' + problem in outcome.output, outcome.output
        assert 'h0, has' not in outcome.output
    else:
        assert outcome.code == 0, outcome.output
        assert 'PREDICTED ALONE: rank 0;' in outcome.output
