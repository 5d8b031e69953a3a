"""Closes the ports of a job's processes to hosts outside the job, and says where it cannot."""

import os
import socket
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import psutil

from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import private_sockets, rendezvous_server
from keras_parallax.engine.job.allowed_hosts import AllowedHosts, allowed_hosts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.errors import ParallaxError, PublicServerError
from keras_parallax.logs import logger


def own_addresses() -> List[str]:
    """The IPv4 and IPv6 addresses of this host's network interfaces, sorted."""
    families = (socket.AF_INET, socket.AF_INET6)
    return sorted(
        {
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family in families
        }
    )


class HostFacts(NamedTuple):
    """What a host tells the others about its network.

    Attributes:
        addresses: of its network interfaces, as `own_addresses` returns them.
        networks: further networks that may connect, as this host's process was told.
    """

    addresses: Sequence[str]
    networks: Sequence[str]


class JobPrivacy:
    """Which hosts may connect to this job's processes, and whether the kernels enforce it.

    Args:
        job: the `Job`; only its rank, its hosts and its `gather` matter.
        facts: the `HostFacts` of each worker's host.

    Attributes:
        facts: as given, and later those of dedicated servers.
        problems: for each process that other hosts can connect to, its host and why, in words. The
            same on every worker.
    """

    problems: List[Tuple[str, str]]

    def __init__(self, job: Any, facts: Sequence[HostFacts]) -> None:
        self._job, self.facts, self.problems = job, list(facts), []
        self._is_reported = False

    def allowed(self, one_host: Optional[bool] = None) -> AllowedHosts:
        """The hosts that may connect.

        Args:
            one_host: whether everything runs on one host; by default, whether all workers do.
        """
        return allowed_hosts(
            [address for facts in self.facts for address in facts.addresses],
            len(self._job.hosts) == 1 if one_host is None else one_host,
            sorted({network for facts in self.facts for network in facts.networks}),
        )

    def include(self, dedicated: Sequence[ServerFacts], one_host: bool) -> AllowedHosts:
        """The hosts that may connect, with those of dedicated servers.

        Args:
            dedicated: what each server tells about its host.
            one_host: whether all workers and servers run on one host.
        """
        self.facts += [HostFacts(one.addresses, ()) for one in dedicated]
        allowed = self.allowed(one_host)
        reasons = [(one.host, one.problem_with(allowed)) for one in dedicated]
        self.problems += [(host, why) for host, why in reasons if why]
        return allowed

    def close_meeting_points(self, watchdog: Optional[socket.socket]) -> None:
        """Closes the ports at which workers meet rank 0. A collective call, once they have met.

        Args:
            watchdog: the socket of this process's watchdog, if it listens. It is closed here; the
                watchdog has a duplicate.
        """
        allowed, problem = self.allowed(), None
        if watchdog is not None:
            problem = private_sockets.restrict(watchdog, allowed)
            watchdog.close()
        rendezvous = rendezvous_server.listener
        if rendezvous is not None:
            # Horovod comes again when it shuts down, to the address that it was given.
            is_local = allowed.only_this_host and rendezvous_server.is_on_loopback(os.environ)
            of_store = allowed._replace(only_this_host=is_local)
            problem = problem or private_sockets.restrict(rendezvous, of_store)
            private_sockets.close_strangers(rendezvous.getsockname()[1], of_store)
        self._note(problem)

    def close_server(
        self,
        addresses: Sequence[str],
        dedicated: Sequence[str],
        allowed: AllowedHosts,
    ) -> None:
        """Closes this worker's TensorFlow server, and checks that the job's hosts reach it.

        A collective call.

        Args:
            addresses: `'host:port'` of each worker's server.
            dedicated: the same of the dedicated servers, which close themselves.
            allowed: the hosts that may connect.

        Raises:
            ParallaxError: a host of the job cannot reach the server of another.
        """
        rank = self._job.rank
        port = int(addresses[rank].rpartition(':')[2])
        self._note(private_sockets.restrict_port(port, allowed))
        first_ranks = [ranks[0] for ranks in self._job.hosts]
        problem = None
        if rank in first_ranks:
            others = [addresses[other] for other in first_ranks if other != rank]
            problem = _unreachable(rank, [*others, *dedicated])
        problems = [problem for problem in self._job.gather(problem) if problem]
        if problems:
            raise ParallaxError(problems[0])
        # By now the server has accepted whatever connected to it before it was closed.
        private_sockets.close_strangers(port, allowed)

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
        if not self.problems:
            return
        hosts = list(dict.fromkeys(host for host, _ in self.problems))
        reasons = list(dict.fromkeys(why for _, why in self.problems))
        sentence = 'Hosts outside the job can connect to its processes on %s: %s.' % (
            ' and '.join(hosts),
            '; '.join(reasons),
        )
        if is_required:
            raise PublicServerError(
                '%s Grant that, or start without require_private_servers (docs/servers.md).'
                % sentence
            )
        if self._job.rank == 0 and not self._is_reported:
            logger.warning(
                '%s Whoever connects to a TensorFlow server can run any graph there; see '
                'docs/servers.md.',
                sentence,
            )
        self._is_reported = True


def _unreachable(rank: int, addresses: Sequence[str]) -> Optional[str]:
    for address in addresses:
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
