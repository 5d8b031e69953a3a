# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which architecture to use from how many hosts on, in one sentence. Pure functions."""

from typing import Dict, List, Optional, Tuple

from keras_parallax.planning import architectures, costs, scaling
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan_interface import PlanInterface
from keras_parallax.planning.units import bandwidth_in_words, shortened

#: The architectures in the order in which they are preferred.
_PREFERRED = (architectures.HYBRID, architectures.ALLREDUCE, architectures.PS)

#: Another architecture is not preferred unless its step is shorter by more than this fraction: the
#: cost model is no more exact.
_MARGIN = 0.05

#: A plan of so many columns fits every screen.
COLUMNS = 120

#: How far the names of a model and of a table are shortened, so that the sentence fits.
_SHORTEST_NAME, _LONGEST_TABLE = 12, 30


def verdict(plan: PlanInterface, bandwidth: Optional[float] = None) -> Optional[str]:
    """The sentence, of at most `COLUMNS` characters, or `None` if the plan is for one worker.

    Args:
        plan: a `Plan`.
        bandwidth: of a host's link, in bytes per second; that of the plan's cluster if `None`.

    Example:
        ```python
        >>> from keras_parallax.planning.classify import VariableUse
        >>> from keras_parallax.planning.costs import Cluster
        >>> from keras_parallax.planning.plan import make_plan
        >>> words = VariableUse('words', (10000, 16), 'float32', lookups=1)
        >>> plan = make_plan([words], 2, density={'words': 0.02}, cluster=Cluster(2))
        >>> print(verdict(plan._replace(model='small')))
        small: allreduce is fastest on 2 to 64 hosts at 10 Gbit/s, as predicted.
        ```
    """
    cluster = plan.cluster
    if cluster is None or plan.predict(bandwidth) is None:
        return None
    words = _in_words(plan, cluster, bandwidth)
    name = plan.model or 'This model'
    return '%s: %s' % (shortened(name, max(_SHORTEST_NAME, COLUMNS - len(words) - 2)), words)


def _in_words(plan: PlanInterface, cluster: costs.Cluster, bandwidth: Optional[float]) -> str:
    tables = [variable for variable in plan.variables if variable.kind == SPARSE]
    unknown = [variable.name for variable in tables if variable.density is None]
    if unknown:
        table = shortened(unknown[0], _LONGEST_TABLE)
        return 'which architecture is fastest depends on the density of %s, not yet known.' % table
    if plan.for_cluster(cluster, architectures.HYBRID).architecture == architectures.ALLREDUCE:
        return 'allreduce is fastest on any number of hosts, because no variable is sparse.'
    rate = bandwidth_in_words(bandwidth or cluster.bandwidth)
    ranges, last = fastest(plan, bandwidth), scaling.host_counts(cluster)[-1]
    if not ranges:
        return 'nothing crosses the network, so every architecture is equally fast.'
    if len(ranges) == 1:
        words = ranges[0][1], last, rate
        return '%s is fastest on 2 to %d hosts at %s, as predicted.' % words
    first = '%s is fastest below %d hosts at %s' % (ranges[0][1], ranges[1][0], rate)
    further = ['%s from %d' % (architecture, hosts) for hosts, architecture in ranges[1:]]
    return '%s, %s on (predicted to %d).' % (first, ', '.join(further), last)


def fastest(plan: PlanInterface, bandwidth: Optional[float] = None) -> List[Tuple[int, str]]:
    """From which number of hosts on which architecture has the shortest predicted step.

    Args:
        plan: a `Plan` of a cluster, whose tables have known densities.
        bandwidth: as in `verdict`.

    Returns:
        A list of pairs of a number of hosts, growing from 2, and an architecture; empty if nothing
        crosses the network.
    """
    counts = scaling.host_counts(plan.cluster or costs.Cluster())
    points = [scaling.points_on(plan, hosts, bandwidth) for hosts in counts]
    if not any(point.step for of_hosts in points for point in of_hosts.values()):
        return []
    ranges = [(counts[0], _best(points[0]))]
    for below, hosts, of_hosts in zip(counts, counts[1:], points[1:]):
        if _best(of_hosts) != ranges[-1][1]:
            at = _boundary(plan, bandwidth, below, hosts, ranges[-1][1])
            ranges.append((at, _best(of_hosts)))
    return ranges


def _best(points: Dict[str, scaling.Point]) -> str:
    """The architecture of the shortest step, or one that is preferred and hardly longer."""
    steps = {name: points[name].step for name in _PREFERRED if name in points}
    limit = min(steps.values()) * (1 + _MARGIN)
    return next(name for name, step in steps.items() if step <= limit)


def _boundary(
    plan: PlanInterface, bandwidth: Optional[float], below: int, hosts: int, former: str
) -> int:
    """The least number of hosts above `below`, up to `hosts`, on which `former` is not the best."""
    while hosts - below > 1:
        middle = (below + hosts) // 2
        if _best(scaling.points_on(plan, middle, bandwidth)) == former:
            below = middle
        else:
            hosts = middle
    return hosts
