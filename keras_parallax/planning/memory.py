# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How much memory a plan asks of each host. Pure arithmetic.

What is counted are the variables, what the optimizer keeps for them, and what a training step holds
of their rows and gradients at a time. Activations, batches, data and the processes themselves are
not: they depend on more than the plan.

How many copies of a gradient there are at a time was measured with TensorFlow 1.11, with one large
variable and with eight (`docs/planning.md`).
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.framework_types import Array
from keras_parallax.planning import costs, predict
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.planned_variables import PlannedModel
from keras_parallax.planning.units import numbered, size_in_words

#: Copies of each gradient of a dense variable that a worker holds at a time, and how many more of
#: the largest: the gradient itself, what Horovod sends and receives, the mean of all.
_DENSE_COPIES, _DENSE_COPIES_OF_LARGEST = 3, 3

#: The same of the gradients of shards that are rewritten whole, at their owner.
_SHARD_COPIES, _SHARD_COPIES_OF_LARGEST = 1, 4


class HostMemory(NamedTuple):
    """What a machine holds, in bytes.

    Attributes:
        machine: its number; hosts of workers come first, then those of dedicated servers.
        tables: shards on its servers.
        slots: the optimizer's slots of these shards.
        replicas: variables that each of its workers holds whole, and their slots.
        gradients: gradients of whole variables and of whole shards.
        rows: rows of a step and their gradients: pulled, gathered, or taken in by owners.
    """

    machine: int
    tables: float
    slots: float
    replicas: float
    gradients: float
    rows: float

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self[1:])


def of_hosts(plan: PlannedModel) -> List[HostMemory]:
    """The `HostMemory` of each machine of a plan, a list.

    Slots count where the optimizer is known, rows where a table's density is.
    """
    cluster = plan.cluster or costs.Cluster()
    machines = cluster.hosts + (plan.servers if cluster.dedicated_servers else 0)
    works = np.arange(machines) < cluster.hosts
    workers = cluster.workers_per_host * works
    sums = np.zeros((len(HostMemory._fields) - 1, machines))
    tables, all_slots, replicas, gradients, all_rows = sums
    largest, largest_shard = 0, np.zeros(machines)
    for variable in plan.variables:
        size, update = variable.bytes, variable.update
        slots, whole = (update.slots or 0, update.whole) if update else (0, False)
        density = variable.density if variable.kind == SPARSE else 1.0
        if cluster.accumulate_steps > 1:
            # The sums of the batches before an exchange.
            sums_of = all_rows if variable.kind == SPARSE else gradients
            sums_of += (
                workers * size * costs.union_density(density or 0.0, cluster.accumulate_steps)
            )
        if variable.shards:
            shares = predict.shares_of(variable, plan.servers, cluster, machines)
            held = size * shares
            tables += variable.stored_bytes * shares
            all_slots += held * slots
            all_rows += size * _on_servers(density or 0.0, cluster, shares, works)
            if whole:
                gradients += _SHARD_COPIES * held
                largest_shard = np.maximum(largest_shard, held)
            continue
        replicas += workers * size * (1 + slots)
        if variable.kind == SPARSE:
            all_rows += workers * size * _gathered(density or 0.0, cluster)
        else:
            gradients += _DENSE_COPIES * workers * variable.gradient_bytes
            largest = max(largest, variable.gradient_bytes)
            # The rows that the optimizer is given are taken from the mean.
            all_rows += workers * size * variable.row_mask
    gradients += _DENSE_COPIES_OF_LARGEST * workers * largest
    gradients += _SHARD_COPIES_OF_LARGEST * largest_shard
    return [HostMemory(machine, *map(float, sums[:, machine])) for machine in range(machines)]


def _on_servers(density: float, cluster: costs.Cluster, share: Array, works: Array) -> Array:
    """Rows of a variable on servers that each machine holds in a step, in sizes of the variable."""
    by_host = costs.host_density(density, cluster)
    # Each worker has its rows and their gradient.
    held = 2.0 * density * cluster.workers_per_host
    if cluster.local_aggregation and cluster.workers_per_host > 1:
        held += 2.0 * by_host
    # An owner has what all hosts push, and the sum of that.
    taken = cluster.hosts * by_host + costs.union_density(density, cluster.workers)
    return held * works + taken * share


def _gathered(density: float, cluster: costs.Cluster) -> float:
    """Rows of a variable that a worker holds where rows are gathered, in sizes of the variable."""
    # Its own gradient, that of all, and the sum of that.
    return density * (1 + cluster.workers) + costs.union_density(density, cluster.workers)


def uncounted(plan: PlannedModel) -> List[str]:
    """What `of_hosts` leaves out, in words: a list of sentences."""
    of_unknown_density, of_unknown_slots = [], []
    for variable in plan.variables:
        if variable.kind == SPARSE and variable.density is None:
            of_unknown_density.append(variable.name)
        if variable.update is None or variable.update.slots is None:
            of_unknown_slots.append(variable.name)
    sentences = ['TensorFlow itself, activations and data are not counted']
    if of_unknown_density:
        sentences.append(
            'nor are rows of %s, whose density is not known' % _names(of_unknown_density)
        )
    if of_unknown_slots:
        sentences.append("nor are the optimizer's slots, which are not known")
    return sentences


def _names(names: Sequence[str]) -> str:
    return ', '.join(names) if len(names) < 4 else '%s and %d more' % (names[0], len(names) - 1)


def in_words(machines: Iterable[int], hosts: int) -> str:
    """The names of machines, given their numbers and the number of hosts that run workers."""
    workers = [machine for machine in machines if machine < hosts]
    servers = [machine - hosts for machine in machines if machine >= hosts]
    names = [('host', workers), ('server machine', servers)]
    return ', '.join(numbered(noun, numbers) for noun, numbers in names if numbers)


class Alike(NamedTuple):
    """Machines that need as much memory: their numbers, and the `HostMemory` of the first."""

    machines: Tuple[int, ...]
    memory: HostMemory

    def words(self, hosts: int) -> str:
        """Their names, given the number of hosts that run workers."""
        return in_words(self.machines, hosts)


def alike(hosts: Iterable[HostMemory]) -> List[Alike]:
    """`HostMemory`s that read the same, together: a list of `Alike`, the largest first."""
    found: Dict[Tuple[str, ...], List[HostMemory]] = {}
    for host in hosts:
        found.setdefault(tuple(map(size_in_words, host[1:])), []).append(host)
    groups = [Alike(tuple(host.machine for host in group), group[0]) for group in found.values()]
    return sorted(groups, key=lambda group: -group.memory.total)


def too_large(hosts: Iterable[HostMemory], limit: Optional[float]) -> List[HostMemory]:
    """Those `HostMemory`s that need more bytes than a host has; none if that is `None`."""
    return [host for host in hosts if limit is not None and host.total > limit]


def unfit_in_words(unfit: Sequence[HostMemory], hosts: int, limit: float) -> str:
    """A sentence about `HostMemory`s that are `too_large`, given the number of workers' hosts."""
    return 'It does not fit: %s would need %s of memory, and a host has %s.' % (
        in_words([host.machine for host in unfit], hosts),
        size_in_words(max(host.total for host in unfit)),
        size_in_words(limit),
    )
