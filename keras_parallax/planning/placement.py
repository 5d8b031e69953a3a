# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How many shards a variable has, and on which servers they lie. Pure functions."""

import collections
from typing import (
    Any,
    Callable,
    Dict,
    Hashable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from keras_parallax.planning import architectures, costs
from keras_parallax.planning import classify as rules
from keras_parallax.planning.planned_variables import PlannedVariable
from keras_parallax.planning.planned_variables import Shard as Shard
from keras_parallax.planning.search_request import Found, Search
from keras_parallax.planning.units import counted, seconds_in_words

#: A variable of so few bytes is no burden to the memory of a single machine.
_SMALL_BYTES = 64 * 2**20


class Weight(NamedTuple):
    """What a variable asks of the servers that hold it.

    Attributes:
        rows: its number of rows.
        bytes: its size.
        traffic: bytes of its rows and gradients that all workers exchange with its servers in a
            step, or `None` if it is not known.
    """

    rows: int
    bytes: int
    traffic: Optional[float] = None


def together(weights: Sequence[Weight]) -> Weight:
    """The `Weight` of variables of as many rows each that are placed as one."""
    traffic = [weight.traffic for weight in weights if weight.traffic is not None]
    return Weight(
        weights[0].rows,
        sum(weight.bytes for weight in weights),
        sum(traffic) if len(traffic) == len(weights) else None,
    )


def rows_of_shard(rows: int, shards: int, shard: int) -> int:
    """Number of rows of shard number `shard` when `rows` rows are split over `shards` shards.

    Example:
        ```python
        >>> [rows_of_shard(10, 3, shard) for shard in range(3)]
        [4, 3, 3]
        ```
    """
    return (rows - shard + shards - 1) // shards


def shard_count(
    weight: Weight, weights: Sequence[Weight], servers: int, machines: int, cluster: costs.Cluster
) -> int:
    """Chooses a variable's number of shards from the cost model.

    More shards spread a variable's traffic more evenly over the machines' links, but each is a
    message more for every worker. What depends on the number `P` of shards in the time of a step is
    taken to be `message_seconds * P`, and the time in which the link of the machine that has most
    of the variable carries what exceeds an even share; it is nothing where `P` is a multiple of the
    number of machines. A variable that would fill a machine's memory is split in any case. One of
    which the traffic is not known gets a shard on each server.

    `weights` are those of all variables on servers, `weight` included.
    """
    least, most = _bounds(weight, weights, servers, machines)
    if weight.traffic is None:
        return most
    return min(range(least, most + 1), key=lambda count: _seconds(count, weight, machines, cluster))


def _bounds(
    weight: Weight, weights: Sequence[Weight], servers: int, machines: int
) -> Tuple[int, int]:
    """The smallest and the largest number of shards that a variable may get."""
    # A table of fewer rows than servers has a shard for each row: no shard is ever empty.
    most = max(1, min(servers, weight.rows))
    fair_bytes = max(_SMALL_BYTES, sum(weight.bytes for weight in weights) / machines)
    return max(1, min(most, -int(-weight.bytes // fair_bytes))), most


def _seconds(count: int, weight: Weight, machines: int, cluster: costs.Cluster) -> float:
    """What depends on the number of a variable's shards in the time of a step."""
    excess = -(-count // machines) / count - 1.0 / machines
    # Links carry both directions at once, so half of the traffic counts.
    traffic = weight.traffic or 0.0
    return traffic * excess / 2 / cluster.bandwidth + count * cluster.message_seconds


def why_count(
    count: int,
    weight: Weight,
    weights: Sequence[Weight],
    servers: int,
    machines: int,
    cluster: costs.Cluster,
) -> str:
    """Why `shard_count` has come to a number, in words; arguments as it takes them.

    Example:
        ```python
        >>> words = Weight(1000, 4 * 10**6, 10**6)
        >>> print(why_count(2, words, [words], 2, 2, costs.Cluster(2, bandwidth=1.25e8)))
        takes 400 us of a step by messages and uneven links; 1 shard would take 2.2 ms
        ```
    """
    least, most = _bounds(weight, weights, servers, machines)
    if most == 1:
        return 'there is one row' if weight.rows == 1 < servers else 'there is one server'
    fills = 'fewer than %d would be more than an even share of all bytes for a host' % least
    if least == most:
        return fills
    if weight.traffic is None:
        each = 'row' if most < servers else 'server'
        return 'one for each %s, until it is known which part of its rows a batch touches' % each
    words = 'takes %s of a step by messages and uneven links' % seconds_in_words(
        _seconds(count, weight, machines, cluster)
    )
    others = [
        '%s would take %s'
        % (counted(other, 'shard'), seconds_in_words(_seconds(other, weight, machines, cluster)))
        for other in sorted({least, most} - {count})
    ]
    if least > 1:
        others.append(fills)
    return '; '.join([words] + others)


def place(
    shard_counts: Sequence[int],
    weights: Sequence[Weight],
    machines: Sequence[int],
    heaviest_first: bool = False,
) -> List[Tuple[Shard, ...]]:
    """Places shards on servers so that no server carries more than it must.

    The load of a server, or of a machine, is the larger of its shares of all bytes and of all
    traffic. The shards of one variable go to different machines, the least loaded ones first, then
    to other servers of the same machines; when there are more shards than servers, round after
    round. Of each server, `machines` has its machine's number.

    Variables whose shards weigh most may be placed first, which comes out more even; otherwise they
    come in the order given. Returns a tuple of `Shard`s for each.
    """
    all_bytes = sum(weight.bytes for weight in weights) or 1
    all_traffic = sum(weight.traffic or 0.0 for weight in weights) or 1.0

    def shares(size: float, traffic: Optional[float]) -> Tuple[float, float]:
        return size / all_bytes, (traffic or 0.0) / all_traffic

    order: Sequence[int] = range(len(weights))
    if heaviest_first:
        order = sorted(
            order,
            key=lambda number: max(shares(*weights[number][1:])) / shard_counts[number],
            reverse=True,
        )
    on_server = [(0, 0.0)] * len(machines)
    on_machine = {machine: (0, 0.0) for machine in machines}
    placed: List[Tuple[Shard, ...]] = [()] * len(weights)
    for number in order:
        weight, count = weights[number], shard_counts[number]
        shards: List[Shard] = []
        while len(shards) < count:
            for server in _by_load(machines, on_server, on_machine, shares)[: count - len(shards)]:
                rows = rows_of_shard(weight.rows, count, len(shards))
                shards.append(Shard(server, rows))
                size = weight.bytes * rows // max(1, weight.rows)
                traffic = (weight.traffic or 0.0) * rows / max(1, weight.rows)
                for load, key in ((on_server, server), (on_machine, machines[server])):
                    load[key] = (load[key][0] + size, load[key][1] + traffic)
        placed[number] = tuple(shards)
    return placed


def _by_load(
    machines: Sequence[int],
    on_server: Sequence[Tuple[float, float]],
    on_machine: Mapping[int, Tuple[float, float]],
    shares: Callable[[float, float], Tuple[float, float]],
) -> List[int]:
    """All servers, in the order in which they take the shards of one variable."""

    def heaviness(load: Tuple[float, float]) -> Tuple[float, ...]:
        return tuple(sorted(shares(*load), reverse=True))

    servers = sorted(range(len(machines)), key=lambda server: heaviness(on_server[server]))
    turns, taken = {}, dict.fromkeys(on_machine, 0)
    for server in servers:
        machine = machines[server]
        # A machine's second server comes after the first one of every other machine.
        turns[server] = (taken[machine],) + heaviness(on_machine[machine])
        taken[machine] += 1
    return sorted(servers, key=turns.__getitem__)


def in_one_piece(use: rules.VariableUse) -> bool:
    """Whether something of a `VariableUse` but for its lookups reaches over the whole table."""
    return rules.WHOLE_TABLE in (use.regularizer, use.constraint, use.formula)


def with_shards(
    uses: Sequence[rules.VariableUse],
    planned: List[PlannedVariable],
    servers: int,
    architecture: str,
    partitions: Any,
    cluster: costs.Cluster,
    fp16: costs.Fp16,
) -> List[PlannedVariable]:
    """Gives shards to those `PlannedVariable`s that lie on servers, in place, and returns all."""
    chosen = [
        number
        for number, variable in enumerate(planned)
        if variable.kind == rules.SPARSE or architecture == architectures.PS
    ]
    machines = [cluster.machine_of(server, servers) for server in range(servers)]
    by_key: Dict[Hashable, List[int]] = collections.OrderedDict()
    for number in chosen:
        key = _placed_as(uses[number], planned[number], partitions, servers)
        by_key.setdefault(key, []).append(number)
    groups = list(by_key.values())
    weights = [
        together([_weight(planned[number], cluster, fp16) for number in group]) for group in groups
    ]
    shard_counts, reasons = [], []
    for (first, *_), weight in zip(groups, weights):
        wanted = _wanted(planned[first], partitions, servers)
        if in_one_piece(uses[first]):
            count, reason = 1, 'in one piece, because of what reaches over all of its rows'
        elif wanted is not None:
            count = max(1, min(wanted, weight.rows))
            by = 'found by the search' if isinstance(wanted, Found) else 'asked for by partitions'
            reason = 'as %s' % by + ', one for each row' * (count < wanted)
        else:
            given = weight, weights, servers, len(set(machines)), cluster
            count = shard_count(*given)
            reason = why_count(count, *given)
        shard_counts.append(count)
        reasons.append(reason)
    traffic_known = any(weight.traffic is not None for weight in weights)
    placed = place(shard_counts, weights, machines, heaviest_first=traffic_known)
    for group, shards, reason in zip(groups, placed, reasons):
        for number in group:
            planned[number] = planned[number]._replace(shards=shards, count_reason=reason)
    return planned


def _placed_as(
    use: rules.VariableUse, variable: PlannedVariable, partitions: Any, servers: int
) -> Hashable:
    """A key: variables that have the same are placed as one, so that their rows travel together."""
    wanted = _wanted(variable, partitions, servers)
    # Several in the same few pieces would burden the few servers that hold them.
    uneven = in_one_piece(use) or (wanted is not None and wanted % servers)
    if use.ids_key is None or variable.kind != rules.SPARSE or uneven:
        return variable.name
    dtypes = variable.dtype, variable.row_dtype
    return use.ids_key, wanted, variable.rows, dtypes, variable.density


def _wanted(variable: PlannedVariable, partitions: Any, servers: int) -> Optional[int]:
    if isinstance(partitions, Search):
        return partitions.wanted(variable.name, servers) if variable.kind == rules.SPARSE else None
    if isinstance(partitions, Mapping):
        return partitions.get(variable.name)
    return partitions if variable.kind == rules.SPARSE else None


def _weight(variable: PlannedVariable, cluster: costs.Cluster, fp16: costs.Fp16) -> Weight:
    # That it has shards tells in what they hold it.
    variable = variable._replace(shards=(Shard(0, variable.rows),))
    size = variable.stored_bytes
    # A table that the user made dense is pulled whole.
    density = variable.density if variable.kind == rules.SPARSE else 1.0
    if density is None:
        return Weight(variable.rows, size)
    gradients = costs.wire_bytes(variable.bytes, variable.dtype, fp16.gradients)
    pulls_fp16 = fp16.pulls and variable.kind == rules.SPARSE
    pulled = costs.wire_bytes(size, variable.stored_dtype, pulls_fp16)
    pulled *= costs.host_density(density, cluster)
    gradients *= costs.host_pushes(density, cluster)
    traffic = cluster.hosts * (pulled + gradients)
    return Weight(variable.rows, size, traffic)
