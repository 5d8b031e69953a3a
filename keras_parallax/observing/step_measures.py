# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What steps of a job have come to: numbers of one step, from what each worker has counted.

Pure arithmetic. Bytes follow from the rows that were counted as they do in `costs` from densities:
a row that lies on another machine is asked for by its number, comes, and its gradient goes with the
number once more.
"""

import math
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from keras_parallax.framework_types import Array
from keras_parallax.planning.costs import Traffic

#: Moments of a step, in order: its rows are there, this worker has its gradients, has pushed those
#: of rows, has the sums of the dense ones.
MARKS = ('pulled', 'computed', 'pushed', 'reduced')


#: The metrics by group, which is the unit: names are `GROUP/NAME`, and `GROUP/NAME/TABLE`.
GROUPS = {
    'rows': ('touched', 'used', 'given', 'evicted'),
    'ids': ('left_out',),
    'bytes': ('rows_sent', 'rows_received', 'dense_sent', 'dense_received'),
    'seconds': (
        'step',
        'pull',
        'compute',
        'push',
        'allreduce',
        'barrier',
        'between',
        'slowest_rank_behind',
    ),
    'job': ('examples_per_second', 'slowest_rank', 'steps_ahead'),
}

#: What progress bars show of them.
IN_BARS = ('seconds/step', 'job/examples_per_second')


def is_in_bars(name: str) -> bool:
    """Whether a progress bar shows a metric: of those of steps, `IN_BARS`; all others.

    Example:
        ```python
        >>> [is_in_bars(name) for name in ('loss', 'seconds/step', 'bytes/rows_sent/words')]
        [True, True, False]
        ```
    """
    group, _, rest = name.partition('/')
    return rest.partition('/')[0] not in GROUPS.get(group, ()) or name in IN_BARS


class Route(NamedTuple):
    """Which way rows go of a table, or of several tables that travel as one.

    Attributes:
        tables: dict from their names to numbers in a row; rows are shared out in bytes by these.
        machines: the number of the machine of each shard; empty if all workers gather all rows.
        id_bytes: bytes of a row's number, for each shard, or once.
        pulled_bytes: bytes of a row as it is pulled.
        pushed_bytes: bytes of its gradient as it is pushed, or gathered.
    """

    tables: Dict[str, int]
    machines: Tuple[int, ...]
    id_bytes: Tuple[int, ...]
    pulled_bytes: int
    pushed_bytes: int

    @property
    def counts(self) -> int:
        """How many numbers are counted: rows pulled from each shard, rows pushed to each."""
        return 2 * len(self.machines) or 1


class Measured(NamedTuple):
    """What a worker has counted and summed up over some steps.

    Attributes:
        steps: number of steps.
        begun, ended: sums over the steps of the moments when they began and ended, in seconds since
            a moment of the worker's own.
        marks: the same of `MARKS`, an array.
        touched: different rows of each table, an array.
        rows: for each `Route` an array of its `counts`.
        examples: number of samples.
        seconds: how long it has been.
    """

    steps: float
    begun: float
    ended: float
    marks: np.ndarray
    touched: np.ndarray
    rows: List[np.ndarray]
    examples: float
    seconds: float


def measured(vector: Array, routes: Sequence[Route], tables: int) -> Measured:
    """The `Measured` that a vector of numbers stands for: fields in order, one after the other.

    Args:
        vector: an array.
        routes: the `Route`s.
        tables: number of tables.
    """
    sizes = [1, 1, 1, len(MARKS), tables] + [route.counts for route in routes] + [1, 1]
    parts = np.split(np.asarray(vector, np.float64), np.cumsum(sizes)[:-1])
    steps, begun, ended, marks, touched, *rows, examples, seconds = parts
    times = steps.item(), begun.item(), ended.item()
    return Measured(*times, marks, touched, rows, examples.item(), seconds.item())


class Times(NamedTuple):
    """How long a step takes a worker, in seconds.

    Attributes:
        step: all of it.
        pull: until its rows are there.
        compute: from then on until it has its gradients.
        push: from then on until those of rows are in the owners' queues.
        allreduce: meanwhile, until the sums of dense gradients are there.
        barrier: from then on until all owners have updated their shards.
        between: from the end of a step to the begin of the next.
    """

    step: float
    pull: float
    compute: float
    push: float
    allreduce: float
    barrier: float
    between: float

    @property
    def busy(self) -> float:
        """How long a worker takes before others wait for it."""
        return self.between + self.pull + self.compute


def times_of(rank: Measured) -> Times:
    """The `Times` of a worker's `Measured`.

    Example:
        ```python
        >>> marks = np.array([0.1, 0.4, 0.5, 0.7])
        >>> times = times_of(Measured(1, 0.0, 0.9, marks, [], [], 32, 1.0))
        >>> round(times.compute, 3), round(times.barrier, 3), round(times.between, 3)
        (0.3, 0.2, 0.1)
        ```
    """
    steps = rank.steps or 1
    begun, ended = rank.begun / steps, rank.ended / steps
    pulled, computed, pushed, reduced = np.asarray(rank.marks) / steps
    times = Times(
        step=ended - begun,
        pull=pulled - begun,
        compute=computed - pulled,
        push=pushed - computed,
        allreduce=reduced - computed,
        barrier=ended - max(pushed, reduced),
        between=rank.seconds / steps - (ended - begun),
    )
    # Moments that fall together are noted in any order, some microseconds apart.
    return Times(*[max(0.0, float(seconds)) for seconds in times])


def row_traffic(
    route: Route, rows: Sequence[Array], homes: Sequence[int], machines: int
) -> Traffic:
    """What rows of a `Route` come to in bytes.

    Args:
        route: the `Route`.
        rows: for each worker an array of its `counts`.
        homes: the number of each worker's machine.
        machines: how many machines there are.

    Returns:
        A `Traffic` of arrays, with a number for each machine.
    """
    sent, received = np.zeros(machines), np.zeros(machines)
    if not route.machines:
        # Around a ring of the workers, past all but one: `costs.allgather`.
        passed = sum(of_rank[0] for of_rank in rows) * (route.pushed_bytes + route.id_bytes[0])
        passed *= (len(rows) - 1.0) / len(rows)
        hosts = len(set(homes))
        sent[:hosts] = received[:hosts] = passed if hosts > 1 else 0.0
        return Traffic(sent, received)
    for home, of_rank in zip(homes, rows):
        for machine, ids, pulled, pushed in zip(route.machines, route.id_bytes, *_halves(of_rank)):
            if machine == home:
                continue
            out = pulled * ids + pushed * (ids + route.pushed_bytes)
            back = pulled * route.pulled_bytes
            sent += _at(home, out, machines) + _at(machine, back, machines)
            received += _at(home, back, machines) + _at(machine, out, machines)
    return Traffic(sent, received)


def _halves(counts: Array) -> Tuple[Array, Array]:
    return counts[: len(counts) // 2], counts[len(counts) // 2 :]


def _at(place: int, value: float, size: int) -> Array:
    return np.where(np.arange(size) == place, value, 0.0)


class Setting(NamedTuple):
    """What does not change from step to step.

    Attributes:
        routes: the `Route`s.
        tables: names of the tables, in the order of `Measured.touched`.
        homes: the number of each worker's machine; those of workers come before those of servers
            alone.
        machines: how many machines there are.
        dense: the `Traffic` of a host for its dense variables.
    """

    routes: List[Route]
    tables: List[str]
    homes: List[int]
    machines: int
    dense: Traffic = Traffic()


def metrics(
    setting: Setting, ranks: Sequence[Measured], per_table: bool = False
) -> Dict[str, float]:
    """Numbers of a step as callbacks log them, a dict from names to floats.

    Bytes are the mean over the hosts of workers, times and rows the mean over the workers.

    Args:
        setting: the `Setting`.
        ranks: the `Measured` of each worker.
        per_table: whether there are numbers of each table, too.
    """
    steps = ranks[0].steps
    if not steps:
        return {}
    hosts = len(set(setting.homes))
    of_routes = [
        row_traffic(
            route,
            [of_rank.rows[number] / steps for of_rank in ranks],
            setting.homes,
            setting.machines,
        )
        for number, route in enumerate(setting.routes)
    ]
    means = [Traffic(*[float(way[:hosts].mean()) for way in traffic]) for traffic in of_routes]
    touched = np.mean([of_rank.touched for of_rank in ranks], axis=0) / steps
    times = [times_of(of_rank) for of_rank in ranks]
    slowest, by = slowest_of([of_rank.busy for of_rank in times])
    logs = {
        'rows/touched': float(np.sum(touched)),
        'bytes/rows_sent': sum(traffic.sent for traffic in means),
        'bytes/rows_received': sum(traffic.received for traffic in means),
        'bytes/dense_sent': float(setting.dense.sent),
        'bytes/dense_received': float(setting.dense.received),
        'job/examples_per_second': sum(of_rank.examples for of_rank in ranks)
        / max(1e-9, max(of_rank.seconds for of_rank in ranks)),
    }
    for name in Times._fields:
        logs['seconds/' + name] = float(np.mean([getattr(one, name) for one in times]))
    logs['job/slowest_rank'], logs['seconds/slowest_rank_behind'] = float(slowest), by
    if per_table:
        logs.update(_of_tables(setting, touched, means))
    return logs


def _of_tables(setting: Setting, touched: Array, means: Sequence[Traffic]) -> Dict[str, float]:
    rows, logs = dict(zip(setting.tables, touched)), {}
    for route, traffic in zip(setting.routes, means):
        parts = {name: rows[name] * width for name, width in route.tables.items()}
        whole = sum(parts.values()) or 1.0
        for name, part in parts.items():
            logs['rows/touched/' + name] = float(rows[name])
            logs['bytes/rows_sent/' + name] = float(traffic.sent * part / whole)
            logs['bytes/rows_received/' + name] = float(traffic.received * part / whole)
    return logs


def slowest_of(seconds: Sequence[float]) -> Tuple[int, float]:
    """Which worker takes longest, and how much longer than the others in the mean.

    Example:
        ```python
        >>> slowest_of([1.0, 4.0, 2.0])
        (1, 2.5)
        ```
    """
    slowest = int(np.argmax(seconds))
    others = [value for rank, value in enumerate(seconds) if rank != slowest]
    return slowest, float(seconds[slowest] - np.mean(others)) if others else 0.0


def steps_until_look(cost: float, step_seconds: float, share: float) -> int:
    """After how many steps to look again, so that looking takes a share of the time.

    Args:
        cost: seconds that a look takes.
        step_seconds: how long a step takes.
        share: the share, of all time.

    Example:
        ```python
        >>> steps_until_look(0.002, 0.02, 0.005)
        20
        ```
    """
    return max(1, math.ceil(round(cost / max(1e-6, share * step_seconds), 6)))
