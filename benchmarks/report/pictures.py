# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The three pictures of the report's first page, and what they say: pure functions."""

from systems.catalog import SYSTEMS

from report import compare, plots, targets
from report.scripts import markdown

#: Whom the sweep over α compares with.
ALPHA_PEERS = ('hvd-allgather', 'tf-ps')

LINK_SPEED = """
## The slower the link, the more it pays

[![Speed-up over link speed](%s)](%s)

Each line is one model on 8 hosts: our fastest way of training it against Horovod's fastest, at
several link speeds. On the dotted line both are as fast. Horovod sends the rows of every worker to
every other. Rows on servers travel to who needs them, so a slow link costs less.

%s
"""
MORE_HOSTS = """
## The more hosts, the more it pays

[![Words per second, and MB that a host sends](%s)](%s)

%s, on 1 to 8 hosts.
On 8, the link is so slow for such a host that Horovod's step lasts %.0f times as long as one worker
computes. In Parallax's paper it was %g times.

%s
"""
ALPHA = """
## It pays at any density

[![Speed-up over α](%s)](%s)

α is the share of a table's rows that a worker's batch touches. Here sentences become shorter from
left to right, on 8 hosts, %s, in full precision. We are %s times as fast as Horovod, and
%s times as fast as TensorFlow's servers. Parallax's curve, of 48 cards, rises to the right.
Ours falls from the middle on: the dense gradients are the same for every α, so the fewer the rows,
the less of a step is theirs.
"""
ALPHA_TABLE = """
Hybrid on 8 hosts, %s. Parallax published 2.04, 2.33, 2.43, 2.89, 3.02, 3.03, 3.42 for α = 1.0, .52,
.28, .16, .10, .07, .04, on 48 cards. The dense gradients are the same for every α: so the fewer the
rows, the less of a step is theirs.

%s
"""


def sections(variants, alpha, alpha_speed, drawn):
    """The sections of the pictures that were drawn, as Markdown.

    Args:
        variants: as `compare.variants` returns them.
        alpha: dict from peers to what `compare.alpha_points` returns.
        alpha_speed: what `compare.alpha_speed` returns.
        drawn: the names of the files, as `plots.draw` returns them.
    """
    parts = []
    if plots.LINK_SPEED in drawn:
        parts.append(LINK_SPEED % (plots.LINK_SPEED, plots.LINK_SPEED, _link_speed_table(variants)))
    language = [variant for variant in variants if variant.suite == 'lm']
    slow = targets.nearest_to_paper(language)
    if slow and slow.plot in drawn:
        ratio = compare.compute_steps(slow, 8)
        parts.append(
            MORE_HOSTS
            % (
                slow.plot,
                slow.plot,
                slow.title,
                ratio,
                targets.PAPER_RATIO,
                _systems_table(slow.at(8)),
            )
        )
    if plots.ALPHA in drawn and set(ALPHA_PEERS) <= set(alpha):
        spans = [_span([value for _, value in alpha[peer]]) for peer in ALPHA_PEERS]
        parts.append(ALPHA % (plots.ALPHA, plots.ALPHA, compare.link_speed(alpha_speed), *spans))
    return '\n\n'.join(part.strip() for part in parts)


def _link_speed_table(variants):
    """How many times as fast as Horovod each work is, over its slowest and its fastest link."""
    rows = []
    for work, points in plots.link_speed_lines(variants).items():
        ordered = sorted(points, key=lambda point: point[0] or float('inf'))
        rows.append([work] + [_at_speed(*point) for point in (ordered[0], ordered[-1])])
    return markdown(rows, ['model', 'slowest link', 'fastest link'])


def _at_speed(speed, value):
    return '%.1fx, %s' % (value, compare.link_speed(speed))


def _systems_table(by_system):
    """What ours and the peers do, by system: a Markdown table."""
    best, ours = compare.best_horovod(by_system), compare.our_fastest(by_system)
    chosen = [ours, by_system.get('hybrid'), by_system.get('tf-ps'), best]
    names = []
    for record in chosen:
        if record and record['system'] not in names:
            names.append(record['system'])
    rows = [
        [
            SYSTEMS[name].title,
            '{:,.0f}'.format(by_system[name]['units_per_second']),
            '%.1fx' % compare.speed_up(by_system[name], best),
            '%.1f' % (by_system[name]['sent_bytes'] / 1e6),
        ]
        for name in names
    ]
    unit = best['unit']
    return markdown(
        rows, ['8 hosts', unit + '/s', 'speed / Horovod', 'MB sent by a host in a step']
    )


def without_tables(variants):
    """A line on the speed of a model without tables, or nothing."""
    values = [
        value
        for variant in variants
        if variant.suite == 'dense'
        for hosts in variant.hosts
        if hosts > 1
        for by_system in [variant.at(hosts)]
        for value in [compare.speed_up(by_system.get('hybrid'), compare.best_horovod(by_system))]
        if value
    ]
    if not values:
        return ''
    return '\n  A ResNet trains %s times as fast as with the fastest of Horovod.' % _span(values)


def _span(values):
    return '%.2f to %.2f' % (min(values), max(values))


def alpha_table(alpha, alpha_speed):
    """The page of the sweep over α, or nothing.

    Args:
        alpha: dict from peers to what `compare.alpha_points` returns.
        alpha_speed: what `compare.alpha_speed` returns.
    """
    if not alpha:
        return ''
    points = {peer: dict(pairs) for peer, pairs in alpha.items()}
    rows = [
        ['%.2f' % share]
        + ['%.2fx' % points[peer][share] if share in points[peer] else '' for peer in alpha]
        for share in sorted(set().union(*points.values()), reverse=True)
    ]
    headers = ['α'] + ['speed / ' + SYSTEMS[peer].title for peer in alpha]
    return ALPHA_TABLE.strip() % (compare.link_speed(alpha_speed), markdown(rows, headers))
