"""The packet filter that docs/servers.md recommends, on real hosts. Needs root."""

import os
import re
import sys
import time

import pytest
from cluster.emulated_cluster import LIMIT_SECONDS, EmulatedCluster

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, os.pardir, os.pardir, 'docs', 'servers.md')
CONNECT = 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)'
JOB_HOSTS, STRANGER = (0, 1), 2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture
def cluster():
    with EmulatedCluster(3) as made:
        yield made


def blocks(language):
    """The code blocks of the page that are in a language."""
    with open(PAGE) as file:
        return re.findall(r'```%s\n(.*?)```' % language, file.read(), re.DOTALL)


def close(cluster, folder):
    """Follows the page on the hosts of the job."""
    (table,), (commands,) = blocks('nft'), blocks('bash')
    (folder / 'parallax.nft').write_text(table)
    addresses = ', '.join(cluster.address(host) for host in JOB_HOSTS)
    commands, count = re.subn(r"\{ [\d./, ]+ \}'", "{ %s }'" % addresses, commands)
    assert count == 1
    for host in JOB_HOSTS:
        outcome = cluster.exec(host, ['sh', '-ec', 'cd %s\n%s' % (folder, commands)])
        assert outcome.code == 0, outcome.output


def open_again(cluster):
    for host in JOB_HOSTS:
        outcome = cluster.exec(host, ['nft', 'delete', 'table', 'inet', 'parallax'])
        assert outcome.code == 0, outcome.output


def listening(cluster, host):
    """Where the processes of a host listen from port 1024 on: `{port: address}`."""
    lines = cluster.exec(host, ['ss', '-Htln']).output.splitlines()
    places = (line.split()[3].rpartition(':') for line in lines)
    return {int(port): address for address, _, port in places if int(port) >= 1024}


def is_refused(cluster, host, port):
    """Whether the stranger cannot connect to a host; the reason must be that it is refused."""
    outcome = cluster.exec(
        STRANGER, [sys.executable, '-S', '-c', CONNECT, cluster.address(host), port]
    )
    assert outcome.code == 0 or 'ConnectionRefusedError' in outcome.output, outcome.output
    return outcome.code != 0


def wait_for_ports(job):
    """The port of each worker's server, once all have printed it."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        found = {
            int(rank): int(port) for rank, port in re.findall(r'PORT (\d) (\d+);', job.output())
        }
        if len(found) == len(JOB_HOSTS):
            return found
        assert job.process.poll() is None and time.monotonic() < deadline, job.output()
        time.sleep(0.2)


def test_the_packet_filter_refuses_a_stranger_while_the_job_trains(cluster, tmp_path):
    close(cluster, tmp_path)
    go = tmp_path / 'go'
    worker = os.path.join(HERE, 'waiting_worker.py')
    job = cluster.start(
        [sys.executable, worker, go], hosts=JOB_HOSTS, environ={'TF_CPP_MIN_LOG_LEVEL': '2'}
    )
    servers = wait_for_ports(job)
    for host in JOB_HOSTS:
        ports = listening(cluster, host)
        # TensorFlow 1.11 listens on all addresses, whatever address it is given: hence the filter.
        assert ports[servers[host]] in ('*', '[::]', '0.0.0.0')
        for port in ports:
            assert is_refused(cluster, host, port), (host, port, ports)

    open_again(cluster)
    for host in JOB_HOSTS:
        assert not is_refused(cluster, host, servers[host])

    close(cluster, tmp_path)
    go.write_text('')
    outcome = job.wait()
    assert outcome.code == 0, outcome.output
    assert outcome.output.count('TRAINED') == 2
