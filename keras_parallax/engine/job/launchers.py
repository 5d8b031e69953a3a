# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a launcher, `horovodrun` or Open MPI's `mpirun`, tells the processes that it starts."""

import ipaddress
import socket
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from keras_parallax.compat import remedies
from keras_parallax.errors import StackError

#: Where the two say the rank and the number of workers. Where `horovodrun` has left that to
#: `mpirun`, only the latter does.
_VARIABLES = (
    ('horovodrun', 'HOROVOD_RANK', 'HOROVOD_SIZE'),
    ('mpirun', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
)

#: Which network interfaces Gloo and Open MPI use. `horovodrun` names them to either.
_INTERFACES = ('HOROVOD_GLOO_IFACE', 'OMPI_MCA_btl_tcp_if_include')


class Started(NamedTuple):
    """What is known of a process before Horovod is.

    Attributes:
        by: `'horovodrun'`, `'mpirun'`, or `None` if neither has started it.
        rank, size: its rank and the number of workers; 0 and 0 if neither has.
    """

    by: Optional[str] = None
    rank: int = 0
    size: int = 0


def started(environ: Mapping[str, str]) -> Started:
    """How a process of an environment, a mapping, was started: a `Started`.

    Example:
        ```python
        >>> started({'OMPI_COMM_WORLD_RANK': '1', 'OMPI_COMM_WORLD_SIZE': '2'})
        Started(by='mpirun', rank=1, size=2)
        ```
    """
    for by, rank, size in _VARIABLES:
        if rank in environ and size in environ:
            return Started(by, int(environ[rank]), int(environ[size]))
    return Started()


def check_controller(process: Started, has_mpi: bool) -> None:
    """Refuses workers that Horovod would not know of each other, with a `StackError`.

    Without MPI, Horovod 0.19.5 takes each process of `mpirun` for the only one of a job.

    Args:
        process: a `Started`.
        has_mpi: whether Horovod was built with MPI.
    """
    if process.by == 'mpirun' and process.size > 1 and not has_mpi:
        raise StackError(
            'Rank %d was started by mpirun as one of %d, but Horovod was built without MPI, so '
            'that each would train alone. Start the job with horovodrun, or build Horovod with '
            'MPI: %s' % (process.rank, process.size, remedies.HOROVOD_WITH_MPI)
        )


def check_host_name(
    name: str, environ: Mapping[str, str], resolve: Callable[..., Any] = socket.getaddrinfo
) -> None:
    """Refuses a host by whose name no worker can be reached, with a `StackError`.

    To be asked where Horovod takes that name's address, which otherwise crashes without a reason.

    Args:
        name: the host's.
        environ: the environment, a mapping. `horovodrun` says there how many workers a host has.
        resolve: `socket.getaddrinfo`.
    """
    try:
        address = resolve(name, None, type=socket.SOCK_STREAM)[0][4][0].partition('%')[0]
    except OSError:
        address = None
    is_alone = environ.get('HOROVOD_LOCAL_SIZE') == environ.get('HOROVOD_SIZE')
    if address and (is_alone or not ipaddress.ip_address(address).is_loopback):
        return
    problem = 'no address'
    if address:
        problem = 'the address %s, where no other host finds it' % address
    raise StackError(
        'Horovod connects workers by the names of their hosts, and the name of this one, %s, has '
        '%s. Write a line into its /etc/hosts, before any other with that name: the address by '
        'which the other hosts reach it, and the name.' % (name, problem)
    )


def own_interface(
    environ: Mapping[str, str], addresses_of: Callable[[Optional[str]], List[str]]
) -> Tuple[Optional[str], Optional[str]]:
    """The network interface that the launcher has chosen, and its first IPv4 address.

    Args:
        environ: the environment, a mapping. Open MPI may have been given several interfaces, of
            which the first counts that has an address, and networks (`10.0.0.0/8`).
        addresses_of: function that gives the IPv4 addresses of an interface, by name, and with
            `None` those of all; a list of strings.

    Returns:
        A pair: the interface's name, or `None` if none was chosen, and the address, or `None` if
        it has none.
    """
    given = next(filter(None, map(environ.get, _INTERFACES)), '')
    names = [name.strip() for name in given.split(',') if name.strip()]
    for name in names:
        found = _within(name, addresses_of(None)) if '/' in name else addresses_of(name)
        if found:
            return name, found[0]
    return (', '.join(names) or None), None


def _within(network: str, addresses: Iterable[str]) -> List[str]:
    within = ipaddress.ip_network(network, strict=False)
    return [address for address in addresses if ipaddress.ip_address(address) in within]
