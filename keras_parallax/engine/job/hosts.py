# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which workers share a host, and whether that helps."""

from typing import Dict, List, Sequence, Tuple


def hosts_of(places: Sequence[Tuple[str, int]]) -> List[List[int]]:
    """Lists of the workers of each host, given for each worker its host's name and its local rank.

    Several hosts may have one name (two addresses of one machine, containers): a worker whose local
    rank its host's name has had already is on the next host of that name. Workers are in order of
    local rank. Where local ranks contradict the names of hosts, each worker counts as a host of its
    own.

    Example:
        ```python
        >>> hosts_of([('a', 0), ('a', 1), ('b', 0), ('b', 1)])
        [[0, 1], [2, 3]]
        ```
    """
    seen: Dict[Tuple[str, int], int] = {}
    hosts: Dict[Tuple[str, int], List[Tuple[int, int]]] = {}
    for rank, (name, local_rank) in enumerate(places):
        number = seen[name, local_rank] = seen.get((name, local_rank), -1) + 1
        hosts.setdefault((name, number), []).append((local_rank, rank))
    in_order = [sorted(ranks) for ranks in hosts.values()]
    if any([local for local, _ in ranks] != list(range(len(ranks))) for ranks in in_order):
        return [[rank] for rank in range(len(places))]
    return [[rank for _, rank in ranks] for ranks in in_order]


def aggregation_helps(hosts: Sequence[Sequence[int]]) -> bool:
    """Whether local aggregation saves anything: several workers on a host, and several hosts."""
    return len(hosts) > 1 and any(len(ranks) > 1 for ranks in hosts)
