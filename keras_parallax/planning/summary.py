"""The plan as a table for people."""

from tabulate import tabulate

from keras_parallax.planning import classify as rules
from keras_parallax.planning import costs, predict
from keras_parallax.planning.units import (
    bandwidth_in_words,
    counted,
    seconds_in_words,
    size_in_words,
)

#: Of more servers than these, only the extremes are shown; `Plan.as_data` has them all.
_MOST_SERVERS = 16

_TOTALS = (
    (predict.PLAN, 'this plan'),
    (predict.ALLGATHER, 'tables by allgather'),
    (predict.ALLREDUCE, 'tables by dense allreduce'),
    (predict.FLOOR, 'floor'),
)


def format_summary(plan, updates, bandwidth=None):
    """A plan as text of several lines, with the `Update`s of its sparse variables by name.

    The bandwidth is that of a host's link, in bytes per second; `None` for the plan's cluster's.
    """
    prediction = plan.predict(bandwidth)
    lines = ['Architecture: %s' % _architecture(plan), _variables(plan, prediction)]
    for kind in (rules.DENSE, rules.SPARSE):
        of_kind = [variable for variable in plan.variables if variable.kind == kind]
        size = size_in_words(sum(variable.bytes for variable in of_kind))
        lines.append('%s: %s, %s' % (kind.capitalize(), counted(len(of_kind), 'variable'), size))
    if prediction is not None:
        lines.extend(_totals(plan, prediction, bandwidth or plan.cluster.bandwidth))
        if any(variable.shards for variable in plan.variables):
            lines.extend(_servers(prediction.server_loads))
    lines.extend(_update_lines(plan, updates))
    return '\n'.join(line.rstrip() for line in '\n'.join(lines).splitlines())


def _architecture(plan):
    if plan.architecture == plan.requested:
        return plan.architecture
    causes = {
        'allreduce': 'no variable is sparse',
        'ps': 'no variable is dense',
        'hybrid': 'chosen by cost',
    }
    return '%s (%s; %r was asked for)' % (
        plan.architecture,
        causes[plan.architecture],
        plan.requested,
    )


def _variables(plan, prediction):
    headers = ['variable', 'shape', 'size', 'class', 'place', 'reason']
    if prediction is not None:
        headers[4:4] = ['alpha']
        headers[6:6] = ['sent', 'allgather', 'allreduce']
    rows = []
    for variable in plan.variables:
        row = [
            variable.name,
            ' x '.join(map(str, variable.shape)) or 'scalar',
            size_in_words(variable.bytes),
            variable.kind,
            variable.place,
            variable.reason,
        ]
        if prediction is not None:
            row[4:4] = [_alpha(variable)]
            row[6:6] = map(_size_if_known, prediction.variables[variable.name])
        rows.append(row)
    return tabulate(rows, headers, tablefmt='simple', disable_numparse=True)


def _totals(plan, prediction, bandwidth):
    cluster = plan.cluster
    where = '%s x %s' % (
        counted(cluster.hosts, 'host'),
        counted(cluster.workers_per_host, 'worker'),
    )
    if cluster.hosts == 1 < cluster.workers_per_host:
        where += ', counted as if each were a host'
    rows = []
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
        'A step, for each host (%s, %s):' % (where, bandwidth_in_words(bandwidth)),
        tabulate(rows, headers, tablefmt='simple', disable_numparse=True),
    ]
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


def _servers(loads):
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


def _update_lines(plan, updates):
    lines = []
    for words in sorted({update.words for update in updates.values()}):
        names = [name for name in updates if updates[name].words == words]
        lines.append('Update of %s: %s' % (', '.join(names), words))
        costly = [name for name in names if updates[name].whole and updates[name].slots is not None]
        if costly:
            lines.append(
                '  which reads and writes %s of memory a step, all servers together%s'
                % (_memory(plan, costly, updates, True), _touched_only(plan, costly, updates))
            )
    return lines


def _touched_only(plan, names, updates):
    if any(plan[name].alpha is None for name in names):
        return ''
    return '; for touched rows only it would be %s' % _memory(plan, names, updates, False)


def _memory(plan, names, updates, whole):
    cluster = plan.cluster or costs.Cluster()
    return size_in_words(
        sum(
            costs.update_bytes(
                plan[name].bytes, updates[name].slots, plan[name].alpha, cluster, whole
            )
            for name in names
        )
    )


def _alpha(variable):
    if variable.alpha is None:
        return '?'
    return '%.3g%s' % (variable.alpha, ' measured' if variable.measured else '')


def _size_if_known(size):
    return '?' if size is None else size_in_words(size)


def _percent(share):
    return '?' if share is None else '%.3g %%' % (100 * share)
