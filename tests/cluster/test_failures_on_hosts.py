"""A job on several hosts ends when a host is cut off or the launcher is killed. Needs root."""

import os
import re
import signal
import sys
import time

import launch
import pytest
from emulated_cluster import EmulatedCluster

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


def wait_until(condition, explain):
    """Waits until `condition()` is true; `explain()` is the message if that takes too long."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.2)


def test_a_host_that_is_cut_off_is_named_and_every_process_ends(cluster):
    job = cluster.start([sys.executable, WORKER, 'never_ends'])
    wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    cluster.set_link(1, up=False)
    try:
        outcome = job.wait(LIMIT_SECONDS)
        assert outcome.code not in (0, None), outcome.output
        said = r'Rank 1 on host h1 does not answer \(its host is down, or the network to it\)'
        assert len(re.findall(said, outcome.output)) == 1, outcome.output
        wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
        assert not open_ports(cluster, outcome.output)
    finally:
        cluster.set_link(1, up=True)
        cluster.end_processes()


def test_no_rank_on_another_host_outlives_its_launcher(cluster):
    horovodrun = [
        os.path.join(os.path.dirname(sys.executable), 'horovodrun'),
        '--gloo', '--disable-cache', '-np', '2', '-H', cluster.address(1) + ':2',
        '--network-interface', 'eth0',
    ]  # fmt: skip
    # No rank is on the launcher's own host, where one would be killed and break the connections.
    job = cluster.spawn(0, horovodrun + [sys.executable, WORKER, 'never_ends'])
    wait_until(lambda: job.output().count('TRAINS') == 2, job.output)
    try:
        assert len(left_over(cluster)) >= 4  # Two ranks and their guards.
        assert len(open_ports(cluster, job.output())) == 2
        job.process.send_signal(signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not left_over(cluster), lambda: left_over(cluster))
        assert not open_ports(cluster, job.output())
    finally:
        cluster.end_processes()
