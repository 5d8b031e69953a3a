# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a plan costs in a step: bytes of each variable, of each host, of each server, and time."""

from typing import Any, Dict, List, NamedTuple, Optional, cast

import numpy as np

from keras_parallax.framework_types import Array
from keras_parallax.planning import costs
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.planned_variables import PlannedModel, PlannedVariable

PLAN, ALLGATHER, ALLREDUCE, FLOOR = 'plan', 'allgather', 'allreduce', 'floor'


class VariableCost(NamedTuple):
    """Bytes that a host sends for a variable in a step, the mean over the hosts of workers.

    `None` where the density is not known.

    Attributes:
        plan: as the plan exchanges it.
        allgather: if every worker held the variable, and rows were gathered; what is dense is
            reduced.
        allreduce: if its whole gradient were reduced.
    """

    plan: Optional[float]
    allgather: Optional[float]
    allreduce: float


class Total(NamedTuple):
    """All variables together, in one step.

    Attributes:
        sent: bytes that a host of workers sends in the mean.
        busiest: the machine whose link is busiest, a dedicated server's perhaps: its
            `costs.Traffic`.
        seconds: time of its link's busier way.
    """

    sent: float
    busiest: costs.Traffic
    seconds: float


class ServerLoad(NamedTuple):
    """What a server carries.

    Attributes:
        server: its number.
        machine: the number of its machine; hosts of workers come first.
        bytes: bytes of the shards on it.
        bytes_share: the fraction of all shards' bytes.
        traffic_share: the fraction of all rows that are pulled and pushed in a step; `None` if no
            density is known.
    """

    server: int
    machine: int
    bytes: float
    bytes_share: float
    traffic_share: Optional[float]


class Prediction(NamedTuple):
    """What a plan costs in a step.

    Attributes:
        variables: dict from names of variables to `VariableCost`s.
        totals: dict from `'plan'`, `'allgather'`, `'allreduce'` and `'floor'` to `Total`s.
        server_loads: a list of `ServerLoad`s.
        unknown: names of tables whose density is not known; all totals but that of dense
            allreduce leave them out.
        message_seconds: what the plan's shards cost beside their bytes, as the cost model has it.
    """

    variables: Dict[str, VariableCost]
    totals: Dict[str, Total]
    server_loads: List[ServerLoad]
    unknown: List[str]
    message_seconds: float


def predict(
    plan: PlannedModel, cluster: costs.Cluster, fp16: costs.Fp16 = costs.NO_FP16
) -> Prediction:
    """The `Prediction` of what a plan costs.

    Rows are taken to be touched evenly, so that a shard has the traffic of its share of rows.
    """
    machines = cluster.hosts + (plan.servers if cluster.dedicated_servers else 0)
    works = np.arange(machines) < cluster.hosts
    sums = {name: np.zeros((2, machines)) for name in (PLAN, ALLGATHER, ALLREDUCE, FLOOR)}
    variables, unknown, dense_size, tables = {}, [], 0.0, []
    for variable in plan.variables:
        exchanges = _exchanges(variable, plan.servers, cluster, fp16, works)
        for name, traffic in exchanges.items():
            if traffic is not None:
                sums[name] += np.stack(traffic)
        sent: Dict[str, Any] = {
            name: None if traffic is None else float(traffic.sent[works].mean())
            for name, traffic in exchanges.items()
        }
        variables[variable.name] = VariableCost(**sent)
        gradients = costs.wire_bytes(variable.bytes, variable.dtype, fp16.gradients)
        pulled = costs.wire_bytes(variable.stored_bytes, variable.stored_dtype, fp16.pulls)
        rows = max(1, variable.rows)
        if variable.kind != SPARSE:
            dense_size += gradients
        elif variable.density is None:
            unknown.append(variable.name)
        else:
            tables.append((rows, pulled / rows, gradients / rows, variable.density))
    sums[FLOOR] += np.stack(_on_hosts(costs.floor(dense_size, tables, cluster), works))
    totals = {name: _total(traffic, works, cluster) for name, traffic in sums.items()}
    shards = sum(len(variable.shards) for variable in plan.variables)
    messages = shards * cluster.message_seconds
    return Prediction(variables, totals, server_loads(plan, cluster), unknown, messages)


def dense_traffic(
    plan: PlannedModel, cluster: costs.Cluster, fp16: costs.Fp16 = costs.NO_FP16
) -> costs.Traffic:
    """What a host of workers sends and receives for its dense variables: the mean `Traffic`."""
    machines = cluster.hosts + (plan.servers if cluster.dedicated_servers else 0)
    works = np.arange(machines) < cluster.hosts
    total = costs.Traffic()
    for variable in plan.variables:
        if variable.kind != SPARSE:
            planned = _exchanges(variable, plan.servers, cluster, fp16, works)[PLAN]
            traffic = cast(costs.Traffic, planned)  # A dense variable has no unknown traffic.
            total += costs.Traffic(*[float(way[works].mean()) for way in traffic])
    return total


def server_loads(plan: PlannedModel, cluster: costs.Cluster) -> List[ServerLoad]:
    """What each server of a plan carries, as a list of `ServerLoad`s."""
    size, traffic = np.zeros(plan.servers), np.zeros(plan.servers)
    for variable in plan.variables:
        density = variable.density if variable.kind == SPARSE else 1.0
        for shard in variable.shards:
            rows = max(1, variable.rows)
            size[shard.server] += variable.stored_bytes * shard.rows / rows
            traffic[shard.server] += (density or 0.0) * variable.bytes * shard.rows / rows
    return [
        ServerLoad(
            server,
            cluster.machine_of(server, plan.servers),
            float(size[server]),
            float(size[server] / (size.sum() or 1.0)),
            float(traffic[server] / traffic.sum()) if traffic.any() else None,
        )
        for server in range(plan.servers)
    ]


def _exchanges(
    variable: PlannedVariable,
    servers: int,
    cluster: costs.Cluster,
    fp16: costs.Fp16,
    works: Array,
) -> Dict[str, Optional[costs.Traffic]]:
    """A variable's `Traffic` of every machine, exchanged as planned and in the two other ways."""
    rows = max(1, variable.rows)
    gradients = costs.wire_bytes(variable.gradient_bytes, variable.dtype, fp16.gradients)
    reduced = _on_hosts(costs.allreduce(gradients, cluster), works)
    if variable.kind != SPARSE:
        planned = reduced
        if variable.shards:
            shares = shares_of(variable, servers, cluster, len(works))
            planned = costs.dense_servers(variable.bytes, gradients, cluster, shares, works)
        return {PLAN: planned, ALLGATHER: reduced, ALLREDUCE: reduced}
    if variable.density is None:
        return {PLAN: None, ALLGATHER: None, ALLREDUCE: reduced}
    ids, width = costs.id_bytes_of(rows), int(np.prod(variable.shape[1:], dtype=np.int64))
    pulled, pushed = fp16.row_bytes(width, variable.dtype, variable.stored_dtype)
    gathered = costs.allgather(rows, pushed, variable.density, cluster, ids)
    planned = gathered = _on_hosts(gathered, works)
    if variable.shards:
        shares = shares_of(variable, servers, cluster, len(works))
        ids = costs.id_bytes_of(max(shard.rows for shard in variable.shards))
        planned = costs.servers(rows, pulled, pushed, variable.density, cluster, ids, shares, works)
    return {PLAN: planned, ALLGATHER: gathered, ALLREDUCE: reduced}


def shares_of(
    variable: PlannedVariable, servers: int, cluster: costs.Cluster, machines: int
) -> Array:
    """The fraction of a variable's rows on each machine, an array."""
    shares = np.zeros(machines)
    for shard in variable.shards:
        machine = cluster.machine_of(shard.server, servers)
        shares[machine] += shard.rows / max(1, variable.rows)
    return shares


def _on_hosts(traffic: costs.Traffic, works: Array) -> costs.Traffic:
    """The same `Traffic` on every host of workers, none on dedicated servers."""
    return costs.Traffic(traffic.sent * works, traffic.received * works)


def _total(sums: Array, works: Array, cluster: costs.Cluster) -> Total:
    busiest = costs.Traffic(*map(float, sums[:, sums.max(axis=0).argmax()]))
    seconds = costs.step_seconds(busiest, cluster.bandwidth)
    return Total(float(sums[0, works].mean()), busiest, seconds)
