# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which servers hold shards, on which device, and which worker owns each. Pure functions."""

import re
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

from keras_parallax.engine.job.devices import WORKER_JOB, cpu_of
from keras_parallax.errors import PlanError

HOST = 'host'


_ADDRESS = re.compile(r'[^\s:/]+:(?P<port>\d{1,5})')


#: The argument `servers` of `ParallaxStrategy`, as `checked` returns it.
Wanted = Union[None, str, Tuple[str, ...]]


class Servers(NamedTuple):
    """The servers that hold a job's shards, by number.

    Attributes:
        devices: for each server the device string of its shards: always a CPU.
        owners: for each server its owner: the worker that drives the updates of its shards.
        addresses: for each dedicated server `'host:port'`; empty if workers' processes serve.
    """

    devices: Tuple[str, ...]
    owners: Tuple[int, ...]
    addresses: Tuple[str, ...] = ()

    def owner_on(self, device: str) -> Optional[int]:
        """The owner of what lies on a device, or `None` if it is none of theirs."""
        return self.owners[self.devices.index(device)] if device in self.devices else None

    @property
    def count(self) -> int:  # type: ignore[override]  # It hides `tuple.count`.
        """How many servers hold shards: `plan.servers`."""
        return len(self.devices)


def checked(servers: Any) -> Wanted:
    """The argument `servers` of `ParallaxStrategy`: `None`, `'host'`, or a tuple of addresses.

    Raises `PlanError` if it is none of these.
    """
    if servers is None or servers == HOST:
        return servers
    if isinstance(servers, (list, tuple)) and servers:
        for address in servers:
            match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
            if not match or not 0 < int(match.group('port')) < 65536:
                raise PlanError(
                    "servers must hold addresses such as 'host:12345', but %r is in it."
                    % (address,)
                )
        if len(set(servers)) < len(servers):
            raise PlanError('servers names an address twice: %s.' % ', '.join(servers))
        return tuple(servers)
    raise PlanError(
        "servers must be None, 'host' or a list of addresses such as 'host:12345', but %r was "
        'given.' % (servers,)
    )


def place_servers(
    servers: Wanted, ranks: int, first_ranks: Sequence[int], server_job: str = ''
) -> Servers:
    """Numbers the servers that hold shards, and gives each an owner: `Servers`.

    For `None`, there is one in each worker's process, owned by it; for `'host'`, only those of the
    first worker on each host, whose ranks are given; addresses are of dedicated ones, of
    TensorFlow's job `server_job`, whose owners are spread evenly over the workers.

    Example:
        ```python
        >>> place_servers('host', 4, [0, 2]).owners
        (0, 2)
        >>> place_servers(('a:1', 'b:1'), 4, [0, 2], 'server').owners
        (0, 2)
        ```
    """
    if servers is None or servers == HOST:
        owners = tuple(range(ranks) if servers is None else first_ranks)
        return Servers(tuple(cpu_of(WORKER_JOB, rank) for rank in owners), owners)
    count = len(servers)
    return Servers(
        tuple(cpu_of(server_job, number) for number in range(count)),
        tuple(number * ranks // count for number in range(count)),
        tuple(servers),
    )
