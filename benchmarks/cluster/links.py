# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The speed of an emulated host's link, set with `tc` at both of its ends."""

from cluster import namespaces
from cluster.errors import ClusterError

#: Bytes of the largest packet that TCP hands down in one piece, 64 KiB, with a header for each of
#: its frames. A burst is a millisecond, but no less than that: smaller ones have the kernel cut
#: large packets up, which costs a host as much processor time as our whole exchange and which
#: network cards do themselves.
LARGEST_PACKET = 70 * 1024


def shape(namespace, link, bandwidth_mbit, delay_ms):
    """Sets what one end of a link lets through, in place of what it had.

    Args:
        namespace: the network namespace that has it.
        link: its name.
        bandwidth_mbit, delay_ms: as `queueing` takes them.

    Raises:
        ClusterError: the kernel lacks netem, which latency needs.
    """
    # Fails where nothing is set yet.
    namespaces.inside(namespace, 'tc', 'qdisc', 'delete', 'dev', link, 'root', check=False)
    for arguments in queueing(bandwidth_mbit, delay_ms):
        try:
            namespaces.inside(namespace, 'tc', 'qdisc', 'add', 'dev', link, *arguments)
        except ClusterError as error:
            if not delay_ms or 'netem' not in arguments:
                raise
            raise ClusterError(
                'latency_ms needs sch_netem, which this kernel does not seem to have: %s' % error
            ) from error


def queueing(bandwidth_mbit, delay_ms):
    """The queueing disciplines of one end of a link: what follows `tc qdisc add dev LINK`.

    Args:
        bandwidth_mbit: Mbit/s, or `None`.
        delay_ms: milliseconds.

    Returns:
        A list of lists of words.
    """
    wanted = []
    if delay_ms:
        # Room for the packets that are on their way; its own 1000 would lose some.
        wanted.append(['netem', 'delay', '%gms' % delay_ms, 'limit', '100000'])
    if bandwidth_mbit:
        burst = max(LARGEST_PACKET, int(bandwidth_mbit * 1e6 / 8 / 1000))
        wanted.append(
            ['tbf', 'rate', '%gmbit' % bandwidth_mbit, 'burst', str(burst), 'latency', '100ms']
        )
    places = [['root', 'handle', '1:'], ['parent', '1:', 'handle', '2:']]
    return [place + words for place, words in zip(places, wanted)]
