# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The hosts that the cluster tests and the benchmarks run on. Needs root."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import cases
import numpy as np
import psutil
import pytest
import reference
import wakeup
from cluster import cpu_shares, emulated_cluster, links, namespaces
from cluster.emulated_cluster import ClusterError, EmulatedCluster
from frameworks import KERAS_PACKAGES

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
BENCHMARKS = os.path.dirname(os.path.dirname(emulated_cluster.__file__))
WHO = 'import socket, horovod.tensorflow as hvd; hvd.init(); ' + (
    'print("RANK %d %d %d %s;" % (hvd.rank(), hvd.local_size(), hvd.size(), socket.gethostname()))'
)
#: Makes a cluster with a process on a host, says its name, and stays.
KEEPER = """
import sys, time
from cluster.emulated_cluster import EmulatedCluster
with EmulatedCluster(2, cores_per_host=float(sys.argv[1])) as cluster:
    cluster.spawn(1, ['sleep', '1000'])
    while not cluster.processes(1):
        time.sleep(0.05)
    print(cluster.name, cluster.processes(1)[0], flush=True)
    time.sleep(1000)
"""

BASHRC = os.path.expanduser('~/.bashrc')
#: Uses the processor without end.
BUSY = [sys.executable, '-c', 'while True: pass']

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(2) as made:
        yield made


def belonging(name):
    """The network namespaces that belong to a cluster."""
    return [namespace for namespace in namespaces.names() if namespace.startswith(name + '-')]


def is_gone(name):
    """Whether nothing is left of a cluster: no namespace, hence no bridge and no link, no file."""
    return not (belonging(name) or groups(name) or os.path.exists(namespaces.folder(name)))


def groups(name):
    """The control groups that belong to a cluster."""
    mount = cpu_shares.mount_in(open('/proc/mounts').read())
    found = os.listdir(mount.folder) if mount else []
    return [group for group in found if group.startswith(name + '-')]


def busy_on(cluster, host):
    """The processes on a host that are `BUSY`."""
    found = psutil.process_iter(['cmdline'])
    busy = {process.pid for process in found if process.info['cmdline'] == BUSY}
    return sorted(busy.intersection(cluster.processes(host)))


def check_share(group, pids, cores):
    """Has processes use up their group's share a while, and checks that it is so many cores."""

    def used():
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

    before, (passed, throttled) = used(), cpu_shares.periods(group)
    while cpu_shares.periods(group)[1] < throttled + 200:
        time.sleep(0.05)
    passed, throttled = np.subtract(cpu_shares.periods(group), (passed, throttled))
    # Where others keep the processor busy, a group may have less than its share, but never more.
    quota = cores * cpu_shares.period_of(cores) / 1e6
    assert 0.8 * throttled * quota <= used() - before <= 1.1 * passed * quota + 0.1


def is_alive(pid):
    """Whether a process runs; one that ended may stay listed until its parent asks for it."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def qdiscs(cluster, namespace, link):
    """The queueing disciplines of a link, with their counters."""
    shown = subprocess.check_output(
        ['ip', 'netns', 'exec', namespace, 'tc', '-s', '-j', 'qdisc', 'show', 'dev', link]
    )
    return json.loads(shown.decode())


def test_ranks_on_two_hosts_count_one_local_rank_each(cluster):
    outcome = cluster.run([sys.executable, '-c', WHO])
    assert outcome.code == 0, outcome.output
    assert 'RANK 0 1 2 h0;' in outcome.output and 'RANK 1 1 2 h1;' in outcome.output


def test_hosts_reach_each_other_and_nothing_else(cluster):
    outcome = cluster.exec(1, ['ssh', cluster.address(0), 'hostname; ip -o route'])
    assert outcome.code == 0, outcome.output
    name, *routes = outcome.output.splitlines()
    assert name == 'h0'
    assert len(routes) == 1 and 'dev eth0' in routes[0]


@pytest.mark.skipif(not os.path.exists(BASHRC), reason='there is no ~/.bashrc to mount over')
def test_a_login_does_not_read_the_bashrc_of_the_user(tmp_path):
    (tmp_path / 'bashrc').write_text('echo read\n')
    with EmulatedCluster(1) as cluster:
        assert cluster.exec(0, ['mount', '--bind', tmp_path / 'bashrc', BASHRC]).code == 0
        outcome = cluster.exec(0, ['ssh', cluster.address(0), 'cat %s; echo end' % BASHRC])
    assert outcome.output == 'echo read\nend\n'


def test_what_is_mounted_on_a_host_is_seen_there_only(cluster):
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'small', '/mnt']
    assert cluster.exec(1, mount).code == 0
    sizes = [cluster.exec(host, ['df', '--output=source', '/mnt']).output for host in (0, 1)]
    over_ssh = cluster.exec(0, ['ssh', cluster.address(1), 'df --output=source /mnt']).output
    assert 'small' not in sizes[0] and 'small' in sizes[1] and 'small' in over_ssh
    assert not any(part.mountpoint == '/mnt' for part in psutil.disk_partitions(all=True))


def test_a_host_that_is_unplugged_is_out_of_reach_until_it_is_plugged_in(cluster):
    ssh = ['ssh', '-o', 'ConnectTimeout=2', cluster.address(1), 'true']
    assert cluster.exec(0, ssh).code == 0
    cluster.set_link(1, up=False)
    assert cluster.exec(0, ssh).code == 255
    cluster.set_link(1, up=True)
    assert cluster.exec(0, ssh[:1] + ['-o', 'ConnectTimeout=60'] + ssh[3:]).code == 0


def test_counters_count_what_a_host_sends_to_another(cluster):
    size = 3000000
    before = cluster.counters()
    command = 'head -c %d /dev/zero | ssh %s cat >/dev/null' % (size, cluster.address(1))
    assert cluster.exec(0, ['sh', '-c', command]).code == 0
    sent = cluster.counters()[0].sent - before[0].sent
    received = cluster.counters()[1].received - before[1].received
    # `cat` sends nothing back, and a session of ssh takes a few thousand bytes of its own.
    assert size <= sent <= 1.1 * size + 20000
    assert size <= received <= 1.1 * size + 20000


def test_shaping_holds_packets_back_at_both_ends_of_a_link(cluster):
    cluster.shape(80)
    try:
        command = 'head -c 4000000 /dev/zero | ssh %s cat >/dev/null' % cluster.address(1)
        assert cluster.exec(0, ['sh', '-c', command]).code == 0
        ends = [(cluster.namespace(host), 'eth0') for host in (0, 1)]
        ends += [(cluster.name + '-switch', 'h%d' % host) for host in (0, 1)]
        for namespace, link in ends:
            (found,) = qdiscs(cluster, namespace, link)
            assert found['kind'] == 'tbf'
            assert found['options']['rate'] == 80e6 / 8  # bytes per second
        (sender,) = qdiscs(cluster, *ends[0])
        assert sender['bytes'] > 4000000 and sender['overlimits'] > 100
    finally:
        cluster.shape(None)
    assert qdiscs(cluster, *ends[0])[0]['kind'] == 'noqueue'


@pytest.mark.parametrize('bandwidth', [20, 200])
def test_shaping_does_not_cut_up_what_a_network_card_would(cluster, bandwidth):
    cluster.shape(bandwidth)
    try:
        counter = ['cat', '/sys/class/net/eth0/statistics/tx_packets']
        before = int(cluster.exec(0, counter).output)
        command = 'head -c 4000000 /dev/zero | ssh %s cat >/dev/null' % cluster.address(1)
        assert cluster.exec(0, ['sh', '-c', command]).code == 0
        packets = int(cluster.exec(0, counter).output) - before
    finally:
        cluster.shape(None)
    # Frames of 1,500 bytes would be 2,667.
    assert packets < 1000


def test_the_processes_of_a_host_have_its_share_together_however_many_they_are():
    with EmulatedCluster(2, cores_per_host=0.2) as cluster:
        cluster.spawn(0, BUSY)
        cluster.spawn(1, BUSY)
        # Over ssh, as a job's workers come.
        cluster.spawn(0, ['ssh', cluster.address(1), ' '.join(map(shlex.quote, BUSY))])
        while (len(busy_on(cluster, 0)), len(busy_on(cluster, 1))) != (1, 2):
            time.sleep(0.05)
        for host in 0, 1:
            check_share(cluster.namespace(host), busy_on(cluster, host), 0.2)


def test_the_share_of_a_host_changes_while_a_job_runs():
    with EmulatedCluster(1, cores_per_host=0.05) as cluster:
        group, pid = cluster.namespace(0), cluster.spawn(0, BUSY).process.pid
        check_share(group, [pid], 0.05)
        cluster.share_cores(None)
        before, start = cpu_shares.periods(group)[1], psutil.Process(pid).cpu_times().user
        while psutil.Process(pid).cpu_times().user < start + 1:
            time.sleep(0.05)
        # The period in which the limit went may count.
        assert cpu_shares.periods(group)[1] <= before + 1
        cluster.share_cores(0.2)
        check_share(group, [pid], 0.2)


def test_a_share_that_cannot_be_had_is_refused(cluster):
    with pytest.raises(ClusterError, match='cores_per_host is 0.01 or more'):
        EmulatedCluster(1, cores_per_host=0.009).__enter__()
    with pytest.raises(ClusterError, match='made without cores_per_host'):
        cluster.share_cores(0.5)


def test_a_machine_without_control_groups_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(cpu_shares, '_mount', lambda: None)
    with EmulatedCluster(1):
        pass
    with pytest.raises(ClusterError, match='leave cores_per_host at None'):
        EmulatedCluster(1, cores_per_host=0.5).__enter__()


@pytest.mark.parametrize(
    'table, expected',
    [
        ('tmpfs / tmpfs rw 0 0\n', None),
        ('cgroup2 /c cgroup2 rw 0 0\n', ('/c', 2)),
        ('cgroup2 /u cgroup2 rw 0 0\ncgroup /a cgroup rw,cpuacct,cpu 0 0\n', ('/a', 1)),
        ('cgroup2 /u cgroup2 rw 0 0\ncgroup /a cgroup rw,cpuacct 0 0\n', ('/u', 2)),
    ],
)
def test_control_groups_are_found_in_the_table_of_mounts(table, expected):
    assert cpu_shares.mount_in(table) == expected


def test_both_versions_of_control_groups_are_told_the_same_share():
    assert cpu_shares.settings(2, 0.25) == {'cpu.max': '2500 10000'}
    assert cpu_shares.settings(2, None) == {'cpu.max': 'max 10000'}
    files = cpu_shares.settings(1, 0.25)
    assert files == {'cpu.cfs_period_us': '10000', 'cpu.cfs_quota_us': '2500'}
    assert cpu_shares.settings(1, None)['cpu.cfs_quota_us'] == '-1'


def test_a_small_share_has_a_longer_period_for_the_kernel_takes_no_quota_below_a_millisecond():
    assert cpu_shares.settings(2, 0.1) == {'cpu.max': '1000 10000'}
    assert cpu_shares.settings(2, 0.05) == {'cpu.max': '1000 20000'}
    assert cpu_shares.settings(2, 0.083) == {'cpu.max': '1000 12049'}


def test_latency_is_set_or_refused_by_name_when_the_kernel_has_none(cluster):
    try:
        cluster.shape(80, latency_ms=3)
    except ClusterError as error:
        assert 'sch_netem' in str(error)
    else:
        delay, rate = qdiscs(cluster, cluster.namespace(0), 'eth0')
        assert delay['options']['delay']['delay'] == pytest.approx(0.003)
        assert rate['options']['rate'] == 80e6 / 8
    finally:
        cluster.shape(None)


@pytest.mark.parametrize(
    'bandwidth, delay, kinds', [(None, 0, []), (80, 0, ['tbf']), (80, 3, ['netem', 'tbf'])]
)
def test_queueing_nests_the_rate_in_the_delay(bandwidth, delay, kinds):
    words = links.queueing(bandwidth, delay)
    assert [line[3 if line[0] == 'root' else 4] for line in words] == kinds
    assert [line[0] for line in words] == ['root', 'parent'][: len(words)]


def test_training_on_two_hosts_of_two_workers_equals_plain_keras(cluster, tmp_path):
    package, name = KERAS_PACKAGES[0], 'shared_adam'
    before = cluster.counters()
    worker = os.path.join(TESTS, 'parallel', 'equality_worker.py')
    outcome = cluster.run(
        [sys.executable, worker, package, tmp_path, name],
        slots_per_host=2,
        environ={'TF_CPP_MIN_LOG_LEVEL': '2'},
    )
    assert outcome.code == 0, outcome.output[-5000:]
    case, found = cases.CASES[name], np.load(str(tmp_path / (name + '.npz')))
    start, _, weights = reference.run(case, cases.keras_module(package), 4)
    for number, (begin, expected) in enumerate(zip(start, weights)):
        scale = max(np.abs(begin).max(), np.abs(expected).max())
        np.testing.assert_allclose(
            found['arr_%d' % number], expected, rtol=0, atol=case.tolerance * scale
        )
    assert not np.array_equal(start[0], weights[0])
    # Twenty steps have to cross the wire, and what one host sends the other receives.
    for host, other in (0, 1), (1, 0):
        sent = cluster.counters()[host].sent - before[host].sent
        received = cluster.counters()[other].received - before[other].received
        assert sent > 50000
        assert received == pytest.approx(sent, rel=0.01)


def test_run_leaves_no_process_on_any_host(cluster):
    script = 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo left $!;'
    outcome = cluster.run(['sh', '-c', script])
    assert outcome.code == 0 and outcome.output.count('left') == 2
    assert cluster.processes(0) == cluster.processes(1) == []


def test_a_job_that_hangs_is_ended_on_every_host(cluster):
    outcome = cluster.run([sys.executable, '-c', 'import time; time.sleep(1000)'], limit=8)
    assert outcome.code is None
    assert cluster.processes(0) == cluster.processes(1) == []


def test_an_exception_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError):
        with EmulatedCluster(2, cores_per_host=0.5) as cluster:
            cluster.spawn(0, ['sleep', '1000'])
            assert len(belonging(cluster.name)) == 3 and len(groups(cluster.name)) == 2
            pids = [daemon.pid for daemon in cluster._daemons]
            assert all(map(is_alive, pids))
            1 / 0  # noqa: B018
    assert is_gone(cluster.name)
    assert not any(map(is_alive, pids))


def test_a_cluster_that_is_not_finished_leaves_nothing_behind(monkeypatch):
    def interrupted(self):
        assert len(belonging(self.name)) == 3
        raise KeyboardInterrupt

    monkeypatch.setattr(EmulatedCluster, '_start_sshds', interrupted)
    cluster = EmulatedCluster(2)
    with pytest.raises(KeyboardInterrupt):
        cluster.__enter__()
    assert is_gone(cluster.name)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_nothing_behind_or_the_next_cluster_removes_it(number):
    keeper = subprocess.Popen(
        [sys.executable, '-c', KEEPER, '0.5'],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, PYTHONPATH=BENCHMARKS),
        universal_newlines=True,
    )
    name, pid = keeper.stdout.readline().split()
    assert len(belonging(name)) == 3 and len(groups(name)) == 2 and is_alive(int(pid))
    keeper.send_signal(number)
    keeper.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert not is_gone(name)
        with EmulatedCluster(1):
            pass
    assert is_gone(name)
    assert not is_alive(int(pid))
    # Ctrl-C ends Python by an exception, which one from 3.8 on makes a signal again; the other
    # signals end it as themselves.
    by_exception = subprocess.call(
        [sys.executable, '-c', 'raise KeyboardInterrupt'], stderr=subprocess.DEVNULL
    )
    assert keeper.returncode == (by_exception if number == signal.SIGINT else -number)


def test_two_clusters_live_side_by_side_but_not_on_the_same_addresses(cluster):
    with EmulatedCluster(1) as other:
        assert other.name != cluster.name
        assert other.address(0) != cluster.address(0)
    assert len(belonging(cluster.name)) == 3
    with EmulatedCluster(1, '10.78.5.0/29') as chosen:
        assert chosen.address(0) == '10.78.5.1'
        with pytest.raises(ClusterError, match='another address_range'):
            EmulatedCluster(1, '10.78.5.0/29').__enter__()
    with pytest.raises(ClusterError, match='has no 7 addresses'):
        EmulatedCluster(7, '10.78.5.0/29').__enter__()


def test_how_late_a_thread_wakes_up_is_measured_on_a_host_that_uses_up_its_share():
    with EmulatedCluster(1, cores_per_host=0.25) as cluster:
        group = cluster.namespace(0)
        before = cpu_shares.periods(group)[1]
        assert min(wakeup.measure(cluster, 0.25, 1, 1.0)) > 0
        assert cpu_shares.periods(group)[1] > before + 10
        assert not cluster.processes(0)
        with pytest.raises(ClusterError, match="(?s)failed on an emulated host.*'many'"):
            wakeup.measure(cluster, None, 'many', 1.0)
