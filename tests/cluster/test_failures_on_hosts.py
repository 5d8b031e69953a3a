# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A job on several hosts ends when a host is cut off or the launcher is killed. Needs root."""

import contextlib
import os
import re
import signal
import sys

import launch
import pytest
from cluster.emulated_cluster import EmulatedCluster
from frameworks import TF2

from keras_parallax.engine.failures import watchdog

WORKER = os.path.join(launch.HERE, 'parallel', 'failure_worker.py')
#: Against hangs; no verdict depends on how long a job takes.
LIMIT_SECONDS = 240

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(2) as made:
        yield made


def left_over(cluster):
    """The processes of a job that still run on the hosts.

    The sshd of a host that was cut off waits for the connection for some time; it is not the job's.
    """
    found = []
    for pid in cluster.processes(0) + cluster.processes(1):
        try:
            with open('/proc/%d/cmdline' % pid) as file:
                words = file.read().split('\0')
        except FileNotFoundError:
            continue
        if not words[0].startswith('sshd:'):
            found.append((pid, words[:3]))
    return found


def open_ports(cluster, output):
    """The ports of a job's servers at which somebody still listens, on the hosts."""
    ports = set(re.findall(r'PORT (\d+)', output))
    assert len(ports) == 2
    listening = set()
    for host in range(2):
        listed = cluster.exec(host, ['cat', '/proc/net/tcp', '/proc/net/tcp6']).output
        # 0A is the state of a socket that listens.
        for number in re.findall(r':([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]+ 0A', listed):
            listening.add(str(int(number, 16)))
    return ports & listening


def sentences(output):
    """The lines that name a worker and its host, from whomever; a list."""
    return re.findall(r'<stderr>:.*\b[Rr]ank \d+ on host .*', output)


def ranks(cluster, host):
    """The processes of the workers on a host."""
    found = []
    for pid in cluster.processes(host):
        try:
            with open('/proc/%d/cmdline' % pid) as file:
                words = file.read().split('\0')
        except FileNotFoundError:
            continue
        if words[1:2] == [WORKER]:
            found.append(pid)
    return found


def horovodrun(cluster, hosts, size):
    """The command that starts workers on hosts, as `-H` takes them with numbers for names."""
    named = ','.join('%s:%d' % (cluster.address(host), slots) for host, slots in hosts)
    return [
        os.path.join(os.path.dirname(sys.executable), 'horovodrun'),
        '--gloo', '--disable-cache', '-np', str(size), '-H', named,
        '--network-interface', 'eth0',
    ]  # fmt: skip


def test_a_host_that_is_cut_off_is_named_and_every_process_ends(cluster):
    job = cluster.start([sys.executable, WORKER, 'never_ends'])
    launch.wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    cluster.set_link(1, up=False)
    try:
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        said = r'Rank 1 on host h1 does not answer \(its host is down, or the network to it\)'
        assert len(re.findall(said, outcome.output)) == 1, outcome.output
        assert len(sentences(outcome.output)) == 1, outcome.output
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
        closed = lambda: not open_ports(cluster, outcome.output)  # noqa: E731
        launch.wait_until(closed, lambda: open_ports(cluster, outcome.output))
    finally:
        cluster.set_link(1, up=True)
        cluster.end_processes()


def test_no_rank_on_another_host_outlives_its_launcher(cluster):
    # No worker is on the launcher's own host, where one would be killed and break the connections.
    launcher = horovodrun(cluster, [(1, 2)], 2)
    job = cluster.spawn(0, launcher + [sys.executable, WORKER, 'never_ends'])
    launch.wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    try:
        assert len(left_over(cluster)) >= 4  # Two workers and their watchdogs.
        assert len(open_ports(cluster, job.output())) == 2
        job.process.send_signal(signal.SIGKILL)
        job.process.wait()
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
        closed = lambda: not open_ports(cluster, job.output())  # noqa: E731
        launch.wait_until(closed, lambda: open_ports(cluster, job.output()))
    finally:
        cluster.end_processes()


@pytest.mark.parametrize('started', [0, 1])
def test_a_rank_that_never_starts_is_named(cluster, started):
    launcher = horovodrun(cluster, [(0, 1), (1, 1)], 2)
    way = 'killed_before_the_job' if started == 0 else 'first_killed_before_the_job'
    job = cluster.spawn(0, launcher + [sys.executable, WORKER, way])
    try:
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        if TF2:
            # Horovod 0.28.1's launcher ends the other worker before that has waited long.
            said = 'Terminating remaining workers after failure of Process %d.' % (1 - started)
        else:
            said = 'Rank %d on host h%d has waited in vain for rank %d to start' % (
                started, started, 1 - started
            )  # fmt: skip
            assert len(sentences(outcome.output)) == 1, outcome.output
        assert outcome.output.count(said) == 1, outcome.output
        assert len(sentences(outcome.output)) <= 1, outcome.output
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
    finally:
        cluster.end_processes()


def test_one_sentence_tells_that_all_ranks_of_a_host_were_killed(cluster):
    launcher = horovodrun(cluster, [(0, 2), (1, 2)], 4)
    job = cluster.spawn(0, launcher + [sys.executable, WORKER, 'never_ends'])
    launch.wait_until(lambda: job.output().count('TRAINS') == 4, job.output)
    try:
        for pid in ranks(cluster, 1):
            # A worker whose watchdog is gone may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        said = sentences(outcome.output)
        assert len(said) == 1, outcome.output
        assert re.search(r'Rank [23] on host h1 was killed from outside', said[0]), outcome.output
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
    finally:
        cluster.end_processes()


def test_one_sentence_tells_that_a_host_lost_all_processes_with_their_watchdogs(cluster):
    launcher = horovodrun(cluster, [(0, 2), (1, 2)], 4)
    job = cluster.spawn(0, launcher + [sys.executable, WORKER, 'never_ends'])
    launch.wait_until(lambda: job.output().count('TRAINS') == 4, job.output)
    try:
        there = set(cluster.processes(1))
        found = [(pid, words) for pid, words in left_over(cluster) if pid in there]
        # A host is lost at once: nothing on it may find out that something else there has ended.
        # The workers stop first, since each looks after its watchdog.
        found.sort(key=lambda process: watchdog.__file__ in process[1])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, _ in found:
                os.kill(pid, number)
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        said = sentences(outcome.output)
        assert len(said) == 1, outcome.output
        named = r'Rank [23] on host h1 (and rank 3 on host h1 )?ha(s|ve) ended without a word'
        assert re.search(named, said[0]), outcome.output
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
    finally:
        cluster.end_processes()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_one_sentence_tells_that_the_launcher_of_several_hosts_was_interrupted(cluster, number):
    job = cluster.start([sys.executable, WORKER, 'never_ends'])
    launch.wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    try:
        job.process.send_signal(number)
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        launch.wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
        assert len(sentences(outcome.output)) == 1, outcome.output
    finally:
        cluster.end_processes()
