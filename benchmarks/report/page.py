# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Makes the Markdown pages of the report, and its plots, from records."""

import glob
import json
import os

from measuring import schedule, suites
from systems.catalog import SYSTEMS

from report import compare, convergence, parts, pictures, plots, results, scripts, targets
from report.scripts import markdown

#: Pages of measurements: file name to title and suites.
WORKS = {
    'language-model.md': ('Language model', ('lm', 'lm-corpus')),
    'clicks.md': ('Clicks: wide tables and small networks', ('ctr', 'ctr-more')),
    'resnet.md': ('ResNet: a model without tables', ('dense',)),
    'smoke.md': ('Smoke test', ('smoke',)),
}
#: The other pages behind the first one, in its order: file name to title.
OTHERS = {
    'summary.md': 'Targets, and all measurements in short',
    'alpha.md': 'Speed-up over α',
    'convergence.md': 'What is learned over time',
    'parts.md': 'What each part brings',
    'tables.md': 'Tables for recommenders',
    'one-process.md': 'One process, start-up, waiting',
    'how.md': 'How it was measured',
    'where-not.md': 'Where hybrid does not pay',
}
#: All pages but the first, in its order.
ORDER = ('summary.md',) + tuple(WORKS) + tuple(OTHERS)[1:]


def line(record):
    """A record in a line, for the terminal."""
    name = '%s %s %s, %d hosts, %s Mbit/s' % (
        record['suite'], json.dumps(record['options']), record['system'], record['hosts'],
        '%g' % record['bandwidth_mbit'] if record['bandwidth_mbit'] else 'any',
    )  # fmt: skip
    if 'error' in record:
        return '%s: FAILED: %s' % (name, record['error'])
    return (
        '%s: %d steps of %.3f s, %.2f MB sent, floor %.2f MB, %.2f s CPU, %.0f MiB, loss %.5f'
        % (
            name,
            record['steps'],
            record['step_seconds'],
            record['sent_bytes'] / 1e6,
            record['floor_bytes'] / 1e6,
            record['cpu_seconds'],
            record['peak_mib'],
            record['losses'][-1],
        )
    )


def table(variant):
    """The Markdown table of a `compare.Variant`."""
    rows = []
    order = list(SYSTEMS)
    for record in sorted(
        variant.records, key=lambda one: (one['hosts'], order.index(one['system']))
    ):
        name = SYSTEMS[record['system']].title
        if 'error' in record:
            rows.append([record['hosts'], name, 'failed: ' + record['error']] + [''] * 10)
            continue
        by_system = variant.at(record['hosts'])
        alike = compare.learns_alike(record, compare.reference(by_system) or record)
        speed_up = compare.speed_up(record, compare.best_horovod(by_system))
        quartiles = [record['step_seconds' + end] for end in ('_quarter', '', '_three_quarters')]
        rows.append(
            [
                record['hosts'],
                name,
                '{:,.0f}'.format(record['units_per_second']),
                '%.3g .. %.3g .. %.3g' % tuple(quartiles),
                _steps(record),
                '%.2fx' % speed_up if speed_up else '',
                '%.2f' % (record['sent_bytes'] / 1e6),
                '%.2f' % (record['received_bytes'] / 1e6),
                '%.2fx' % compare.over_floor(record) if record['hosts'] > 1 else '',
                '%.2f' % record['cpu_seconds'],
                '%.0f' % record['peak_mib'],
                '%.1f' % record['first_step_seconds'],
                '%.4f%s' % (_last_loss(record, by_system), _judged(record, alike)),
            ]
        )
    unit = next((one['unit'] for one in variant.records if 'unit' in one), 'units')
    headers = [
        'hosts', 'system', unit + '/s', 'step, s: quartiles', 'steps', 'speed / best Horovod',
        'sent, MB', 'received, MB', 'sent / floor', 'CPU, s', 'peak, MiB', 'first step, s', 'loss',
    ]  # fmt: skip
    return markdown(rows, headers)


def _judged(record, alike):
    if not SYSTEMS[record['system']].synchronous:
        return ' (asynchronous)'
    return '' if alike else ' (differs)'


def _steps(record):
    """How many steps were measured, as text."""
    rounds = record.get('rounds', 1)
    return '%d' % record['steps'] if rounds == 1 else '%d x %d' % (rounds, record['steps'])


def _last_loss(record, by_system):
    """A record's loss in the last step that the reference took too."""
    other = compare.reference(by_system) or record
    return record['losses'][min(len(record['losses']), len(other['losses'])) - 1]


def age(variant, records):
    """A sentence about records that are older than the newest ones, if a variant has some."""
    if all(record.get('sources') == records[-1].get('sources') for record in variant.records):
        return ''
    return (
        'Some of these were measured with earlier sources or settings than the newest records on '
        'this page: `sources` in `results.json` tells which.'
    )


def write(records, folder):
    """Writes the pages, of which `index.md` comes first, and the plots.

    Args:
        records: a list of records.
        folder: where to.
    """
    variants = compare.variants(records)
    sweeps = {peer: compare.alpha_points(records, peer) for peer in pictures.ALPHA_PEERS}
    alpha = {peer: points for peer, points in sweeps.items() if points}
    alpha_speed = compare.alpha_speed(records)
    for old in glob.glob(os.path.join(folder, 'plot-*.png')):
        os.remove(old)
    drawn = plots.draw(variants, alpha, folder)
    learned = results.published(folder, 'convergence')
    if learned:
        path = os.path.join(folder, convergence.PLOT)
        plots.draw_convergence(learned['results']['works'], path)
    points = parts.shard_points(records)
    if points:
        plots.draw_shards(points, os.path.join(folder, parts.PLOT))
    published = {name: results.published(folder, name) for name in scripts.SCRIPTS}
    values = dict(results.recorded_machine(folder), days=days(records))
    pages = {
        'summary.md': summary(variants, published),
        'alpha.md': pictures.alpha_table(alpha, alpha_speed),
        'convergence.md': convergence.page(learned),
        'parts.md': '\n\n'.join(
            filter(None, [parts.page(records)] + scripts.sections(published, ['architectures']))
        ),
        'tables.md': '\n\n'.join(scripts.sections(published, scripts.OF_TABLES)),
    }
    for name, (_, names) in WORKS.items():
        of_work = [variant for variant in variants if variant.suite in names]
        pages[name] = '\n\n'.join(section(variant, records, drawn) for variant in of_work)
    pages['one-process.md'] = '\n\n'.join(scripts.sections(published, scripts.OF_ONE_HOST))
    pages = {name: '# %s\n\n%s' % (title(name), text) for name, text in pages.items() if text}
    pages['how.md'] = template('how.md').format(
        tolerance=compare.LOSS_TOLERANCE,
        ratio=targets.PAPER_RATIO,
        steps=suites.STEPS,
        budget=schedule.BUDGET_SECONDS,
        fewest=schedule.FEWEST_STEPS,
        **values,
    )
    pages['where-not.md'] = template('where-not.md')
    pages['index.md'] = template('index.md').format(
        pictures=pictures.sections(variants, alpha, alpha_speed, drawn),
        dense=pictures.without_tables(variants),
        contents='\n'.join('- [%s](%s)' % (title(name), name) for name in ORDER if name in pages),
        **values,
    )
    for name in ORDER + ('index.md',):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)
        if name in pages:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(pages[name].strip() + '\n')


def title(name):
    """The title of a page."""
    return OTHERS[name] if name in OTHERS else WORKS[name][0]


def template(name):
    """The text of a page before its values are put in."""
    path = os.path.join(os.path.dirname(__file__), 'templates', name + '.template')
    with open(path, encoding='utf-8') as file:
        return file.read()


def summary(variants, published):
    """The tables of targets and of all measurements."""
    alone = {name: content['results'] for name, content in published.items() if content}
    return '\n\n'.join(
        [
            '## Targets',
            markdown(targets.rows(variants, alone), targets.HEADERS),
            '## In short',
            markdown(targets.short_rows(variants), targets.SHORT_HEADERS),
        ]
    )


def section(variant, records, drawn):
    """The section of a variant: its heading, table and plot."""
    paragraphs = ['## ' + variant.title, age(variant, records), table(variant)]
    if variant.plot in drawn:
        paragraphs.append('![%s](%s)' % (variant.title, variant.plot))
    return '\n\n'.join(text for text in paragraphs if text)


def days(records):
    """When records were taken, as text."""
    found = sorted({record['date'] for record in records if 'date' in record})
    if not found:
        return 'on an unknown day'
    return found[0] if len(found) == 1 else '%s to %s' % (found[0], found[-1])
