# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Who may connect to the servers of a job, on real hosts. Needs root."""

import os
import re
import sys
import time

import pytest
from cluster.emulated_cluster import INTERFACE, LIMIT_SECONDS, EmulatedCluster
from servers import COMMAND as SERVER

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, os.pardir, os.pardir, 'docs', 'servers.md')
CONNECT = 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)'
JOB_HOSTS, OTHER_HOST, STRANGER = (0, 1), 2, 3
PORT = 12345
WORKER, LOCKED, STRANGERS = (
    os.path.join(HERE, name) for name in ('private_worker.py', 'locked_worker.py', 'stranger.py')
)
QUIET = {'TF_CPP_MIN_LOG_LEVEL': '2'}
NO_PRIVILEGE = ['setpriv', '--bounding-set=-all', '--inh-caps=-all']

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    """Two hosts for jobs, a third for jobs or a dedicated server, and a stranger."""
    with EmulatedCluster(4) as made:
        for host in range(4):
            switch_on = 'echo 0 >/proc/sys/net/ipv6/conf/%s/disable_ipv6'
            for command in (
                ['sh', '-c', switch_on % 'lo'],
                ['sh', '-c', switch_on % INTERFACE],
                ['ip', 'address', 'add', six(host) + '/64', 'dev', INTERFACE, 'nodad'],
            ):
                outcome = made.exec(host, command)
                assert outcome.code == 0, outcome.output
        yield made


def six(host):
    """The IPv6 address of a host."""
    return 'fd77::%d' % (host + 1)


# --- by the job itself -----------------------------------------------------------------------


def ports_of_job(cluster, host):
    """The ports from 1024 at which processes listen on a host, without those of a launcher."""
    lines = cluster.exec(host, ['ss', '-Htlnp']).output.splitlines()
    return {
        int(line.split()[3].rpartition(':')[2])
        for line in lines
        if 'horovodrun' not in line and int(line.split()[3].rpartition(':')[2]) >= 1024
    }


def check_strangers(cluster, folder, jobs, workers, hosts, attempt=0):
    """Has the stranger knock from when the servers listen until the job has trained and saved."""
    wait_for(jobs, r'PORT (\d) (\d+);', workers * (attempt + 1))
    places = [
        '%s,%d' % (address, port)
        for host in hosts
        for port in ports_of_job(cluster, host)
        for address in (cluster.address(host), six(host))
    ]
    # Each worker has a server, and rank 0 a watchdog.
    assert len(places) >= 2 * (workers + 1)
    stop = folder / ('stop-%d' % attempt)
    stranger = cluster.spawn(STRANGER, [sys.executable, '-S', STRANGERS, stop] + places)
    wait_for(jobs, r'READY (\d);', workers * (attempt + 1))
    stop.write_text('')
    outcome = stranger.wait()
    assert 'REACHED' not in outcome.output and 'TRIED' in outcome.output, outcome.output
    (folder / ('go-%d' % attempt)).write_text('')


def wait_for(jobs, pattern, count):
    """Waits until jobs have printed something as often as that."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        outputs = [job.output() for job in jobs]
        if sum(len(re.findall(pattern, output)) for output in outputs) >= count:
            return
        assert time.monotonic() < deadline, outputs
        assert all(job.process.poll() in (None, 0) for job in jobs), outputs
        time.sleep(0.2)


def test_a_stranger_reaches_no_port_of_a_job_nor_its_dedicated_server_nor_after_a_restart(
    cluster, tmp_path
):
    server = cluster.spawn(OTHER_HOST, [*SERVER, '--port', PORT, '--keep'], QUIET)
    hosts = [cluster.address(host) for host in JOB_HOSTS]
    launcher = os.path.join(os.path.dirname(sys.executable), 'horovodrun')
    job = cluster.spawn(
        JOB_HOSTS[0],
        [sys.executable, '-m', 'keras_parallax', 'run', '--max-restarts', 1, '--backoff', 1, '--']
        + [launcher, '--gloo', '--disable-cache', '-np', 2, '--network-interface', INTERFACE]
        + ['-H', ','.join('%s:1' % host for host in hosts)]
        + [sys.executable, WORKER, tmp_path, '%s:%d' % (cluster.address(OTHER_HOST), PORT)],
        dict(QUIET, KERAS_PARALLAX_CACHE=str(tmp_path)),
    )
    try:
        for attempt in range(2):
            everywhere = [*JOB_HOSTS, OTHER_HOST]
            check_strangers(cluster, tmp_path, [job], 2, everywhere, attempt)
        outcome = job.wait()
        assert outcome.code == 0, outcome.output
        assert outcome.output.count('TRAINED') == 2
    finally:
        server.process.terminate()
        server.wait()


def test_a_stranger_reaches_no_port_of_workers_that_kubernetes_has_started_on_three_hosts(
    cluster, tmp_path
):
    hosts = [*JOB_HOSTS, OTHER_HOST]
    jobs = [
        cluster.spawn(
            host,
            [sys.executable, WORKER, tmp_path],
            dict(
                QUIET,
                KERAS_PARALLAX_CACHE=str(tmp_path),
                JOB_COMPLETION_INDEX=str(rank),
                HOROVOD_SIZE=str(len(hosts)),
                HOROVOD_GLOO_IFACE=INTERFACE,
                HOROVOD_GLOO_RENDEZVOUS_ADDR=cluster.address(hosts[0]),
                HOROVOD_GLOO_RENDEZVOUS_PORT='29500',
            ),
        )
        for rank, host in enumerate(hosts)
    ]
    check_strangers(cluster, tmp_path, jobs, 3, hosts)
    for job in jobs:
        outcome = job.wait()
        assert outcome.code == 0 and 'TRAINED' in outcome.output, outcome.output


def test_a_stranger_reaches_no_port_of_a_job_of_one_host_that_has_no_privilege(cluster, tmp_path):
    host = JOB_HOSTS[0]
    server = cluster.spawn(host, [*NO_PRIVILEGE, *SERVER, '--port', PORT], QUIET)
    job = cluster.start(
        [*NO_PRIVILEGE, sys.executable, WORKER, tmp_path, '%s:%d' % (cluster.address(host), PORT)],
        slots_per_host=2,
        hosts=[host],
        environ=dict(QUIET, KERAS_PARALLAX_CACHE=str(tmp_path), KERAS_PARALLAX_RESTARTS='1'),
    )
    (tmp_path / 'go-1').write_text('')
    check_strangers(cluster, tmp_path, [job], 2, [host])
    outcome = job.wait()
    assert outcome.code == 0 and outcome.output.count('TRAINED') == 2, outcome.output
    assert server.wait(120).code == 0


def test_a_network_that_is_allowed_gets_through(cluster, tmp_path):
    go = tmp_path / 'go'
    job = cluster.start(
        [sys.executable, os.path.join(HERE, 'waiting_worker.py'), go],
        hosts=JOB_HOSTS,
        environ=dict(QUIET, KERAS_PARALLAX_ALLOWED_NETWORKS=cluster.address(STRANGER)),
    )
    servers = wait_for_ports(job)
    for host in JOB_HOSTS:
        assert not is_refused(cluster, host, servers[host])
    go.write_text('')
    outcome = job.wait()
    assert outcome.code == 0, outcome.output


def test_where_the_kernel_refuses_it_is_told_and_refused_where_it_is_required(cluster):
    outcome = cluster.run([sys.executable, LOCKED], hosts=JOB_HOSTS, environ=QUIET)
    assert outcome.code == 0, outcome.output
    assert outcome.output.count('TRAINED') == 2 and outcome.output.count('REFUSED') == 2
    # Rank 0 alone warns, of both hosts.
    (warning,) = re.findall(r'Hosts outside the job can connect.*docs/servers.md\.', outcome.output)
    assert 'h0 and h1' in warning and 'CAP_NET_ADMIN' in warning


# --- by the packet filter of docs/servers.md -------------------------------------------------


def blocks(language):
    """The code blocks of the page that are in a language."""
    with open(PAGE) as file:
        return re.findall(r'```%s\n(.*?)```' % language, file.read(), re.DOTALL)


def close(cluster, folder):
    """Follows the page on the hosts of the job."""
    (table,), (*_, commands) = blocks('nft'), blocks('bash')
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
        [sys.executable, worker, go],
        hosts=JOB_HOSTS,
        # The packet filter alone is to keep the stranger out.
        environ=dict(QUIET, KERAS_PARALLAX_ALLOWED_NETWORKS='0.0.0.0/0'),
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
