# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step would cost on more hosts, by each architecture. Pure functions."""

from typing import Dict, List, NamedTuple, Optional

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures, costs, predict
from keras_parallax.planning.plan_interface import PlanInterface

#: Beside the architectures: every table as a dense variable.
DENSE = 'dense'

#: No curve is for more workers than these, unless the plan itself is.
_MOST_WORKERS = 1024


class Point(NamedTuple):
    """A step on so many hosts.

    Attributes:
        hosts: number of hosts that run workers.
        sent: bytes that one of them sends, in the mean.
        seconds: time of the busiest link.
        message_seconds: what messages to shards cost beside that, a rough estimate.
    """

    hosts: int
    sent: float
    seconds: float
    message_seconds: float

    @property
    def step(self) -> float:
        """Both together: what the cost model compares."""
        return self.seconds + self.message_seconds


def host_counts(cluster: costs.Cluster) -> List[int]:
    """The numbers of hosts to look at: powers of two to 64 or twice the cluster's, and its own.

    Example:
        ```python
        >>> host_counts(costs.Cluster(hosts=24))
        [2, 4, 8, 16, 24, 32, 64]
        ```
    """
    most = max(2, min(max(64, 2 * cluster.hosts), _MOST_WORKERS // cluster.workers_per_host))
    counts = {2**power for power in range(1, most.bit_length())}
    return sorted(counts | ({cluster.hosts} - {1}))


def curves(plan: PlanInterface, bandwidth: Optional[float] = None) -> Dict[str, List[Point]]:
    """The predicted step of a plan's model against the number of hosts, by each architecture.

    Args:
        plan: a `Plan`, whose tables have known densities.
        bandwidth: of a host's link, in bytes per second; the cluster's if `None`.

    Returns:
        A dict from `'hybrid'`, `'ps'`, `'allreduce'` and `'dense'` to lists of `Point`s, one for
        each of `host_counts`. With `'allreduce'`, tables are gathered or reduced, whichever is
        cheaper; with `'dense'`, all are reduced. What the model's optimizer does not allow is left
        out. It is empty where a density is not known.
    """
    cluster = plan.cluster or costs.Cluster()
    found: Dict[str, List[Point]] = {}
    for hosts in host_counts(cluster):
        points = points_on(plan, hosts, bandwidth)
        if not points:
            return {}
        for name, point in points.items():
            found.setdefault(name, []).append(point)
    return found


def points_on(
    plan: PlanInterface, hosts: int, bandwidth: Optional[float] = None
) -> Dict[str, Point]:
    """The `Point` of each architecture on so many hosts; arguments and names as of `curves`."""
    cluster = (plan.cluster or costs.Cluster())._replace(hosts=hosts)
    if bandwidth is not None:
        cluster = cluster._replace(bandwidth=bandwidth)
    found: Dict[str, Point] = {}
    for architecture in (architectures.HYBRID, architectures.PS, architectures.ALLREDUCE):
        try:
            prediction = plan.for_cluster(cluster, architecture).predict()
        except PlanError:
            continue
        if prediction is None or prediction.unknown:
            return {}
        exchanges = {architecture: (predict.PLAN, prediction.message_seconds)}
        if architecture == architectures.ALLREDUCE:
            exchanges[DENSE] = predict.ALLREDUCE, 0.0
        for name, (exchange, messages) in exchanges.items():
            total = prediction.totals[exchange]
            found[name] = Point(hosts, total.sent, total.seconds, messages)
    return found
