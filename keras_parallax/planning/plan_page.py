# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan as a page to look at, in one piece. Pure functions; the template stands beside them."""

import html
from typing import Any, Dict, List, Optional, Sequence, Tuple

from keras_parallax.errors import PlanError
from keras_parallax.html_templates import template_beside
from keras_parallax.planning import charts, costs, memory, scaling
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan_interface import PlanInterface
from keras_parallax.planning.plan_summary import (
    architecture_in_words,
    cluster_in_words,
    update_lines,
)
from keras_parallax.planning.planned_variables import PlannedVariable
from keras_parallax.planning.predict import Prediction
from keras_parallax.planning.units import (
    bandwidth_in_words,
    counted,
    seconds_in_words,
    size_in_words,
)

#: Variables beyond the largest ones are folded away.
_OPEN_ROWS = 12

#: As many tables have a colour of their own in the picture of the servers.
_COLOURS = 6

#: Of more servers, the fullest are drawn.
_MOST_SERVERS = 48

_HEIGHT_OF_FRAME = 720

#: A bar of the whole width, in the units of the template's pictures of bars.
_BAR = 1000.0

_PARTS = (
    ('tables', 'shards of tables'),
    ('slots', "the optimizer's slots of them"),
    ('replicas', 'variables that each worker holds, with slots'),
    ('gradients', 'gradients of whole variables and shards'),
    ('rows', 'rows of a step and their gradients'),
)

_WORDS = {
    'hybrid': 'tables on servers, the rest by allreduce',
    'ps': 'all on servers',
    'allreduce': 'no servers: tables gathered or reduced, whichever is cheaper',
    'dense': 'no servers: every table reduced as a dense variable',
}


def to_html(
    plan: PlanInterface, bandwidth: Optional[float] = None, host_memory: Optional[float] = None
) -> str:
    """The page of a plan; arguments as of `Plan.to_html`."""
    template = template_beside(
        __file__, PlanError, size=_size, seconds=seconds_in_words, counted=counted
    )
    return template.render(content_of(plan, bandwidth, host_memory))


def in_frame(page: str) -> str:
    """A page as an element of another one."""
    return (
        '<iframe title="Plan" style="width: 100%%; height: %dpx; border: 0" srcdoc="%s"></iframe>'
        % (_HEIGHT_OF_FRAME, html.escape(page))
    )


def content_of(
    plan: PlanInterface, bandwidth: Optional[float] = None, host_memory: Optional[float] = None
) -> Dict[str, Any]:
    """What the template shows: a dict."""
    prediction = plan.predict(bandwidth)
    cluster = plan.cluster or costs.Cluster()
    hosts = plan.memory()
    unfit = memory.too_large(hosts, host_memory)
    variables = sorted(plan.variables, key=lambda variable: -variable.stored_bytes)
    return {
        'title': architecture_in_words(plan),
        'model': plan.model,
        'verdict': plan.verdict(bandwidth),
        'cluster': cluster_in_words(cluster),
        'bandwidth': bandwidth_in_words(bandwidth or cluster.bandwidth),
        'figures': _figures(plan, prediction, hosts),
        'unfit': memory.unfit_in_words(unfit, cluster.hosts, host_memory)
        if unfit and host_memory is not None
        else '',
        'variables': [_row(variable, variables[0], prediction) for variable in variables],
        'open_rows': _OPEN_ROWS,
        'prediction': prediction,
        'servers': _servers(plan, variables, prediction),
        'curves': _curves(plan, bandwidth, prediction),
        'memory': _memory(hosts, cluster, host_memory),
        'uncounted': '; '.join(memory.uncounted(plan)),
        # A line that belongs to the one before is set in.
        'updates': '\n'.join(update_lines(plan)).replace('\n  ', ' ').splitlines(),
    }


def _size(count: Optional[float]) -> str:
    return '?' if count is None else size_in_words(count)


def _figures(
    plan: PlanInterface, prediction: Optional[Prediction], hosts: Sequence[memory.HostMemory]
) -> List[Tuple[str, str, str]]:
    """The numbers at the top: triples of a number, what it is, and more about it."""
    tables = [variable for variable in plan.variables if variable.kind == SPARSE]
    dense = [variable for variable in plan.variables if variable.kind != SPARSE]
    figures = [
        (_size(sum(each.stored_bytes for each in tables)), counted(len(tables), 'table'), 'sparse'),
        (_size(sum(each.stored_bytes for each in dense)), counted(len(dense), 'variable'), 'dense'),
    ]
    if prediction is not None:
        total, least = prediction.totals['plan'], '\N{GREATER-THAN OR EQUAL TO} '
        least = least if prediction.unknown else ''
        figures += [
            (least + _size(total.sent), 'sent by a host', 'in a step, in the mean'),
            (least + seconds_in_words(total.seconds), 'on the network', 'in a step'),
        ]
    largest = max(hosts, key=lambda host: host.total)
    figures.append((_size(largest.total), 'of memory', 'on the fullest host'))
    return figures


def _row(
    variable: PlannedVariable, largest: PlannedVariable, prediction: Optional[Prediction]
) -> Dict[str, Any]:
    """What the table of variables shows of one: a dict."""
    cost = prediction and prediction.variables[variable.name]
    return {
        'name': variable.name,
        'shape': ' \N{MULTIPLICATION SIGN} '.join(map(str, variable.shape)) or 'scalar',
        'bytes': variable.stored_bytes,
        'percent': 100.0 * variable.stored_bytes / (largest.stored_bytes or 1),
        'kind': variable.kind,
        'density': '?' if variable.density is None else '%.3g' % variable.density,
        'measured': variable.measured,
        'place': variable.place,
        'cost': cost,
        'reason': variable.reason,
        'count_reason': variable.count_reason,
    }


def _servers(
    plan: PlanInterface, variables: Sequence[PlannedVariable], prediction: Optional[Prediction]
) -> Optional[Dict[str, Any]]:
    """The picture of shards on servers: a dict, or `None` if there are none."""
    on_servers = [variable for variable in variables if variable.shards]
    if not on_servers:
        return None
    coloured = on_servers[:_COLOURS]
    names = [variable.name for variable in coloured]
    if len(on_servers) > _COLOURS:
        names.append('%s more' % (len(on_servers) - _COLOURS))
    bars = [[0.0] * len(names) for _ in range(plan.servers)]
    for number, variable in enumerate(on_servers):
        for shard in variable.shards:
            part = variable.stored_bytes * shard.rows / max(1, variable.rows)
            bars[shard.server][min(number, _COLOURS)] += part
    shown = sorted(range(plan.servers), key=lambda server: -sum(bars[server]))[:_MOST_SERVERS]
    shown.sort()
    cluster = plan.cluster or costs.Cluster()
    loads = prediction.server_loads if prediction else None
    return {
        'names': names,
        'all': plan.servers,
        'bars': [
            {
                'server': server,
                'machine': cluster.machine_of(server, plan.servers),
                'segments': segments,
                'bytes': sum(bars[server]),
                'traffic': loads and loads[server].traffic_share,
            }
            for server, segments in zip(shown, charts.stacked([bars[each] for each in shown], _BAR))
        ],
        'dedicated': cluster.dedicated_servers,
        'hosts': cluster.hosts,
    }


def _curves(
    plan: PlanInterface, bandwidth: Optional[float], prediction: Optional[Prediction]
) -> Dict[str, Any]:
    """The predicted step against the number of hosts: a dict."""
    unknown = [
        variable.name
        for variable in plan.variables
        if variable.kind == SPARSE and variable.density is None
    ]
    curves = {} if unknown else scaling.curves(plan, bandwidth)
    times = [point.step for points in curves.values() for point in points if point.step]
    if not times:
        return {'charts': (), 'unknown': unknown}
    # A logarithm needs more than nothing.
    drawn = {
        name: [(point.hosts, max(point.step, min(times))) for point in points]
        for name, points in curves.items()
    }
    hosts = [point.hosts for point in next(iter(curves.values()))]
    return {
        'charts': [
            (kind, frame, charts.line_chart(drawn, frame))
            for kind, frame in (('roomy', charts.WIDE), ('tight', charts.NARROW))
        ],
        'unknown': (),
        'words': _WORDS,
        'own': plan.cluster.hosts if prediction is not None and plan.cluster else None,
        'names': list(curves),
        'rows': [(count, [curves[name][n] for name in curves]) for n, count in enumerate(hosts)],
    }


def _memory(
    hosts: Sequence[memory.HostMemory], cluster: costs.Cluster, limit: Optional[float]
) -> Dict[str, Any]:
    """The picture of memory: a dict."""
    groups = memory.alike(hosts)
    longest = max([group.memory.total for group in groups] + [limit or 0]) or 1.0
    bars = [list(group.memory[1:]) for group in groups]
    # An invisible bar of the whole width sets the scale.
    laid = charts.stacked(bars + [[0.0] * len(_PARTS) + [longest]], _BAR)
    return {
        'parts': _PARTS,
        'limit': limit,
        'limit_at': limit and _BAR * limit / longest,
        'bars': [
            {'words': group.words(cluster.hosts), 'segments': segments, 'memory': group.memory}
            for group, segments in zip(groups, laid)
        ],
    }
