# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The servers that hold the shards of a job: started or found once, and looked after."""

import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import dedicated_servers, worker_servers
from keras_parallax.engine.job.allowed_hosts import (
    LOOPBACK_ADDRESS,
    AllowedHosts,
    loopback_address,
)
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.engine.job.devices import WORKER_JOB
from keras_parallax.engine.job.job_interface import JobInterface
from keras_parallax.engine.job.server_layout import Servers, Wanted, checked, place_servers
from keras_parallax.errors import PlanError, ServerLostError
from keras_parallax.framework_types import Server

#: How long the host of a dedicated server may be silent. With the grace, less than 30 seconds.
_SILENT_SECONDS = 8


_PROBE_SECONDS = 1.0


class ShardServers:
    """Starts or finds the servers that strategies ask for.

    Args:
        job: the `Job`.

    Attributes:
        server: the `tf.train.Server` that this process started last, or `None` if nobody has
            asked for one.
    """

    _served: Dict[Wanted, Tuple[Server, Optional[Servers]]]
    _dedicated: Dict[str, Tuple[str, int]]
    server: Server

    def __init__(self, job: JobInterface) -> None:
        self._job, self.server = job, None
        self._served, self._dedicated = {}, {}

    def serve(self, servers: Any = None) -> Tuple[Server, Optional[Servers]]:
        """Starts or finds the servers that hold shards. A collective call, the first time.

        Takes the argument of `ParallaxStrategy`. Returns this process's `tf.train.Server` and the
        `Servers`; `None` twice if there is but one worker and no dedicated server.

        Raises:
            PlanError: `servers` is not what it can be, or not the same on every worker.
            ParallaxError: a worker found no port that its server could listen on.
            ServerLostError: a dedicated server is not there, or serves another job.
        """
        wanted = checked(servers)
        addresses = wanted if isinstance(wanted, tuple) else ()
        if self._job.size == 1 and not addresses:
            return None, None
        if wanted not in self._served:
            with self._job.call('ParallaxStrategy()'):
                of_ranks = self._job.gather(wanted)
                for rank, other in enumerate(of_ranks):
                    if other != of_ranks[0]:
                        raise PlanError(
                            'Give every worker the same servers: rank 0 was given %r, rank %d %r.'
                            % (of_ranks[0], rank, other)
                        )
                self._served[wanted] = self._start(wanted, addresses)
        return self._served[wanted]

    def problem(self) -> Optional[ServerLostError]:
        """The `ServerLostError` about a dedicated server that is lost, or `None`."""
        for address, (server_job, number) in self._dedicated.items():
            problem = dedicated_servers.server_problem(address, server_job, number)
            if problem:
                return ServerLostError(problem)
        return None

    def _start(self, wanted: Wanted, addresses: Sequence[str]) -> Tuple[Server, Optional[Servers]]:
        job, first_ranks = self._job, [ranks[0] for ranks in self._job.hosts]
        for other, served in self._served.items():
            if not addresses and not isinstance(other, tuple):
                # 'host' and `None` differ only in which workers' servers hold shards.
                return served[0], place_servers(wanted, job.size, first_ranks)
        dedicated = self._ask(addresses) if addresses else []
        job.privacy.include(dedicated)
        own_address = LOOPBACK_ADDRESS
        if job.privacy.allowed().one_host:
            addresses = [loopback_address(address) for address in addresses]
        else:
            own_address = worker_servers.find_own_address()
        started = worker_servers.start_servers(
            job.rank, job.config, job.gather, own_address, addresses
        )
        self.server, server_job = started.server, started.server_job
        if addresses:
            self._assign(started, [job.privacy.allowed(one.host.identity) for one in dedicated])
        job.privacy.close_server(started.cluster[WORKER_JOB], addresses)
        wanted = tuple(addresses) or wanted
        servers = place_servers(wanted, job.size, first_ranks, server_job)
        self._dedicated.update(
            (address, (server_job, number)) for number, address in enumerate(addresses)
        )
        own = [address for address, owner in zip(addresses, servers.owners) if owner == job.rank]
        if own:
            threading.Thread(target=self._look_after, args=[own], daemon=True).start()
        return self.server, servers

    def _ask(self, addresses: Sequence[str]) -> List[ServerFacts]:
        """Asks dedicated servers about their hosts. A collective call."""
        facts: List[ServerFacts] = []
        problem = None
        if self._job.rank == 0:
            try:
                facts = dedicated_servers.ask(addresses)
            except ServerLostError as error:
                problem = str(error)
        facts, problem = self._job.gather([facts, problem])[0]
        if problem:
            raise ServerLostError(problem)
        return list(map(ServerFacts.from_data, facts))

    def _assign(self, started: worker_servers.Started, allowed: Sequence[AllowedHosts]) -> None:
        """Tells dedicated servers that they are to serve this job. A collective call."""
        problem = None
        if self._job.rank == 0:
            problem = dedicated_servers.assign(started.cluster, started.server_job, allowed)
        problem = self._job.gather(problem)[0]
        if problem:
            raise ServerLostError(problem)

    def _look_after(self, addresses: Sequence[str]) -> None:
        """Probes dedicated servers: a step that begins when one is gone waits for ever."""
        now = time.monotonic()
        contacts = {address: probe.Contact(_SILENT_SECONDS, now) for address in addresses}
        while True:
            for address, contact in contacts.items():
                if contact.is_gone(probe.probe(address), time.monotonic()):
                    sentence = 'The server at %s is gone, and its shards with it.' % address
                    self._job.watch.lose_server(sentence)
                    return
            time.sleep(_PROBE_SECONDS)
