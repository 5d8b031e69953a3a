# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Closes the ports of a job's processes to hosts outside the job, and says where it cannot."""

import os
import socket
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import psutil

from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import private_sockets, rendezvous_server
from keras_parallax.engine.job.allowed_hosts import AllowedHosts, HostFacts, allowed_hosts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.errors import ParallaxError, PublicServerError
from keras_parallax.logs import logger

#: How long a host may fail to connect to another one. A packet may be lost, or a host busy.
_REACH_SECONDS = 20

_RENDEZVOUS = 'HOROVOD_GLOO_RENDEZVOUS_ADDR', 'HOROVOD_GLOO_RENDEZVOUS_PORT'


def host_facts(networks: Sequence[str] = ()) -> HostFacts:
    """The `HostFacts` of this process.

    Args:
        networks: further networks that may connect.
    """
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in families
    }
    name = socket.gethostname()
    try:
        with open('/proc/sys/kernel/random/boot_id') as file:
            identity = '%s %d' % (file.read().strip(), os.stat('/proc/self/ns/net').st_ino)
    except OSError:  # Some sandboxes hide them.
        identity = ' '.join([name, *sorted(addresses)])
    return HostFacts(name, identity, sorted(addresses), list(networks))


class JobPrivacy:
    """Which hosts may connect to this job's processes, and whether the kernels enforce it.

    Args:
        job: the `Job`; only its rank and its `gather` matter.
        facts: the `HostFacts` of each worker, in order of rank.

    Attributes:
        problems: for each process that other hosts can connect to, its host and why, in words. The
            same on every worker.
    """

    problems: List[Tuple[str, str]]
    _servers: List[HostFacts]
    _reported: Set[Tuple[str, str]]

    def __init__(self, job: Any, facts: Sequence[HostFacts]) -> None:
        self._job, self._workers, self._servers = job, list(facts), []
        self.problems, self._reported = [], set()

    def allowed(self, identity: Optional[str] = None) -> AllowedHosts:
        """The hosts that may connect to servers on a host of the job.

        Args:
            identity: of that host; by default this one.
        """
        own = self._workers[self._job.rank].identity
        return allowed_hosts([*self._workers, *self._servers], identity or own)

    def include(self, dedicated: Sequence[ServerFacts]) -> None:
        """Takes dedicated servers among the processes of the job, given what they tell."""
        self._servers += [one.host for one in dedicated]
        for one in dedicated:
            why = one.problem_with(self.allowed(one.host.identity))
            if why:
                self.problems.append((one.host.name, why))

    def close_meeting_points(self, watchdog: Optional[socket.socket]) -> None:
        """Closes the ports at which workers meet rank 0. A collective call, once they have met.

        Args:
            watchdog: the socket of this process's watchdog, if it listens. It is closed here; the
                watchdog has a duplicate.

        Raises:
            ParallaxError: a host cannot reach the store that rank 0 keeps.
        """
        allowed = self.allowed()
        # What the kernel does with a socket of ours, and not only whether it accepts an option.
        problem = None if allowed.everybody else private_sockets.kernel_problem(allowed.one_host)
        if watchdog is not None:
            problem = private_sockets.restrict(watchdog, allowed) or problem
            watchdog.close()
        rendezvous = rendezvous_server.listener
        if rendezvous is not None:
            # Horovod comes again when it shuts down, to the address that it was given.
            is_local = allowed.one_host and rendezvous_server.is_on_loopback(os.environ)
            of_store = allowed._replace(one_host=is_local)
            problem = private_sockets.restrict(rendezvous, of_store) or problem
            private_sockets.keep_out(rendezvous.getsockname()[1], of_store)
        self._note(problem)
        if any(self._job.gather(rendezvous is not None)):
            self._check_reach([':'.join(os.environ[name] for name in _RENDEZVOUS)])

    def close_server(self, addresses: Sequence[str], dedicated: Sequence[str]) -> None:
        """Closes this worker's TensorFlow server, and checks that the job's hosts reach it.

        A collective call.

        Args:
            addresses: `'host:port'` of each worker's server.
            dedicated: the same of the dedicated servers, which close themselves.

        Raises:
            ParallaxError: a host of the job cannot reach the server of another.
        """
        rank, allowed = self._job.rank, self.allowed()
        port = int(addresses[rank].rpartition(':')[2])
        self._note(private_sockets.restrict_port(port, allowed))
        others = [addresses[other] for other in self._first_ranks() if other != rank]
        self._check_reach([*others, *dedicated])
        private_sockets.keep_out(port, allowed)

    def _first_ranks(self) -> List[int]:
        first: Dict[str, int] = {}
        for rank, facts in enumerate(self._workers):
            first.setdefault(facts.identity, rank)
        return sorted(first.values())

    def _check_reach(self, addresses: Sequence[str]) -> None:
        """Has the first worker of each host connect to some addresses. A collective call."""
        is_first = self._job.rank in self._first_ranks()
        problem = _unreachable(self._job.rank, addresses) if is_first else None
        problems = [problem for problem in self._job.gather(problem) if problem]
        if problems:
            raise ParallaxError(problems[0])

    def _note(self, problem: Optional[str]) -> None:
        own = [socket.gethostname(), problem]
        self.problems += [(host, why) for host, why in self._job.gather(own) if why]

    def report(self, is_required: bool) -> None:
        """Says which hosts' processes are open to hosts outside the job, once; rank 0 logs it.

        Args:
            is_required: whether none may be.

        Raises:
            PublicServerError: one is, and none may be.
        """
        if is_required and self.allowed().everybody:
            raise PublicServerError(
                'require_private_servers is set, but everybody may connect: the allowed networks '
                'are %s. Leave out the network of all addresses.'
                % ', '.join(self.allowed().networks)
            )
        new = set(self.problems) - self._reported
        if not self.problems or not (new or is_required):
            return
        hosts = list(dict.fromkeys(host for host, _ in self.problems))
        reasons = list(dict.fromkeys(why for _, why in self.problems))
        sentence = 'Hosts outside the job can connect to its processes on %s: %s.' % (
            ' and '.join(hosts),
            '; '.join(reasons),
        )
        if is_required:
            raise PublicServerError(
                '%s Remove the cause, or start without require_private_servers (docs/servers.md).'
                % sentence
            )
        self._reported |= new
        if self._job.rank == 0:
            logger.warning(
                '%s Whoever connects to a TensorFlow server can run any graph there; see '
                'docs/servers.md.',
                sentence,
            )


def _unreachable(rank: int, addresses: Sequence[str]) -> Optional[str]:
    deadline = time.monotonic() + _REACH_SECONDS
    for address in addresses:
        answer = probe.probe(address)
        while answer != probe.ANSWERS and time.monotonic() < deadline:
            time.sleep(0.5)
            answer = probe.probe(address)
        if answer != probe.ANSWERS:
            return (
                'Rank %d on host %s cannot connect to the server at %s (%s). If a firewall is '
                'between the two hosts, open the ports of the job there; if the other host sees '
                'this one under another address (NAT), add that to allowed_networks or to '
                'KERAS_PARALLAX_ALLOWED_NETWORKS (docs/servers.md).'
                % (rank, socket.gethostname(), address, answer)
            )
    return None
