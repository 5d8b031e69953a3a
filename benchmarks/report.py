"""Makes the Markdown report and its plots from records."""

import os
import platform

import plots
import psutil
from suites import HOROVOD, OURS
from systems import SYSTEMS
from tabulate import tabulate

#: Losses of systems that learn the same agree this well after the measured steps.
LOSS_TOLERANCE = 0.002
#: Systems of float32 and exact means: what the others' losses are compared with.
EXACT = ('hvd-allgather', 'hvd-keras', 'tf', 'keras')
TITLES = {
    'lm': 'Language model',
    'lm-corpus': "Language model, the demo's text",
    'ctr': 'Clicks',
    'dense': 'ResNet',
    'smoke': 'Smoke test',
}
INTRODUCTION = """
This page is generated: `make bench` takes the measurements and writes it, with the records in
`results.json` beside it. `make bench BENCH_ARGS=--quick` takes fewer. One suite, or a part of one:

```bash
python benchmarks/run.py --suite lm --hosts 2,8 --bandwidth 20,200 --systems hybrid,hvd-allgather
```

All hosts are network namespaces of **one machine**: {processor}, {cores} cores, {memory_gib} GiB,
{system}, Python {python}. With more hosts than cores the workers share the cores, so that absolute
times say little: compare systems within one table. Bytes are exact: the kernel counts them at each
host's interface, headers and acknowledgements included.

- **Step**: the slowest rank's, quartiles over the measured steps, after warm-up.
- **Floor**: each row that a host's batch names, pulled once and its gradient pushed once unless
  its shard is on that host, and a ring allreduce of the dense gradients; values of float32 only.
- **CPU** of one worker and its server for a step; **peak**: the largest process's resident memory
  in training; **first step**: from the start of `horovodrun`, over links without a limit.
- **Loss**: the mean over ranks in the last step that both the system and the reference took. All
  systems train the same model from the same weights on the same batches. More than {tolerance:.1%}
  apart is marked "differs": such a run does not count as faster.
- Horovod's own systems run with TensorFlow's graph optimizer at `L0` plus constant folding. At the
  default, TensorFlow merges Horovod's operations of the same input, such as the gathered ids of two
  tables that one column is looked up in, and leaves either name: DeepFM then stalls on 8 hosts.
- OpenEmbedding 0.1.2 is not here: with `-include deque` it compiles for TensorFlow 1.11, but its
  import fails, for it asks `tf.keras.optimizers` for an `Ftrl` that 1.11 does not have.
"""
WHERE_NOT = """
## Where hybrid does not pay

- A model without large tables: the plan is `allreduce`, and the step is Horovod's.
- Two hosts: rows over servers and rows by allgather are about the same number of bytes (the
  [cost model](../how-it-works.md)), so all that is left to win is that repeated ids travel once.
- Many small tables over a fast link: they travel as one, but what is done for each of them, such as
  finding its unique ids, takes more processor time than Horovod's allgather does
  ([measured](../design/bundles.md)).
- Batches that touch nearly all of a table (α near 1), unless the servers' bytes are still fewer.
"""


def machine():
    """What the measurements ran on."""
    model = platform.processor()
    with open('/proc/cpuinfo') as file:
        for line in file:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return {
        'processor': model,
        'cores': os.cpu_count(),
        'memory_gib': round(psutil.virtual_memory().total / 2**30),
        'system': '%s %s' % (platform.system(), platform.release().split('-')[0]),
        'python': platform.python_version(),
    }


def line(record):
    """A record in a line, for the terminal."""
    name = '%s %s %s, %d hosts' % (
        record['suite'], record['options'], record['system'], record['hosts'],
    )  # fmt: skip
    if 'error' in record:
        return '%s: FAILED: %s' % (name, record['error'])
    return '%s: %.3f s a step, %.2f MB sent, floor %.2f MB, %.2f s CPU, %.0f MiB, loss %.5f' % (
        name,
        record['step_seconds'],
        record['sent_bytes'] / 1e6,
        record['floor_bytes'] / 1e6,
        record['cpu_seconds'],
        record['peak_mib'],
        record['losses'][-1],
    )


def variants(records):
    """The records by what they have in common but the system and the number of hosts.

    Returns:
        A list of pairs of a title and the list of its records, in a fixed order.
    """
    groups = {}
    for record in records:
        if record['suite'] == 'alpha':
            continue
        speed = record['bandwidth_mbit']
        options = ', '.join('%s %s' % pair for pair in sorted(record['options'].items()))
        title = '%s%s, %s%s' % (
            TITLES[record['suite']],
            ' (%s)' % options if options else '',
            '%s Mbit/s' % speed if speed else 'links not limited',
            ', %d workers a host' % record['workers_per_host']
            if record['workers_per_host'] > 1
            else '',
        )
        groups.setdefault(title, []).append(record)
    return sorted(groups.items())


def best_horovod(records):
    """The fastest record of Horovod's among records of one variant and number of hosts."""
    found = [record for record in records if record['system'] in HOROVOD and 'error' not in record]
    return min(found, key=lambda record: record['step_seconds']) if found else None


def learns_alike(record, reference):
    """Whether two systems had the same loss in the last step that both took."""
    last = min(len(record['losses']), len(reference['losses'])) - 1
    one, other = record['losses'][last], reference['losses'][last]
    return abs(one - other) <= LOSS_TOLERANCE * abs(other)


def table(records):
    """The Markdown table of a variant."""
    rows = []
    for record in sorted(
        records, key=lambda one: (one['hosts'], list(SYSTEMS).index(one['system']))
    ):
        name = SYSTEMS[record['system']].title
        if 'error' in record:
            rows.append([record['hosts'], name, 'failed: ' + record['error']] + [''] * 8)
            continue
        peers = [one for one in records if one['hosts'] == record['hosts']]
        horovod = best_horovod(peers)
        exact = [one for one in peers if one['system'] in EXACT and 'error' not in one]
        reference = exact[0] if exact else record
        last = min(len(record['losses']), len(reference['losses'])) - 1
        rows.append(
            [
                record['hosts'],
                name,
                '%s' % _short(record['units_per_second']),
                '%.3g .. %.3g .. %.3g'
                % (
                    record['step_seconds_quarter'],
                    record['step_seconds'],
                    record['step_seconds_three_quarters'],
                ),
                '%.2fx' % (horovod['step_seconds'] / record['step_seconds']) if horovod else '',
                '%.2f' % (record['sent_bytes'] / 1e6),
                '%.2f' % (record['received_bytes'] / 1e6),
                '%.2fx' % (record['sent_bytes'] / record['floor_bytes'])
                if record['hosts'] > 1
                else '',
                '%.2f' % record['cpu_seconds'],
                '%.0f' % record['peak_mib'],
                '%.1f' % record['first_step_seconds'],
                '%.4f%s'
                % (record['losses'][last], '' if learns_alike(record, reference) else ' (differs)'),
            ]
        )
    unit = next((one['unit'] for one in records if 'unit' in one), 'units')
    headers = [
        'hosts', 'system', unit + '/s', 'step, s: quartiles', 'speed / best Horovod',
        'sent, MB', 'received, MB', 'sent / floor', 'CPU, s', 'peak, MiB', 'first step, s', 'loss',
    ]  # fmt: skip
    return tabulate(rows, headers, tablefmt='pipe', disable_numparse=True)


def alpha_rows(records):
    """`(α, speed-up of hybrid over Horovod's allgather)` of each length, from α = 1 down."""
    by_length = {}
    for record in records:
        if record['suite'] == 'alpha' and 'error' not in record:
            by_length.setdefault(record['options']['length'], {})[record['system']] = record
    return [
        (pair['hybrid']['alpha'], pair['hvd-allgather']['step_seconds']
         / pair['hybrid']['step_seconds'])
        for _, pair in sorted(by_length.items(), reverse=True)
        if {'hybrid', 'hvd-allgather'} <= set(pair)
    ]  # fmt: skip


def targets(records):
    """What came out for each target that the records can tell about: rows of a table."""
    rows = []
    for title, group in variants(records):
        for hosts in sorted({record['hosts'] for record in group}):
            by_system = {
                record['system']: record
                for record in group
                if record['hosts'] == hosts and 'error' not in record
            }
            reference = next((by_system[name] for name in EXACT if name in by_system), None)
            ours = [
                one
                for name, one in by_system.items()
                if name in OURS and (reference is None or learns_alike(one, reference))
            ]
            if not ours or hosts == 1:
                continue
            fastest = min(ours, key=lambda one: one['step_seconds'])
            horovod = best_horovod(by_system.values())
            row = [title, hosts, SYSTEMS[fastest['system']].title]
            for other in (horovod, by_system.get('tf-ps')):
                row.append(
                    '%.2fx' % (other['step_seconds'] / fastest['step_seconds']) if other else ''
                )
            hybrid = by_system.get('hybrid')
            row.append('%.2fx' % (hybrid['sent_bytes'] / hybrid['floor_bytes']) if hybrid else '')
            two = [one for one in group if one['hosts'] == 2 and one['system'] == 'hybrid']
            row.append(
                '%.2fx' % (hybrid['step_seconds'] / two[0]['step_seconds'])
                if hosts == 8 and hybrid and two and 'error' not in two[0]
                else ''
            )
            rows.append(row)
    headers = [
        'work', 'hosts', 'our fastest', 'speed / best Horovod', "speed / TensorFlow's servers",
        'hybrid: sent / floor', 'hybrid: step at 8 hosts / at 2',
    ]  # fmt: skip
    return tabulate(rows, headers, tablefmt='pipe', disable_numparse=True)


def how_busy(records, cores):
    """A sentence on what else the machine did, which decides how much times are worth."""
    loads = [record['load'] - record['hosts'] * record['workers_per_host'] for record in records]
    if not loads or max(loads) <= cores:
        return ''
    return (
        '**The machine was busy with other work**: its load average was up to %.0f above the '
        'number of workers. Where communication takes most of a step, that weighs little; '
        'elsewhere, ratios of times below are noise until measured on an idle machine.' % max(loads)
    )


def write(records, folder):
    """Writes `index.md` and the plots.

    Args:
        records: a list of records.
        folder: where to.
    """
    plots.draw(variants(records), alpha_rows(records), folder)
    info = machine()
    parts = [
        '# Benchmarks',
        INTRODUCTION.format(tolerance=LOSS_TOLERANCE, **info),
        how_busy(records, info['cores']),
        '## In short',
        targets(records),
    ]
    if alpha_rows(records):
        measured = ['%.2f: %.2f' % pair for pair in alpha_rows(records)]
        parts += [
            '## Speed-up over α',
            'Hybrid against Horovod (sparse allgather), 8 hosts. Measured, α: speed-up: %s. '
            'Parallax published 2.04, 2.33, 2.43, 2.89, 3.02, 3.03, 3.42 for α = 1.0, .52, .28, '
            '.16, .10, .07, .04.' % ', '.join(measured),
            '![speed-up over α](alpha.png)',
        ]
    for number, (title, group) in enumerate(variants(records)):
        parts += ['## ' + title, table(group)]
        if len({record['hosts'] for record in group}) > 1:
            parts.append('![%s](%s)' % (title, plots.name_of(number)))
    parts.append(WHERE_NOT)
    with open(os.path.join(folder, 'index.md'), 'w') as file:
        file.write('\n\n'.join(part.strip() for part in parts) + '\n')


def _short(number):
    return '{:,.0f}'.format(number)
