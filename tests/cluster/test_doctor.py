# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax doctor` over ssh, on hosts with something wrong. Needs root."""

import json
import os
import sys
import time

import pytest
from any_keras import keras
from cluster.emulated_cluster import LIMIT_SECONDS, EmulatedCluster

DOCTOR = [sys.executable, '-m', 'keras_parallax_command', 'doctor', '--json']
WRONG, ABSENT = 2, 100

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    # Addresses that are public where they are not in a namespace.
    with EmulatedCluster(3, '11.77.0.0/24') as made:
        yield made


def examine(cluster, hosts, *words):
    """Runs the doctor on the first host; gives its exit code and findings by (host, check)."""
    names = ','.join('%s:1' % cluster.address(host) for host in hosts)
    outcome = cluster.exec(0, DOCTOR + ['-H', names] + list(words))
    report = json.loads(outcome.output[outcome.output.index('{\n') :])
    found = {(finding['host'], finding['check']): finding for finding in report['findings']}
    assert report['ok'] == (outcome.code == 0)
    # It may take a moment until sshd has ended what its client left behind.
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(cluster.processes(host) for host in range(cluster.hosts)):
        assert time.monotonic() < deadline, 'The doctor leaves processes behind.'
        time.sleep(0.1)
    return outcome.code, found


def cover(cluster, host, path, folder, content):
    """Has a host see other content in a file than all others see."""
    other = folder / 'other'
    other.write_text(content)
    outcome = cluster.exec(host, ['mount', '--bind', other, path])
    assert outcome.code == 0, outcome.output


def test_hosts_that_fit_together_are_well(cluster, tmp_path):
    (tmp_path / 'train.py').write_text('')
    code, found = examine(cluster, [0, 1], str(tmp_path / 'train.py'))
    assert code == 0
    for host in cluster.address(0), cluster.address(1):
        assert "the job's hosts" in found[host, 'servers']['message']
    assert {finding['verdict'] for finding in found.values()} == {'ok'}
    # The doctor runs on the first host, which needs no ssh.
    assert {host for host, check in found if check == 'ssh'} == {cluster.address(1)}
    assert 'after 15 s' in found[cluster.address(1), 'cut off']['message']
    assert 'eth0' in found[None, 'interface']['message']
    assert (None, 'ports') in found and (None, 'same code') in found


def test_each_thing_that_is_wrong_on_a_host_is_named(cluster, tmp_path):
    script = tmp_path / 'train.py'
    script.write_text('train()')
    cover(cluster, WRONG, script, tmp_path, 'old()')
    # A Keras that no stack takes.
    with open(keras.__file__) as file:
        older = file.read().replace(keras.__version__, '1.2.2')
    (tmp_path / 'keras').mkdir()
    cover(cluster, WRONG, keras.__file__, tmp_path / 'keras', older)
    closed = (
        'add table inet t; add chain inet t c { type filter hook input priority 0 ; }; '
        'add rule inet t c tcp dport 1024-65535 ct state new reject with tcp reset'
    )
    assert cluster.exec(WRONG, ['nft', closed]).code == 0

    code, found = examine(
        cluster, [0, 1, WRONG, ABSENT], str(script), '--checkpoint-dir', '/proc/none'
    )
    assert code == 1
    first, good, wrong, absent = map(cluster.address, (0, 1, WRONG, ABSENT))
    failures = {place for place, finding in found.items() if finding['verdict'] == 'failure'}
    assert failures == {
        (wrong, 'versions'),
        (wrong, 'same packages'),
        (wrong, 'same code'),
        (first, 'ports'),
        (good, 'ports'),
        (absent, 'ssh'),
        (first, 'disk'),
        (good, 'disk'),
        (wrong, 'disk'),
    }
    assert 'Keras 1.2.2' in found[wrong, 'versions']['message']
    said = 'keras 1.2.2 instead of ' + keras.__version__
    assert said in found[wrong, 'same packages']['message']
    assert str(script) in found[wrong, 'same code']['message']
    assert wrong in found[first, 'ports']['message']
    assert all(finding['remedy'] for place, finding in found.items() if place in failures)
