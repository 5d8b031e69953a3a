# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Makes the one Markdown page of a stack that is not the first, and its plots, from records."""

import glob
import os

from systems import ps_strategy
from systems.catalog import SYSTEMS

from report import compare, page, plots, results, scripts, targets
from report.scripts import markdown

#: The benchmarks that are scripts of their own and that such a stack runs.
SCRIPTS = ('one_process', 'many_tables')
#: A peer that the first stack does not have.
STRATEGY = 'tf-ps-strategy'


def write(records, folder):
    """Writes `index.md` and the plots.

    Args:
        records: a list of records.
        folder: where to.
    """
    variants = compare.variants(records)
    for old in glob.glob(os.path.join(folder, 'plot-*.png')):
        os.remove(old)
    drawn = plots.draw(variants, {}, folder)
    published = {name: results.published(folder, name) for name in SCRIPTS}
    alone = {name: content['results'] for name, content in published.items() if content}
    sections = [page.section(variant, records, drawn) for variant in variants]
    text = page.template('stack.md').format(
        stack=', '.join(sorted({one['stack'] for one in records if 'stack' in one})),
        targets=markdown(measured_rows(variants, alone), targets.HEADERS),
        short=markdown(targets.short_rows(variants), targets.SHORT_HEADERS),
        strategy=strategy_table(variants),
        batches=ps_strategy.BATCHES,
        sections='\n\n'.join(sections + scripts.sections(published, SCRIPTS)),
        days=page.days(records),
        **results.recorded_machine(folder),
    )
    with open(os.path.join(folder, 'index.md'), 'w', encoding='utf-8') as file:
        file.write(text.strip() + '\n')


def measured_rows(variants, alone):
    """The rows of the targets that something was measured of."""
    return [row for row in targets.rows(variants, alone) if row[2]]


def strategy_table(variants):
    """What `ParameterServerStrategy` does beside our fastest: a Markdown table."""
    rows = []
    for variant in variants:
        for hosts in variant.hosts:
            by_system = variant.at(hosts)
            ours, theirs = compare.our_fastest(by_system), by_system.get(STRATEGY)
            if not (ours and theirs):
                continue
            rows.append(
                [
                    variant.title,
                    hosts,
                    SYSTEMS[ours['system']].title,
                    '%.2fx' % compare.speed_up(ours, theirs),
                    '%.2f' % (ours['sent_bytes'] / 1e6),
                    '%.2f' % (theirs['sent_bytes'] / 1e6),
                ]
            )
    headers = [
        'work', 'hosts', 'our fastest', 'speed / ParameterServerStrategy', 'ours sends, MB',
        'it sends, MB',
    ]  # fmt: skip
    return markdown(rows, headers)
