# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sections of the report for the benchmarks that are scripts of their own: pure functions."""

import statistics

from tabulate import tabulate

#: What `one_process.py` compares with.
BASE = 'raw TensorFlow'
#: What `startup.py` compares ours with.
AGAINST = {
    'keras-parallax': 'Keras',
    'keras-parallax, 2 workers': 'horovod.keras, 2 workers',
}


def spread(values):
    """Minimum, median and maximum, as text."""
    return '%.3g .. %.3g .. %.3g' % (min(values), statistics.median(values), max(values))


def ratios(results, system, key):
    """What a system has of `key` for each that raw TensorFlow has in the same round, a list."""
    return [ours[key] / base[key] for ours, base in zip(results[system], results[BASE])]


def middle_ratio(results, system, key):
    """The median over rounds of `ratios`."""
    return statistics.median(ratios(results, system, key))


def one_process_table(results):
    """The Markdown table of a dict from systems to a list of what each round measured."""
    rows = []
    for name, rounds in results.items():
        versions = rounds[0].get('versions')
        row = ['%s (%s)' % (name, versions) if versions else name]
        for key in ('step_ms', 'peak_gib'):
            row.append('%.2f' % statistics.median(result[key] for result in rounds))
            row.append(spread(ratios(results, name, key)))
        rows.append(row)
    headers = ['system', 'step, ms', 'time / raw, min..median..max', 'peak, GiB', 'memory / raw']
    return markdown(rows, headers)


def added(results, name, key='seconds'):
    """What ours adds to the system it is compared with, on the median over rounds."""
    return middle(results[name], key) - middle(results[AGAINST[name]], key)


def middle(rounds, key):
    """The median of a total over rounds."""
    return statistics.median(measured['total'][key] for measured in rounds)


def startup_table(results):
    """The Markdown table of a dict from titles to a list of what each round measured."""
    rows = [
        [name, '%.2f' % middle(rounds, 'seconds'), '%.2f' % middle(rounds, 'cpu_seconds')]
        + (['%+.2f' % added(results, name)] if name in AGAINST else [''])
        for name, rounds in results.items()
    ]
    return markdown(rows, ['system', 'start to second step, s', 'CPU, s', 'ours adds, s'])


def wakeup_table(results):
    """The Markdown table of a list of what `wakeup.summary` returns."""
    shares = list(results[0]['percentiles'])
    rows = [
        [str(late['cores'] or 'no limit'), str(late['busy']), '%.1f' % late['mean']]
        + ['%.1f' % late['percentiles'][share] for share in shares]
        for late in results
    ]
    headers = ['cores of the host', 'threads that compute', 'late on average, ms']
    return markdown(rows, headers + ['%s %% are no later than' % share for share in shares])


def settled_ratios(rounds):
    """The step of `auto` over that of each of the three, a dict: the medians over rounds.

    Args:
        rounds: a list of dicts from systems to records of steps that were taken at the same time.
    """
    return {
        name: statistics.median(
            of_round['auto']['step_seconds'] / of_round[name]['step_seconds'] for of_round in rounds
        )
        for name in FIXED
    }


def architectures_table(results):
    """The Markdown table of a list of what `architectures.py` keeps of each setting."""
    rows = []
    for setting in results:
        rounds = setting['rounds']
        steps = {
            name: statistics.median(of_round[name]['step_seconds'] for of_round in rounds)
            for name in FIXED + ('auto',)
        }
        rows.append(
            [setting['title']]
            + ['%.0f' % (1e3 * seconds) for seconds in steps.values()]
            + [setting['settled_on'], '%.2f' % max(settled_ratios(rounds).values())]
        )
    headers = ['%s, ms' % name for name in FIXED + ('auto',)]
    return markdown(rows, ['work'] + headers + ['auto has chosen', 'auto / best of the three'])


def over(rounds):
    """What the second of two took over the first, in each round of pairs: a list."""
    return [second / first for first, second in rounds]


def table_steps_table(results):
    """The Markdown table of a list of what `table_steps.py` keeps."""
    rows = [
        [
            seen['title'],
            where(seen),
            seen['ids'],
            *['%.1f' % (1e3 * statistics.median(steps)) for steps in zip(*seen['rounds'])],
            spread(over(seen['rounds'])),
            '%.1f' % seen['bound'] if seen['bound'] else '',
        ]
        for seen in results
    ]
    headers = ['what', 'where', 'ids', '`Embedding`, ms', 'ms', 'over, min..median..max', 'at most']
    return markdown(rows, headers)


def where(seen):
    """On what one of the results of `table_steps.py` was measured, in words."""
    if seen['hosts'] == 1:
        return 'one process'
    speed = seen['bandwidth_mbit']
    return '%d hosts, %s' % (seen['hosts'], '%g Mbit/s' % speed if speed else 'links not limited')


def slot_memory_table(results):
    """The Markdown table of a list of what `slot_memory.py` keeps."""
    rows = [
        ['{rows:,} x {width}'.format(**seen)]
        + ['%.1f' % (statistics.median(grown) / 2**20) for grown in zip(*seen['rounds'])]
        + [spread(over(seen['rounds'])), '%.3f' % rowwise_share(seen['width'])]
        for seen in results
    ]
    headers = ['table'] + ['%s, MiB' % name for name in SLOTS]
    return markdown(rows, headers + ['over, min..median..max', '(width + 1) / (2 width)'])


def many_tables_table(results):
    """The Markdown table of a list of what `many_tables.py` keeps: the medians over rounds."""
    rows = []
    for seen in results:
        middles = [
            statistics.median(found[key] for found in seen['rounds'])
            for key in ('first_cpu_seconds', 'step_cpu_ms', 'peak_mib', 'nodes')
        ]
        workers = 'one process' if seen['workers'] == 1 else '%d workers' % seen['workers']
        rows.append(
            ['{tables:,}'.format(**seen), '%s, %s' % (seen['title'], workers)]
            + ['%.1f' % middles[0], '%.1f' % middles[1]]
            + ['{:,.0f}'.format(middle) for middle in middles[2:]]
        )
    headers = ['tables', 'system', 'first step, CPU s', 'step, CPU ms', 'peak, MiB', 'operations']
    return markdown(rows, headers)


def rowwise_share(width):
    """The memory of a table with a number a row, of that with as many as the row has: a share."""
    return (width + 1) / (2 * width)


def markdown(rows, headers):
    """A Markdown table."""
    return tabulate(rows, headers, tablefmt='pipe', disable_numparse=True)


#: What `architectures.py` compares `auto` with.
FIXED = ('hybrid', 'ps', 'allreduce')
#: What `slot_memory.py` compares.
SLOTS = ('Adagrad', 'RowwiseAdagrad')

#: Each script that leaves a file in the report's folder: name to a section's title, what is said of
#: the machine, and the function that makes the section's table.
SCRIPTS = {
    'one_process': (
        'One process, a table of 793471x512', 'Without limits, on', one_process_table
    ),
    'startup': ('Start-up, a model with 30 tables', 'Without limits, on', startup_table),
    'wakeup': ('How late a thread that has waited goes on', 'On', wakeup_table),
    'architectures': (
        "What `architecture='auto'` chooses", 'All four trained at the same time, on',
        architectures_table,
    ),
    'table_steps': (
        'A step with tables for recommenders, over one with `Embedding`',
        'Both models were in one job and took steps in turn, on', table_steps_table,
    ),
    'slot_memory': (
        'Memory of a table with its slots',
        'By how much a process grows when it trains all rows of a table, on', slot_memory_table,
    ),
    'many_tables': (
        'Models with many tables',
        'Tables of 1,000 rows of 16, batches of 256, Adagrad: what one rank takes, on',
        many_tables_table,
    ),
}  # fmt: skip
#: Those on the page about tables.
OF_TABLES = ('table_steps', 'slot_memory', 'many_tables')
#: Those that need no emulated cluster.
OF_ONE_HOST = ('one_process', 'startup', 'wakeup')


def sections(found, names):
    """The sections of the scripts that have left something: a list of Markdown paragraphs.

    Args:
        found: dict from names in `SCRIPTS` to what `results.published` returns.
        names: some of these.
    """
    parts = []
    for name in names:
        title, where, table = SCRIPTS[name]
        if found[name]:
            about = found[name]['machine']
            parts += [
                '## ' + title,
                '%s %s with %d cores, %s. `python benchmarks/%s.py`'
                % (where, about['processor'], about['cores'], found[name]['date'], name),
                table(found[name]['results']),
            ]
    return parts
