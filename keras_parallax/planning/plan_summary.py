# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan as a table for people, at most `verdict.COLUMNS` wide."""

import textwrap
from typing import List, Optional, Sequence

from tabulate import tabulate

from keras_parallax.planning import classify as rules
from keras_parallax.planning import costs, memory, predict
from keras_parallax.planning.plan_interface import PlanInterface
from keras_parallax.planning.planned_variables import PlannedVariable
from keras_parallax.planning.row_fill import fill_lines
from keras_parallax.planning.units import (
    bandwidth_in_words,
    counted,
    seconds_in_words,
    shortened,
    size_in_words,
)
from keras_parallax.planning.verdict import COLUMNS

#: Longer names of variables are shortened.
_LONGEST_NAME = 40

#: Where a place and a reason are broken into lines: so many columns at most, and at least.
_LONGEST_PLACE, _SHORTEST = 42, 18

#: tabulate makes a column so much wider than its header.
_BESIDE_HEADERS = 2

#: Of more servers than these, only the extremes are shown; `Plan.as_data` has them all.
_MOST_SERVERS = 16

_TOTALS = (
    (predict.PLAN, 'this plan'),
    (predict.ALLGATHER, 'tables by allgather'),
    (predict.ALLREDUCE, 'tables by dense allreduce'),
    (predict.FLOOR, 'floor'),
)


def format_summary(
    plan: PlanInterface, bandwidth: Optional[float] = None, host_memory: Optional[float] = None
) -> str:
    """A plan as text of several lines.

    Args:
        plan: the `Plan`.
        bandwidth: of a host's link, in bytes per second; that of the plan's cluster if `None`.
        host_memory: bytes of memory that a host has, `None` if it is not known.
    """
    prediction = plan.predict(bandwidth)
    lines = ['Architecture: %s' % architecture_in_words(plan)]
    lines.extend(filter(None, [plan.verdict(bandwidth)]))
    lines.append(_variables(plan))
    for kind in (rules.DENSE, rules.SPARSE):
        of_kind = [variable for variable in plan.variables if variable.kind == kind]
        size = size_in_words(sum(variable.stored_bytes for variable in of_kind))
        lines.append('%s: %s, %s' % (kind.capitalize(), counted(len(of_kind), 'variable'), size))
    if prediction is not None:
        lines.append(_exchanges(plan, prediction))
        lines.extend(_totals(plan, prediction, bandwidth))
        if any(variable.shards for variable in plan.variables):
            lines.extend(_servers(prediction.server_loads))
    lines.extend(_host_memory(plan, host_memory))
    lines.extend(update_lines(plan))
    lines.extend(_wide_lines(plan))
    lines.extend(fill_lines(plan))
    return '\n'.join(_fit(line.rstrip()) for line in '\n'.join(lines).splitlines())


def _fit(line: str) -> str:
    """A line, broken into several if it is wider than `COLUMNS`; a table's never is."""
    if len(line) <= COLUMNS:
        return line
    indent = ' ' * (len(line) - len(line.lstrip()))
    return '\n'.join(
        textwrap.wrap(line, COLUMNS, subsequent_indent=indent + '  ', break_on_hyphens=False)
    )


def architecture_in_words(plan: PlanInterface) -> str:
    """What a plan's architecture is, and why if it is not the one that was asked for."""
    if plan.architecture == plan.requested:
        return plan.architecture
    causes = {
        'allreduce': 'no variable is sparse',
        'ps': 'no variable is dense',
        'hybrid': 'chosen by cost',
    }
    cause = plan.trials.in_words() if plan.trials else causes[plan.architecture]
    return '%s (%s; %r was asked for)' % (plan.architecture, cause, plan.requested)


def _variables(plan: PlanInterface) -> str:
    """What each variable is, where it is, and why."""
    headers = ['variable', 'shape', 'size', 'class', 'place', 'reason']
    rows = [
        [
            shortened(variable.name, _LONGEST_NAME),
            ' x '.join(map(str, variable.shape)) or 'scalar',
            size_in_words(variable.stored_bytes),
            variable.kind,
        ]
        for variable in plan.variables
    ]
    widths = [
        max([len(header) + _BESIDE_HEADERS] + [len(row[column]) for row in rows])
        for column, header in enumerate(headers[:4])
    ]
    # Columns are two blanks apart.
    left = COLUMNS - sum(widths) - 2 * len(widths)
    longest = max([len(variable.place) for variable in plan.variables] + [0])
    place = min(longest, _LONGEST_PLACE, max(_SHORTEST, left - 2 - _SHORTEST)) or 1
    reason = max(_SHORTEST, left - 2 - max(place, len('place') + _BESIDE_HEADERS))
    for row, variable in zip(rows, plan.variables):
        row += [textwrap.fill(variable.place, place), textwrap.fill(variable.reason, reason)]
    return tabulate(rows, headers, tablefmt='simple', disable_numparse=True)


def _exchanges(plan: PlanInterface, prediction: predict.Prediction) -> str:
    """What a host sends for each variable in a step, as planned and by Horovod's collectives."""
    rows = [
        [shortened(variable.name, _LONGEST_NAME), _density(variable)]
        + list(map(_size_if_known, prediction.variables[variable.name]))
        for variable in plan.variables
    ]
    headers = ['sent in a step for', 'density', 'as planned', 'by allgather', 'by allreduce']
    return tabulate(rows, headers, tablefmt='simple', disable_numparse=True)


def cluster_in_words(cluster: costs.Cluster) -> str:
    """What hosts a `Cluster` has: `'8 hosts x 1 worker'`, and how often they exchange."""
    hosts, workers = cluster.hosts, cluster.workers_per_host
    words = '%s x %s' % (counted(hosts, 'host'), counted(workers, 'worker'))
    if cluster.accumulate_steps > 1:
        words += ', gradients of %d batches at once' % cluster.accumulate_steps
    return words + (', counted as if each were a host' if hosts == 1 < workers else '')


def _totals(
    plan: PlanInterface, prediction: predict.Prediction, bandwidth: Optional[float]
) -> List[str]:
    rows, cluster = [], plan.cluster or costs.Cluster()
    for name, words in _TOTALS:
        total = prediction.totals[name]
        quantities = [
            size_in_words(total.sent),
            size_in_words(total.busiest.sent),
            size_in_words(total.busiest.received),
            seconds_in_words(total.seconds),
        ]
        if prediction.unknown and name != predict.ALLREDUCE:
            quantities = ['>= ' + quantity for quantity in quantities]
        rows.append([words] + quantities)
    headers = ('', 'sent, mean', 'busiest sends', 'and receives', 'network time')
    lines = [
        'A step, for each host (%s, %s):'
        % (cluster_in_words(cluster), bandwidth_in_words(bandwidth or cluster.bandwidth)),
        tabulate(rows, headers, tablefmt='simple', disable_numparse=True),
    ]
    lines.extend(_saved(prediction))
    if prediction.message_seconds:
        shards = sum(len(variable.shards) for variable in plan.variables)
        lines.append(
            'Messages to %s: about %s besides (a rough estimate)'
            % (counted(shards, 'shard'), seconds_in_words(prediction.message_seconds))
        )
    if prediction.unknown:
        lines.append(
            'Not counted, because their density is not known: %s. A job with servers measures it '
            'in its first steps; or give it as density={%r: ...}.'
            % (', '.join(prediction.unknown), prediction.unknown[0])
        )
    return lines


def _saved(prediction: predict.Prediction) -> List[str]:
    """What the plan saves against Horovod alone: a line, none if a density is unknown."""
    planned = prediction.totals[predict.PLAN].sent
    if prediction.unknown or not planned:
        return []
    saved = []
    for name, words in ((predict.ALLGATHER, 'allgather'), (predict.ALLREDUCE, 'dense allreduce')):
        other = prediction.totals[name].sent
        # Bytes that a host sends are the same up to rounding where nothing is a table.
        size = size_in_words(other - planned) if round(other) > round(planned) else 'nothing'
        percent = round(100 - 100 * planned / other)  # An integer, which has no -0.
        saved.append('%s against tables by %s (%d%%)' % (size, words, percent))
    return ['Saved: ' + ', '.join(saved)]


def _servers(loads: Sequence[predict.ServerLoad]) -> List[str]:
    if len(loads) > _MOST_SERVERS:
        sizes = [load.bytes for load in loads]
        busiest = max(loads, key=lambda load: load.traffic_share or 0.0)
        return [
            '%s: %s to %s each; the busiest, server %d, has %s of the row traffic'
            % (
                counted(len(loads), 'server'),
                size_in_words(min(sizes)),
                size_in_words(max(sizes)),
                busiest.server,
                _percent(busiest.traffic_share),
            )
        ]
    rows = [
        (
            'server %d' % load.server,
            size_in_words(load.bytes),
            _percent(load.bytes_share),
            _percent(load.traffic_share),
        )
        for load in loads
    ]
    headers = ('', 'bytes', 'of all bytes', 'of row traffic')
    return [tabulate(rows, headers, tablefmt='simple', disable_numparse=True)]


def _host_memory(plan: PlanInterface, limit: Optional[float]) -> List[str]:
    hosts, cluster = plan.memory(), plan.cluster or costs.Cluster()
    rows = [
        [group.words(cluster.hosts)]
        + [size_in_words(part) for part in group.memory[1:] + (group.memory.total,)]
        for group in memory.alike(hosts)[:_MOST_SERVERS]
    ]
    headers = ('', 'tables', 'slots', 'replicas', 'gradients', 'rows', 'together')
    lines = [
        'Memory (%s):' % '; '.join(memory.uncounted(plan)),
        tabulate(rows, headers, tablefmt='simple', disable_numparse=True),
    ]
    unfit = memory.too_large(hosts, limit)
    if unfit and limit is not None:
        lines.append(memory.unfit_in_words(unfit, cluster.hosts, limit))
    return lines


def update_lines(plan: PlanInterface) -> List[str]:
    """How the tables of a plan are updated, and what that costs: lines of text."""
    updates = {
        variable.name: variable.update
        for variable in plan.variables
        if variable.kind == rules.SPARSE and variable.update is not None
    }
    lines = []
    for words in sorted({update.words for update in updates.values()}):
        names = [name for name in updates if updates[name].words == words]
        lines.append('Update of %s: %s' % (', '.join(names), words))
        costly = [name for name in names if updates[name].whole and updates[name].slots is not None]
        if costly:
            lines.append(
                '  which reads and writes %s of memory a step, all servers together%s'
                % (_rewritten(plan, costly, True), _touched_only(plan, costly))
            )
    return lines


def _wide_lines(plan: PlanInterface) -> List[str]:
    """Which tables have rows of another dtype than was asked for: lines of text."""
    wide = [variable for variable in plan.variables if variable.row_dtype and not variable.shards]
    if not wide:
        return []
    return [
        'row_dtype=%r is for rows on servers: every worker holds %s, as %s'
        % (wide[0].row_dtype, ', '.join(variable.name for variable in wide), wide[0].dtype)
    ]


def _touched_only(plan: PlanInterface, names: Sequence[str]) -> str:
    if any(plan[name].density is None for name in names):
        return ''
    return '; for touched rows only it would be %s' % _rewritten(plan, names, False)


def _rewritten(plan: PlanInterface, names: Sequence[str], whole: bool) -> str:
    cluster = plan.cluster or costs.Cluster()
    size = 0.0
    for name in names:
        variable = plan[name]
        slots = variable.update.slots if variable.update else None
        size += costs.update_bytes(
            variable.bytes, slots or 0.0, variable.density or 0.0, cluster, whole
        )
    return size_in_words(size)


def _density(variable: PlannedVariable) -> str:
    if variable.density is None:
        return '?'
    return '%.3g%s' % (variable.density, ' measured' if variable.measured else '')


def _size_if_known(size: Optional[float]) -> str:
    return '?' if size is None else size_in_words(size)


def _percent(share: Optional[float]) -> str:
    return '?' if share is None else '%.3g %%' % (100 * share)
