"""Which shards each variable on servers gets. Pure functions.

Tables that are looked up with the same ids are placed as one: `joined` then has their rows travel
side by side. The numbers come from `placement`.
"""

import collections
from collections.abc import Mapping

from keras_parallax import classify as rules
from keras_parallax import costs, placement, roads


def in_one_piece(use):
    """Whether something of a `VariableUse` but for its lookups reaches over the whole table."""
    return rules.WHOLE_TABLE in (use.regularizer, use.constraint, use.formula)


def with_shards(uses, planned, servers, architecture, partitions, cluster, fp16):
    """Gives shards to the variables that lie on servers.

    Args:
        uses: a list of `VariableUse`s.
        planned: for each its `PlannedVariable`; changed in place.
        servers: number of servers.
        architecture: as `plan.make_plan` takes it.
        partitions: the same.
        cluster: the `costs.Cluster`.
        fp16: `costs.Halved`: what travels in half precision.

    Returns:
        `planned`.
    """
    chosen = [
        number
        for number, variable in enumerate(planned)
        if variable.kind == rules.SPARSE or architecture == roads.PS
    ]
    machines = [cluster.machine_of(server, servers) for server in range(servers)]
    groups = collections.OrderedDict()
    for number in chosen:
        key = _placed_as(uses[number], planned[number], partitions, servers)
        groups.setdefault(key, []).append(number)
    groups = list(groups.values())
    weights = [
        placement.together([_weight(planned[number], cluster, fp16) for number in group])
        for group in groups
    ]
    counts = []
    for (first, *_), weight in zip(groups, weights):
        wanted = _wanted(planned[first], partitions)
        if in_one_piece(uses[first]):
            counts.append(1)
        elif wanted is not None:
            counts.append(max(1, min(wanted, weight.rows)))
        else:
            count = placement.shard_count(weight, weights, servers, len(set(machines)), cluster)
            counts.append(count)
    traffic_known = any(weight.traffic is not None for weight in weights)
    placed = placement.place(counts, weights, machines, heaviest_first=traffic_known)
    for group, shards in zip(groups, placed):
        for number in group:
            planned[number] = planned[number]._replace(shards=shards)
    return planned


def _placed_as(use, variable, partitions, servers):
    """A key: variables that have the same are placed as one, so that their rows travel together."""
    wanted = _wanted(variable, partitions)
    # Several in the same few pieces would burden the few servers that hold them.
    uneven = in_one_piece(use) or (wanted is not None and wanted % servers)
    if use.asked_by is None or variable.kind != rules.SPARSE or uneven:
        return variable.name
    return use.asked_by, wanted, variable.rows, variable.dtype, variable.alpha


def _wanted(variable, partitions):
    if isinstance(partitions, Mapping):
        return partitions.get(variable.name)
    return partitions if variable.kind == rules.SPARSE else None


def _weight(variable, cluster, fp16):
    # A table that the user made dense is pulled whole.
    alpha = variable.alpha if variable.kind == rules.SPARSE else 1.0
    if alpha is None:
        return placement.Weight(variable.rows, variable.bytes)
    halves = fp16.gradients, fp16.pulls and variable.kind == rules.SPARSE
    gradients, pulled = [costs.wire_bytes(variable.bytes, variable.dtype, h) for h in halves]
    alpha = costs.host_alpha(alpha, cluster)
    traffic = cluster.hosts * alpha * (pulled + gradients)
    return placement.Weight(variable.rows, variable.bytes, traffic)
