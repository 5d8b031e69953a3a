# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The page on what each part of the engine brings, and on the number of shards."""

import re

from systems.catalog import SYSTEMS

from keras_parallax.tuning import partition_fit
from report import compare
from report.scripts import markdown

PLOT = 'plot-shards.png'
PARTS = """
## What each part brings

The language model, {speed}, {cores:g} cores a host, {hosts} hosts with {workers} workers each.
From line to line one part more is used.

{table}

- *Tables in one piece*: dense gradients go through the allreduce, each table lies on one server.
- *Shards on all servers*: every server has a share of each table's rows, and of the traffic.
- *Workers of a host together*: they pull and push a row once for all of them.
- *Placed by density*: the plan is told which share of its rows a batch touches, as
  `kp.ParallaxStrategy(density=...)` is. Here every server has an even share of the rows without it.
"""
SHARDS = """
## How many shards

The language model, {speed}, {cores:g} cores a host, {hosts} hosts. The curve is the one that
`partitions='search'` fits to what it measures, `t(P) = a + b / P + c * P`.

[![Time of a step over the number of shards]({plot})]({plot})

{table}

```text
{fit}
```
"""


def page(records):
    """The page's text, without its title, of all records; nothing where there are none."""
    found = [_of_suite(records, name) for name in ('parts', 'shards')]
    return '\n\n'.join(write(kept).strip() for write, kept in zip((_parts, _shards), found) if kept)


def _of_suite(records, name):
    order = list(SYSTEMS)
    kept = [one for one in records if one['suite'] == name and 'error' not in one]
    return sorted(kept, key=lambda one: order.index(one['system']))


def _where(record):
    return dict(
        hosts=record['hosts'],
        workers=record['workers_per_host'],
        speed=compare.link_speed(record['bandwidth_mbit']),
        cores=record['cores_per_host'],
    )


def _parts(records):
    rows, before = [], None
    for record in records:
        rows.append(
            [
                SYSTEMS[record['system']].title,
                '{:,.0f}'.format(record['units_per_second']),
                '%.2fx' % compare.speed_up(record, before) if before else '',
                '%.2fx' % compare.speed_up(record, records[0]),
                '%.1f' % (record['sent_bytes'] / 1e6),
                '%.1f' % (record['sent_bytes_most'] / 1e6),
            ]
        )
        before = record
    unit = records[0]['unit']
    headers = [
        'system', unit + '/s', 'over the line above', 'over the first',
        'MB that a host sends', 'the host that sends most',
    ]  # fmt: skip
    return PARTS.format(table=markdown(rows, headers), **_where(records[0]))


def shard_points(records):
    """Pairs of a number of shards and the seconds of a step, of the suite `shards`."""
    return [
        (int(re.sub('shards-', '', record['system'])), record['step_seconds'])
        for record in _of_suite(records, 'shards')
    ]


def _shards(records):
    points = shard_points(records)
    choice = partition_fit.choose(points)
    rows = [
        [
            shards,
            '%.3f' % seconds,
            '%.3f' % choice.fit.seconds(shards) if choice.fit else '',
            '%.1f' % (record['sent_bytes'] / 1e6),
        ]
        for (shards, seconds), record in zip(points, records)
    ]
    table = markdown(rows, ['shards', 'step, s', 'fitted, s', 'MB that a host sends'])
    # The last two lines tell the curve and the choice.
    told = '\n'.join(choice.report().splitlines()[-2:])
    return SHARDS.format(plot=PLOT, table=table, fit=told, **_where(records[0]))
