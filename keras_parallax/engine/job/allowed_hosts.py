# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which hosts may connect to the servers of a job. Pure functions."""

import ipaddress
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

from keras_parallax.engine.job.packet_filter import Network
from keras_parallax.errors import PlanError

#: Networks that may connect besides, separated by commas.
NETWORKS_VARIABLE = 'KERAS_PARALLAX_ALLOWED_NETWORKS'

#: Packets with these source addresses come from the host itself: Linux drops others.
_LOOPBACK = ('127.0.0.0/8', '::1')


class HostFacts(NamedTuple):
    """What a process of a job tells the others about the network of its host.

    Attributes:
        name: the host's name.
        identity: a text that two processes share if and only if they have one network: hosts, and
            containers with a network of their own, differ.
        addresses: of the host's network interfaces.
        networks: further networks that may connect to the job.
    """

    name: str
    identity: str
    addresses: Sequence[str]
    networks: Sequence[str] = ()


class AllowedHosts(NamedTuple):
    """The hosts that may connect to a server.

    Attributes:
        addresses: of the job's hosts, and those by which a host reaches itself.
        networks: networks that the user allows besides, as texts (`'10.0.0.0/8'`).
        one_host: whether the whole job runs on the host of the server.
    """

    addresses: Tuple[str, ...]
    networks: Tuple[str, ...]
    one_host: bool

    @property
    def only_this_host(self) -> bool:
        """Whether nobody may connect but processes on the host of the server."""
        return self.one_host and not self.networks

    @property
    def everybody(self) -> bool:
        """Whether nothing is to be closed, because the user allowed networks of prefix 0."""
        return any(ipaddress.ip_network(network).prefixlen == 0 for network in self.networks)

    @property
    def parsed(self) -> List[Network]:
        """All that may connect, as `ipaddress` has it."""
        return [ipaddress.ip_network(one) for one in (*self.addresses, *self.networks)]

    def admit(self, address: str) -> bool:
        """Whether an address may connect. IPv4 addresses may be mapped into IPv6."""
        parsed = ipaddress.ip_address(address.partition('%')[0])
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.parsed)


#: The address of this host at which only the host itself reaches it.
LOOPBACK_ADDRESS = '127.0.0.1'


def allowed_hosts(facts: Sequence[HostFacts], identity: str) -> AllowedHosts:
    """The hosts that may connect to the servers on one host of a job.

    An address that several hosts have, such as that of a bridge for containers, is allowed to none
    of the others: it does not tell hosts of the job from what is behind such a bridge.

    Args:
        facts: of every process of the job.
        identity: of the host of the servers.

    Example:
        ```python
        >>> first = HostFacts('first', 'a', ['10.0.0.1', '172.17.0.1', 'fe80::1%eth0'])
        >>> second = HostFacts('second', 'b', ['10.0.0.2', '172.17.0.1'], ['10.1.0.0/16'])
        >>> allowed = allowed_hosts([first, second], 'b')
        >>> allowed.addresses
        ('10.0.0.1', '10.0.0.2', '127.0.0.0/8', '172.17.0.1', '::1')
        >>> allowed.networks, allowed.one_host
        (('10.1.0.0/16',), False)
        ```
    """
    holders: Dict[str, Set[str]] = {address: {identity} for address in _LOOPBACK}
    for one in facts:
        for address in one.addresses:
            if not (_has_scope(address) or ipaddress.ip_address(address).is_loopback):
                holders.setdefault(address, set()).add(one.identity)
    return AllowedHosts(
        tuple(
            sorted(
                address
                for address, identities in holders.items()
                if len(identities) == 1 or identity in identities
            )
        ),
        tuple(sorted({network for one in facts for network in one.networks})),
        {one.identity for one in facts} == {identity},
    )


def _has_scope(address: str) -> bool:
    # Workers do not find each other by `fe80::1%eth0`.
    if '%' in address:
        return True
    parsed = ipaddress.ip_address(address)
    return parsed.version == 6 and parsed.is_link_local


def checked_networks(networks: Any) -> Tuple[str, ...]:
    """The argument `allowed_networks` of `ParallaxStrategy`, as a sorted tuple of networks.

    Raises:
        PlanError: it holds something that is not a network.

    Example:
        ```python
        >>> checked_networks(['10.1.2.3', 'fd00::/8'])
        ('10.1.2.3/32', 'fd00::/8')
        ```
    """
    if isinstance(networks, str):
        networks = [networks]
    if not isinstance(networks, (list, tuple, set, frozenset)):
        raise PlanError(
            "allowed_networks must be a list of networks such as '10.1.0.0/16', but %r was given."
            % (networks,)
        )
    return tuple(sorted({_checked(one, 'allowed_networks') for one in networks}))


def networks_of(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """The networks that the environment allows, as `checked_networks` returns them.

    Raises:
        PlanError: the variable holds something that is not a network.
    """
    words = (word.strip() for word in environ.get(NETWORKS_VARIABLE, '').split(','))
    return tuple(sorted({_checked(word, NETWORKS_VARIABLE) for word in words if word}))


def _checked(network: Any, source: str) -> str:
    try:
        # A number would be taken for an address.
        return str(ipaddress.ip_network(network if isinstance(network, str) else repr(network)))
    except ValueError as error:
        raise PlanError(
            "%s must hold networks such as '10.1.0.0/16' or addresses, but %r is in it: %s."
            % (source, network, error)
        ) from error


def loopback_address(address: str) -> str:
    """The address, `'host:port'`, at which this host itself reaches one of its own servers.

    Example:
        ```python
        >>> loopback_address('myhost:7000')
        '127.0.0.1:7000'
        ```
    """
    return LOOPBACK_ADDRESS + ':%s' % address.rpartition(':')[2]
