# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""N hosts on one machine: network namespaces on a bridge, with an sshd in each. Needs root.

Each host is a network namespace with one interface, `eth0`, a host name of its own, which each of
them resolves, and mounts of its own on top of this machine's file system. The bridge
is in a namespace too: nothing of a cluster is seen or reached from the machine's own network, and
the machine's firewall and forwarding rules do not matter. What a host sends and receives is shaped
by `tc` and counted by the kernel, and so is the processor time of all that runs on it if wanted.
"""

import contextlib
import ipaddress
import os
import subprocess
import sys
from typing import NamedTuple

from cluster import cpu_shares, links, namespaces, ssh
from cluster.errors import ClusterError

#: The one interface of a host, besides the loopback.
INTERFACE = 'eth0'
#: Something that never ends is ended after this long.
LIMIT_SECONDS = 600


class Outcome(NamedTuple):
    """What became of a command: exit code (`None` if it had to be ended) and what it printed."""

    code: int
    output: str


class Counters(NamedTuple):
    """Bytes that a host's interface has sent and received since it was made."""

    sent: int
    received: int


class Job:
    """A command or a job of several workers that runs on the cluster.

    Attributes:
        process: its `subprocess.Popen`; for a job of several workers, the launcher's.
    """

    def __init__(self, process, log):
        self.process = process
        self._log = log

    def output(self):
        """What the job has printed so far."""
        with open(self._log, errors='replace') as file:
            return file.read()

    def wait(self, limit=LIMIT_SECONDS):
        """Waits for its end, and kills it if that does not come.

        Processes that it started on the hosts may go on: see `EmulatedCluster.processes`.

        Args:
            limit: seconds.

        Returns:
            An `Outcome`.
        """
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        return Outcome(code, self.output())


class EmulatedCluster:
    """Hosts on this machine, for as long as the `with` block runs.

    It leaves nothing behind: not after an exception, Ctrl-C or SIGTERM, and what a cluster left
    whose process was killed is removed by the next one.

    Args:
        hosts: how many.
        address_range: IPv4 network for their addresses, for instance `'10.77.0.0/24'`; by default
            the first of `10.77.*.0/24` that no other cluster on this machine has.
        bandwidth_mbit: Mbit/s that a host can send, and as many that it can receive; `None`
            leaves the links as fast as the machine is.
        latency_ms: milliseconds that a packet takes from one host to another.
        cores_per_host: how many of the machine's cores all that runs on a host has together, for
            instance 0.25; `None` leaves the hosts to share the cores as they come.

    Raises:
        ClusterError: a program, a right or a kernel feature is missing, or another cluster has
            the address range.

    Example:
        ```python
        with EmulatedCluster(hosts=2, bandwidth_mbit=200) as cluster:
            outcome = cluster.run([sys.executable, 'train.py'], slots_per_host=2)
            print(outcome.output, cluster.counters())
        ```
    """

    def __init__(
        self, hosts, address_range=None, bandwidth_mbit=None, latency_ms=0, cores_per_host=None
    ):
        if hosts < 1:
            raise ClusterError('A cluster has 1 host or more, not %r.' % hosts)
        self.hosts = hosts
        self._range = address_range
        self._mbit, self._latency, self._cores = bandwidth_mbit, latency_ms, cores_per_host
        self.name = self._network = self._lock = self._folder = None
        self._daemons, self._launched = [], []
        self._cleaning = contextlib.ExitStack()

    def __enter__(self):
        _check_machine()
        self._cleaning.enter_context(namespaces.signals_unwind())
        try:
            self._take_name()
            self._cleaning.callback(self._remove)
            self._make_network()
            if self._cores is not None:
                for host in range(self.hosts):
                    cpu_shares.make(self.namespace(host))
                self.share_cores(self._cores)
            self._start_sshds()
            self.shape(self._mbit, self._latency)
        except BaseException:
            self._cleaning.close()
            raise
        return self

    def __exit__(self, *error):
        self._cleaning.close()

    # --- What the hosts are -----------------------------------------------------------------------

    def namespace(self, host):
        """The name of a host's network namespace, as `ip netns` knows it."""
        return '%s-h%d' % (self.name, host)

    def address(self, host):
        """A host's IPv4 address, a string."""
        return str(self._network[host + 1])

    def processes(self, host):
        """The numbers of the processes on a host, without those that make it a host."""
        return sorted(
            namespaces.pids_in(self.namespace(host)) - {daemon.pid for daemon in self._daemons}
        )

    def counters(self):
        """`Counters` of each host, a list. They count what `eth0` carries, headers included."""
        return [
            Counters(
                *(int(namespaces.inside(self.namespace(host), 'cat', path)) for path in _COUNTERS)
            )
            for host in range(self.hosts)
        ]

    # --- What runs on them ------------------------------------------------------------------------

    def command(self, host, command):
        """The command that runs a command on a host, when it is run on this machine."""
        # Into what sshd sees, so that a command and a login find the same name and mounts.
        return self._joining(host) + [
            namespaces.find('nsenter'), '--net', '--uts', '--mount',
            '--target', str(self._daemons[host].pid),
            'sh', '-c', 'cd "$0" && exec "$@"', os.getcwd(),
        ] + list(map(str, command))  # fmt: skip

    def environ(self, more=None):
        """The environment in which `ssh` finds the hosts, and commands those of this Python.

        Args:
            more: further variables.
        """
        environ = dict(os.environ, **(more or {}))
        front = [ssh.command_folder(self._folder), os.path.dirname(sys.executable)]
        path = front + [environ.get('PATH', os.defpath), '/usr/sbin', '/sbin']
        environ['PATH'] = os.pathsep.join(path)
        return environ

    def spawn(self, host, command, environ=None):
        """Starts a command on one host.

        Args:
            host: number of the host, from 0.
            command: list of the command's words.
            environ: further environment variables.

        Returns:
            A `Job`.
        """
        log = self._path('%d.log' % len(self._launched))
        process = _launch(self.command(host, command), log, self.environ(environ))
        self._launched.append(process)
        return Job(process, log)

    def exec(self, host, command, environ=None, limit=LIMIT_SECONDS):
        """Runs a command on one host.

        Args:
            host, command, environ: as `spawn` takes them.
            limit: seconds after which the command is ended.

        Returns:
            An `Outcome`.
        """
        return self.spawn(host, command, environ).wait(limit)

    def start(self, command, slots_per_host=1, environ=None, hosts=None, options=()):
        """Starts a job with `horovodrun`, from the first of its hosts.

        Args:
            command: list of the words of the command that every worker runs.
            slots_per_host: number of workers on each host.
            environ: further environment variables.
            hosts: numbers of the hosts to use; by default all.
            options: further options of `horovodrun`.

        Returns:
            A `Job`.
        """
        hosts = list(range(self.hosts)) if hosts is None else list(hosts)
        launcher = [
            os.path.join(os.path.dirname(sys.executable), 'horovodrun'),
            # Its cache, in the user's home, holds for an hour that a host can be reached.
            '--gloo', '--disable-cache', '-np', len(hosts) * slots_per_host,
            '-H', ','.join('%s:%d' % (self.address(host), slots_per_host) for host in hosts),
        ]  # fmt: skip
        if len(hosts) > 1:
            # On one host horovodrun accepts no other interface than that of 127.0.0.1.
            launcher += ['--network-interface', INTERFACE]
        return self.spawn(hosts[0], launcher + list(options) + list(command), environ)

    def run(self, command, slots_per_host=1, environ=None, hosts=None, limit=LIMIT_SECONDS):
        """Runs a job with `horovodrun` and waits for its end: see `start`.

        Args:
            command, slots_per_host, environ, hosts: as `start` takes them.
            limit: seconds after which the job is ended and counts as hung.

        Returns:
            An `Outcome`. Every process on the hosts has ended by then.
        """
        outcome = self.start(command, slots_per_host, environ, hosts).wait(limit)
        self.end_processes()
        return outcome

    def end_processes(self):
        """Ends every process on the hosts but their sshd."""
        for host in range(self.hosts):
            namespaces.kill(lambda host=host: self.processes(host))

    # --- The network ------------------------------------------------------------------------------

    def shape(self, bandwidth_mbit=None, latency_ms=0):
        """Sets bandwidth and latency of every host, as the class takes them.

        Raises:
            ClusterError: the kernel lacks netem, which latency needs.
        """
        if bandwidth_mbit is not None and not bandwidth_mbit > 0:
            raise ClusterError('bandwidth_mbit is above 0 or None, not %r.' % bandwidth_mbit)
        for host in range(self.hosts):
            for namespace, link, delay in (
                (self.namespace(host), INTERFACE, latency_ms),
                (self._switch, 'h%d' % host, 0),
            ):
                links.shape(namespace, link, bandwidth_mbit, delay)

    def set_link(self, host, up):
        """Plugs a host's cable in or out, at the switch: the host keeps address and routes."""
        namespaces.inside(self._switch, 'ip', 'link', 'set', 'h%d' % host, 'up' if up else 'down')

    def share_cores(self, cores_per_host):
        """Changes what each host has of the processor, also of a job that is running.

        Args:
            cores_per_host: as the class takes it.

        Raises:
            ClusterError: the cluster was made without `cores_per_host`.
        """
        if self._cores is None:
            raise ClusterError('A cluster made without cores_per_host cannot share cores later.')
        for host in range(self.hosts):
            cpu_shares.limit(self.namespace(host), cores_per_host)

    # --- How it comes about and goes --------------------------------------------------------------

    @property
    def _switch(self):
        return self.name + '-switch'

    def _take_name(self):
        namespaces.remove_leftovers()
        ranges = [self._range] if self._range else ['10.77.%d.0/24' % i for i in range(256)]
        for address_range in ranges:
            self._network = ipaddress.ip_network(address_range)
            if self._network.num_addresses - 2 < self.hosts:
                raise ClusterError('%s has no %d addresses.' % (address_range, self.hosts))
            self.name = namespaces.PREFIX + address_range.replace('/', '-')
            self._lock = namespaces.lock(self.name)
            if self._lock is not None:
                self._folder = namespaces.folder(self.name)
                return
        raise ClusterError(
            'Another emulated cluster that is running has %s; choose another address_range.'
            % (self._range or 'each of 10.77.*.0/24')
        )

    def _make_network(self):
        namespaces.call('ip', 'netns', 'add', self._switch)
        namespaces.silence_ipv6(self._switch)
        namespaces.inside(self._switch, 'ip', 'link', 'add', 'bridge', 'type', 'bridge')
        namespaces.inside(self._switch, 'ip', 'link', 'set', 'bridge', 'up')
        for host in range(self.hosts):
            namespace, port = self.namespace(host), 'h%d' % host
            namespaces.call('ip', 'netns', 'add', namespace)
            namespaces.silence_ipv6(namespace)
            namespaces.call(
                'ip', 'link', 'add', INTERFACE, 'netns', namespace,
                'type', 'veth', 'peer', 'name', port, 'netns', self._switch,
            )  # fmt: skip
            namespaces.inside(self._switch, 'ip', 'link', 'set', port, 'master', 'bridge', 'up')
            address = '%s/%d' % (self.address(host), self._network.prefixlen)
            namespaces.inside(namespace, 'ip', 'address', 'add', address, 'dev', INTERFACE)
            namespaces.inside(namespace, 'ip', 'link', 'set', INTERFACE, 'up')
            namespaces.inside(namespace, 'ip', 'link', 'set', 'lo', 'up')

    def _start_sshds(self):
        addresses = [self.address(host) for host in range(self.hosts)]
        ssh.prepare(self._folder, addresses)
        names = ssh.write_names(self._folder, addresses)
        for host in range(self.hosts):
            sshd = self._joining(host) + [
                namespaces.find('ip'), 'netns', 'exec', self.namespace(host), 'unshare', '--uts',
                # Horovod 0.28.1 crashes where a host's name does not lead to an address.
                'sh', '-c', 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"',
                'h%d' % host, names,
            ] + ssh.sshd(self._folder, addresses[host])  # fmt: skip
            self._daemons.append(_launch(sshd, self._path('sshd-h%d.log' % host)))
        for host, daemon in enumerate(self._daemons):
            ssh.wait_until_listening(daemon, self._path('sshd-h%d.log' % host))

    def _remove(self):
        with namespaces.signals_held_back():
            for process in self._daemons + self._launched:
                process.kill()
                process.wait()
            namespaces.remove(self.name)
            os.close(self._lock)

    def _joining(self, host):
        return [] if self._cores is None else cpu_shares.joining(self.namespace(host))

    def _path(self, name):
        return os.path.join(self._folder, name)


_COUNTERS = ['/sys/class/net/%s/statistics/%s_bytes' % (INTERFACE, way) for way in ('tx', 'rx')]


def _check_machine():
    if os.geteuid() != 0:
        raise ClusterError('Network namespaces need root.')
    for program in ('ip', 'tc', 'ssh', 'sshd', 'ssh-keygen', 'unshare', 'nsenter', 'hostname'):
        namespaces.find(program)


def _launch(command, log, environ=None):
    with open(log, 'w') as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )
