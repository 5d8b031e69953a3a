# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step costs: bytes that a host sends and receives for a variable, by kind of exchange.

Pure arithmetic. The source is the cost model of Parallax (Kim et al., EuroSys 2019, arXiv
1808.02621, its table of bytes that a machine transfers in a step): `w` bytes of variable, a
fraction `d` of it touched by a worker's batch (the density, `alpha` in the paper), `N` machines.
Parallax counts sent and received together, and one worker a machine; here they are apart, row
numbers are counted too, and a host may run several workers. Only what crosses the network counts,
so one host alone sends nothing.
"""

from typing import Any, Iterable, NamedTuple, NoReturn, Optional, Tuple

import numpy as np

from keras_parallax.framework_types import DType

#: The integer types in which row numbers travel, smallest first.
_ID_TYPES = ('uint8', 'uint16', 'int32', 'int64')


#: A number, or an array with one for each of several machines.
Number = Any


class Cluster(NamedTuple):
    """The machines that a job runs on.

    Attributes:
        hosts: number of hosts that run workers.
        workers_per_host: number of workers on each.
        bandwidth: of a host's network link, in bytes per second and direction.
        message_seconds: what a shard more costs in a step beside its bytes: the requests of all
            workers that pull from it and push to it.
        local_aggregation: whether a row that several workers of a host touch crosses the network
            once for all of them.
        dedicated_servers: whether each server has a machine of its own, which runs no worker.
        accumulate_steps: number of batches whose gradients are exchanged at once. Whatever is said
            of a step is then said of a batch, in the mean.
    """

    hosts: int = 1
    workers_per_host: int = 1
    bandwidth: float = 1.25e9
    # An order of magnitude, from the curve published for Parallax's language model
    # (`tests/unit/tuning/test_partition_fit.py`): at 128 x 20 words for each of 48 workers it
    # rises by 1.5 ms a shard of three variables together. `partitions='search'` measures it.
    message_seconds: float = 2e-4
    local_aggregation: bool = True
    dedicated_servers: bool = False
    accumulate_steps: int = 1

    @property
    def workers(self) -> int:
        """Number of workers in the job."""
        return self.hosts * self.workers_per_host

    def machine_of(self, server: int, servers: int) -> int:
        """The number of the machine on which a server runs; workers' hosts come first.

        There are as many servers as workers, as hosts, or as dedicated machines.
        """
        if self.dedicated_servers:
            return self.hosts + server
        return server * self.hosts // servers

    def for_decisions(self) -> 'Cluster':
        """The cluster by which kinds of exchange are compared.

        On one host nothing crosses the network; its workers are then compared as if each were a
        host, because the same bytes go through their sockets.
        """
        if self.hosts > 1:
            return self
        return self._replace(hosts=self.workers_per_host, workers_per_host=1)


class Traffic(NamedTuple):
    """Bytes that one host sends to others, and receives from them, in a step."""

    sent: Number = 0.0
    received: Number = 0.0

    # `tuple.__add__` concatenates.
    def __add__(self, other: 'Traffic') -> 'Traffic':  # type: ignore[override]
        return Traffic(self.sent + other.sent, self.received + other.received)

    def __radd__(self, other: Any) -> NoReturn:
        raise TypeError('Traffic can be added to Traffic only.')


def id_dtype(rows: int) -> str:
    """The smallest integer type in which the numbers of `rows` rows travel, as a dtype's name.

    Example:
        ```python
        >>> id_dtype(256), id_dtype(793471)
        ('uint8', 'int32')
        ```
    """
    return next(name for name in _ID_TYPES if rows - 1 <= np.iinfo(name).max)


def id_bytes_of(rows: int) -> int:
    """Bytes in which the number of one of `rows` rows travels."""
    return np.dtype(id_dtype(rows)).itemsize


class Fp16(NamedTuple):
    """What travels in half precision, as `Compression.fp16`: `gradients`, and pulled rows."""

    gradients: bool = False
    pulls: bool = False

    def row_bytes(
        self, width: int, dtype: DType, stored: Optional[DType] = None
    ) -> Tuple[int, int]:
        """Bytes of a row as it is pulled, and of its gradient as it is pushed.

        It is pulled as servers keep it: as `stored`, if that is another dtype.
        """
        pulled = row_bytes(width, stored or dtype, self.pulls)
        return pulled, row_bytes(width, dtype, self.gradients)


NO_FP16 = Fp16()


def row_bytes(width: int, dtype: DType, fp16: bool = False) -> int:
    """Bytes of a row of `width` values on the network.

    With `fp16` each row travels in half precision, with an exponent, unless that makes it no
    smaller.
    """
    dtype = np.dtype(dtype)
    whole = width * dtype.itemsize
    return min(whole, 2 * (width + 1)) if fp16 and dtype.kind == 'f' else whole


def wire_bytes(size: float, dtype: DType, fp16: bool = False) -> float:
    """Bytes on the network of gradients of `size` bytes in memory: `fp16` makes floats two each."""
    dtype = np.dtype(dtype)
    return size * 2 / dtype.itemsize if fp16 and dtype.kind == 'f' else size


def union_density(density: float, workers: int) -> float:
    """The fraction of a table that several workers touch together, if one touches `density`.

    Assumes that they draw their batches independently and that all rows are alike, in which case it
    is exact. Where some rows are more frequent than others the workers share more of them, so it is
    an upper bound (Jensen's inequality, row by row).
    """
    return 1.0 - (1.0 - density) ** workers


def host_density(density: float, cluster: Cluster) -> float:
    """The fraction of a table that crosses the network for one host.

    With local aggregation that is the union over the host's workers (see `union_density`), without
    it the sum, which may exceed 1.
    """
    if cluster.local_aggregation:
        return union_density(density, cluster.workers_per_host)
    return density * cluster.workers_per_host


def pushed_density(density: float, cluster: Cluster) -> float:
    """The fraction of a table whose gradients a worker sends for a batch, in the mean.

    Of several batches whose gradients are exchanged at once, those of a row are summed before.
    """
    if cluster.accumulate_steps == 1:
        return density
    return union_density(density, cluster.accumulate_steps) / cluster.accumulate_steps


def host_pushes(density: float, cluster: Cluster) -> float:
    """The same of a host, as `host_density` has it for what a host pulls."""
    steps = cluster.accumulate_steps
    return host_density(pushed_density(density, cluster) * steps, cluster) / steps


def servers(
    rows: float,
    row_bytes: float,
    gradient_bytes: float,
    density: float,
    cluster: Cluster,
    id_bytes: float = 0,
    share: Optional[Number] = None,
    works: Number = True,
) -> Traffic:
    """A sparse variable on servers: each touched row is pulled once and pushed once.

    Parallax's row "sparse, PS": `4 d w (N - 1) / N` for both directions together. A host pulls
    and pushes what its batch touches outside its own shards, and serves the same to the others.

    Args:
        rows: number of rows of the table.
        row_bytes: bytes of a row as it is pulled.
        gradient_bytes: bytes of a row's gradient as it is pushed.
        density: the fraction of rows that a worker touches.
        cluster: the `Cluster`.
        id_bytes: bytes of a row's number, which travels with each pull and each push.
        share: the fraction of the table's rows that lie on this host; `1 / N` if `None`. An array
            gives the answers for several hosts, as arrays.
        works: whether the host runs workers; a dedicated server does not. May be an array too.

    Returns:
        The host's `Traffic`.
    """
    share = 1.0 / cluster.hosts if share is None else share
    pulled, pushed = [rows * part(density, cluster) for part in (host_density, host_pushes)]
    # Its own workers' rows do not cross the network.
    away, served = (1.0 - share) * works, share * (cluster.hosts - 1.0 * works)
    back, forth = pulled * row_bytes, pulled * id_bytes + pushed * (id_bytes + gradient_bytes)
    return Traffic(away * forth + served * back, away * back + served * forth)


def dense_servers(
    size: float,
    gradient_size: float,
    cluster: Cluster,
    share: Optional[Number] = None,
    works: Number = True,
) -> Traffic:
    """A dense variable on servers: all of it is pulled and pushed; arguments as of `servers`.

    Parallax's row "dense, PS": `4 w (N - 1) / N` for both directions together.
    """
    return servers(1, size, gradient_size, 1.0, cluster, share=share, works=works)


def allgather(
    rows: float, gradient_bytes: float, density: float, cluster: Cluster, id_bytes: float = 0
) -> Traffic:
    """A sparse variable that every worker holds: everybody gets everybody's rows.

    Parallax's row "sparse, AR": `2 d w (N - 1)` for both directions together. In the ring of
    all workers, each passes on the rows of every other; a host's link carries what its last worker
    passes to the next host. Rows that several workers touch travel once for each of them. Rows that
    a batch names twice are taken to be summed before, as this package does; Horovod itself sends
    them twice, so it sends at least this. Arguments are those of `servers`.
    """
    if cluster.hosts == 1:
        return Traffic()
    pushed = pushed_density(density, cluster) * rows
    passed = (cluster.workers - 1) * pushed * (gradient_bytes + id_bytes)
    return Traffic(passed, passed)


def allreduce(gradient_size: float, cluster: Cluster) -> Traffic:
    """A dense gradient summed in a ring, given its bytes on the network: a host's `Traffic`.

    Parallax's row "dense, AR": `4 w (N - 1) / N` for both directions together. The ring of Gloo and
    of NCCL goes through all workers, host by host, so a host's link carries what one worker sends.
    """
    if cluster.hosts == 1:
        return Traffic()
    passed = 2.0 * gradient_size * (cluster.workers - 1) / cluster.workers
    passed /= cluster.accumulate_steps
    return Traffic(passed, passed)


def floor(
    dense_size: float, tables: Iterable[Tuple[float, float, float, float]], cluster: Cluster
) -> Traffic:
    """The least that a host can send: what predictions and measurements are compared with.

    Each row that a host's batch touches comes once and its gradient goes once, unless its shard is
    on that host, which it is not where servers have machines of their own; dense gradients, of
    `dense_size` bytes, go around a ring of hosts. Row numbers are not counted. For each sparse
    variable, `tables` has `(rows, row_bytes, gradient_bytes, density)`.
    """
    ideal = cluster._replace(local_aggregation=True)
    share = 0.0 if cluster.dedicated_servers else None
    total = allreduce(dense_size, ideal._replace(workers_per_host=1))
    for rows, row_bytes, gradient_bytes, density in tables:
        total += servers(rows, row_bytes, gradient_bytes, density, ideal, share=share)
    return total


def update_bytes(size: float, slots: float, density: float, cluster: Cluster, whole: bool) -> float:
    """Bytes of memory that the owners of a table read and write to update it once, all together.

    The table and its slots of the same size are read once and written once: every row if `whole`,
    otherwise the touched ones.
    """
    steps = cluster.accumulate_steps
    touched = 1.0 if whole else union_density(density, cluster.workers * steps)
    return 2 * (1 + slots) * size * touched / steps


def step_seconds(traffic: Traffic, bandwidth: float) -> float:
    """Time in which a link, of so many bytes per second and direction, carries a `Traffic`."""
    # Links carry both directions at once.
    return max(traffic.sent, traffic.received) / bandwidth
