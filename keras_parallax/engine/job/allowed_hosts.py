"""Which hosts may connect to the servers of a job. Pure functions."""

import ipaddress
from typing import Any, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from keras_parallax.engine.job.packet_filter import Network
from keras_parallax.errors import PlanError

#: Networks that may connect besides, separated by commas.
NETWORKS_VARIABLE = 'KERAS_PARALLAX_ALLOWED_NETWORKS'

#: Packets with these source addresses come from the host itself: Linux drops others.
_LOOPBACK = ('127.0.0.0/8', '::1')


class AllowedHosts(NamedTuple):
    """The hosts that may connect to a server.

    Attributes:
        networks: texts of networks (`'10.0.0.0/8'`) and addresses, those of this host among them.
        only_this_host: whether all workers and dedicated servers run on one host.
    """

    networks: Tuple[str, ...]
    only_this_host: bool

    @property
    def everybody(self) -> bool:
        """Whether nothing is to be closed, because the user allowed networks of prefix 0."""
        return any(network.prefixlen == 0 for network in self.parsed)

    @property
    def parsed(self) -> List[Network]:
        """The networks as `ipaddress` has them."""
        return [ipaddress.ip_network(network) for network in self.networks]

    def admit(self, address: str) -> bool:
        """Whether an address may connect. IPv4 addresses may be mapped into IPv6."""
        parsed = ipaddress.ip_address(address.partition('%')[0])
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.parsed)


#: The address of this host at which only the host itself reaches it.
LOOPBACK_ADDRESS = '127.0.0.1'


def allowed_hosts(
    addresses: Iterable[str], one_host: bool, extra: Sequence[str] = ()
) -> AllowedHosts:
    """The hosts that may connect to the servers of a job.

    Args:
        addresses: those of every network interface of the job's hosts. Addresses with a scope
            (`fe80::1%eth0`) are left out, because workers do not find each other by them.
        one_host: whether all workers and dedicated servers run on one host.
        extra: networks that may connect besides.

    Example:
        ```python
        >>> allowed_hosts(['10.0.0.1', 'fe80::1%eth0'], False).networks
        ('10.0.0.1', '127.0.0.0/8', '::1')
        >>> allowed_hosts([], True, ['10.1.0.0/16']).only_this_host
        False
        ```
    """
    own = {str(ipaddress.ip_address(one)) for one in addresses if not _has_scope(one)}
    return AllowedHosts(tuple(sorted(own.union(_LOOPBACK, extra))), one_host and not extra)


def _has_scope(address: str) -> bool:
    return '%' in address or ipaddress.ip_address(address).is_link_local


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
