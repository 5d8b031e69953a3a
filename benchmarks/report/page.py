"""Makes the Markdown report and its plots from records."""

import glob
import json
import os

from measuring import schedule
from systems.catalog import SYSTEMS

from report import compare, plots, results, scripts, targets
from report.scripts import markdown

INTRODUCTION = """
This page is generated: `make bench` takes the measurements and writes it, with the records in
`results.json` beside it. `make bench BENCH_ARGS=--quick` takes fewer. One suite, or a part of one:

```bash
python benchmarks/run.py --suite lm --hosts 2,8 --bandwidth 20,200 --systems hybrid,hvd-allgather
```

An interrupted run goes on with `--missing`. All hosts are network namespaces of **one machine**:
{processor}, {cores} cores, {memory_gib} GiB, {system}, Python {python}; measured {days}.

**Every host has the share of the processor that its heading names**: the kernel holds all that runs
on it to that, in periods of 10 ms or a little more, and its links to their speed. Eight hosts of
0.25 cores are a machine of 2; for the ResNet there are 24, so that three systems train at the same
time on eight each. Hosts are always at work: where a job takes fewer, copies of it train on the
others, each by itself, and the steps of all copies count. So a host is the same machine in clusters
of any size. Import, first broadcast and first step run without either limit;
then the same job trains at one link speed after another, the fastest first. Where a heading names
no share, hosts shared the cores as they came, and step times at different numbers of hosts do not
compare. Such hosts are slow, and to them a link of 1 Gbit/s is a fast one:
what decides is the ratio of communication to computation, **Horovod's step / compute step** below,
where a compute step is that of one worker alone on such a host. In Parallax's measurements on 48
cards it was {ratio} (2.7 s / 0.175 s); there the headline is taken. Bytes are exact: the kernel
counts them at each host's interface, acknowledgements included, in packets of up to 64 KiB with one
header each, as it hands them to a network card. Frames of 1,500 bytes add headers of 4.5 %, to
every system's bytes alike; the links' speed is that of frames.

- **Step**: the slowest rank's, quartiles over the measured steps, after warm-up. 30 steps are
  measured at each link speed, or as many as take {budget} s, but no fewer than {fewest}; the column
  **steps** has their number, those of copies too. Where it has two, such as 9 x 20, there were so
  many rounds. As the machine's speed drifts, systems train at the same time where there are hosts
  for two or more, each on its own, and else take turns. The round of the median step is shown, and
  the median of the ratios of rounds in common.
- **First steps** of a job of ours are slower, why is not known: DeepFM with rows of 64 and fp16 at
  140 Mbit/s takes 2.2 s for four steps, and about 1.5 s from the twelfth. So at a job's first link
  speed twelve warm up, or as many as take 30 s. Where `warmup` in `results.json` has five or two, a
  record is of before: at a job's first speed it has some of the slow steps. The clicks' speeds of
  140 and 200 Mbit/s with rows of 64 on 8 hosts come after one without limits.
- **A host that has used up its share stops as a whole**: that is how the kernel holds it to it. So
  beside two threads that compute, one that has waited for a message goes on late, by what is
  measured [below](#how-late-a-thread-that-has-waited-goes-on); on a machine that is slow by itself
  it would not. What goes from host to host in a ring, as Horovod's collectives do, can be late on
  every one of them; what goes to a server and back, on two. In five traced steps of the language
  model at 52 Mbit/s, the allreduce of its small dense layer, which all had begun while they went on
  with the LSTM's gradient, was done after 0.47 s on 8 hosts and after 0.19 s on 2; the link takes
  0.02 s for it.
- **Floor**: each row that a host's batch names, pulled once and its gradient pushed once unless
  its shard is on that host, and a ring allreduce of the dense gradients; values of float32 only.
- **CPU** of one worker and its server for a step; **peak**: the largest process's resident memory
  in training; **first step**: from the start of `horovodrun`, without limits, once for a job.
- **Loss**: the mean over ranks in the last step that both the system and the reference took, steps
  at faster links before it included. All systems train the same model from the same weights on the
  same batches. More than {tolerance:.1%} apart is marked "differs": such a run does not count as
  faster.
- Every system runs on these hosts with `JEMALLOC_MALLOC_CONF=lg_dirty_mult:-1`. By default, the
  allocator of TensorFlow 1.11 gives freed pages back to the kernel and has them zeroed anew in
  every step; to keep them saves a sixth of the processor time of each system, raw TensorFlow's too.
- Horovod's own systems run with TensorFlow's graph optimizer at `L0` plus constant folding. At the
  default, TensorFlow merges Horovod's operations of the same input, such as the gathered ids of two
  tables that one column is looked up in, and leaves either name: DeepFM then stalls on 8 hosts.
- OpenEmbedding 0.1.2 is not here: with `-include deque` it compiles for TensorFlow 1.11, but its
  import fails, for it asks `tf.keras.optimizers` for an `Ftrl` that 1.11 does not have.
"""
WHERE_NOT = """
## Where hybrid does not pay

- A model without large tables: the plan is `allreduce`, and little is left to win. A step of the
  ResNet has 705 operations; with `horovod.keras` it has 817, for Keras updates a variable in six,
  and in raw TensorFlow 614, for `tf.train` does it in one. Beside it, ranks watch over each other:
  the threads and the guard of one take 0.2 to 0.3 ms of processor time a second, which is a third
  of a per cent of a host with a twelfth of a core.
- Two hosts: rows over servers and rows by allgather are about the same number of bytes (the
  [cost model](../how-it-works.md)), so all that is left to win is that repeated ids travel once.
- Many small tables over a fast link: they travel as one, but what is done for each of them, such as
  finding its unique ids, takes more processor time than Horovod's allgather does
  ([measured](../design/bundles.md)).
- Narrow rows: a row number of 4 bytes goes with each, 5 % of ten numbers that travel there and
  back, and what a step sends beside its rows weighs more. At a width of 9, half precision takes
  longer than full precision at 200 Mbit/s.
- More hosts on slow links: a host of 8 sends 7/8 of its rows and 2 x 7/8 of its dense gradients,
  one of 2 half of its rows and 2 x 1/2: 1.75 times the bytes. Where half precision takes 1.25 s for
  a step of the language model on 8 hosts at 52 Mbit/s, and 0.94 s on 2, a host's counters, read
  every 10 ms, show its link full and its processor idle for 30 % and 20 % of the time, with nothing
  left to compute, and neither busy for 21 % and 15 %. TensorFlow's traces tell where, in five steps
  that tracing makes longer (1.33 s and 1.11 s): the first rows are there on the slowest host after
  0.25 s and 0.13 s, of which the link alone takes 0.10 s and 0.06 s; from its last gradient to the
  end go 0.36 s and 0.20 s, the link alone 0.28 s and 0.16 s. In between, 8 hosts take no longer
  than 2. So there the step on 8 hosts is longer than 1.3 times that on 2. What was tried against
  it, and did not help: all dense gradients in one allreduce, rows pushed after the allreduce or
  after a signal that all have their gradients, rows pulled only when their server's worker has
  begun its step, Horovod without its cache.
- Half precision over fast links without a GPU: the language model's step on 8 hosts without limits
  takes 0.84 s with it and 0.77 s without. A profile showed 7 of 177 ms of processor time in Gloo's
  sums of dense gradients alone, which add halves in software, one at a time.
- Batches that touch nearly all of a table (α near 1), unless the servers' bytes are still fewer.
"""


#: Whom the sweep over α compares with.
ALPHA_PEERS = ('hvd-allgather', 'tf-ps')


def alpha_rows(alpha):
    """The sweep over α: a row for each.

    Args:
        alpha: dict from peers to what `compare.alpha_points` returns.
    """
    found = {peer: dict(points) for peer, points in alpha.items()}
    return [
        ['%.2f' % each]
        + ['%.2fx' % found[peer][each] if each in found[peer] else '' for peer in alpha]
        for each in sorted(set().union(*found.values()), reverse=True)
    ]


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
                '%.4f%s' % (_last_loss(record, by_system), '' if alike else ' (differs)'),
            ]
        )
    unit = next((one['unit'] for one in variant.records if 'unit' in one), 'units')
    headers = [
        'hosts', 'system', unit + '/s', 'step, s: quartiles', 'steps', 'speed / best Horovod',
        'sent, MB', 'received, MB', 'sent / floor', 'CPU, s', 'peak, MiB', 'first step, s', 'loss',
    ]  # fmt: skip
    return markdown(rows, headers)


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
    """Writes `index.md` and the plots.

    Args:
        records: a list of records.
        folder: where to.
    """
    variants = compare.variants(records)
    sweeps = {peer: compare.alpha_points(records, peer) for peer in ALPHA_PEERS}
    alpha = {peer: points for peer, points in sweeps.items() if points}
    for old in glob.glob(os.path.join(folder, 'plot-*.png')):
        os.remove(old)
    drawn = plots.draw(variants, alpha, folder)
    published = {name: results.published(folder, name) for name in scripts.SCRIPTS}
    alone = {name: content['results'] for name, content in published.items() if content}
    parts = [
        '# Benchmarks',
        INTRODUCTION.format(
            tolerance=compare.LOSS_TOLERANCE,
            ratio=targets.PAPER_RATIO,
            budget=schedule.BUDGET_SECONDS,
            fewest=schedule.FEWEST_STEPS,
            days=days(records),
            **results.machine(),
        ),
        '## Targets',
        markdown(targets.rows(variants, alone), targets.HEADERS),
        '## In short',
        markdown(targets.short_rows(variants), targets.SHORT_HEADERS),
    ]
    if plots.LINK_SPEED in drawn:
        parts.append('![speed-up over link speed](%s)' % plots.LINK_SPEED)
    if plots.ALPHA in drawn:
        parts += [
            '## Speed-up over α',
            'Hybrid on 8 hosts. Parallax published 2.04, 2.33, 2.43, 2.89, 3.02, 3.03, 3.42 for '
            'α = 1.0, .52, .28, .16, .10, .07, .04, on 48 cards. The dense gradients are the same '
            'for every α: so the fewer the rows, the less of a step is theirs.',
            markdown(alpha_rows(alpha), ['α'] + ['/ ' + SYSTEMS[peer].title for peer in alpha]),
            '![speed-up over α](%s)' % plots.ALPHA,
        ]
    for variant in variants:
        parts += ['## ' + variant.title, age(variant, records), table(variant)]
        if variant.plot in drawn:
            parts.append('![%s](%s)' % (variant.title, variant.plot))
    parts += scripts.sections(published) + [WHERE_NOT]
    with open(os.path.join(folder, 'index.md'), 'w', encoding='utf-8') as file:
        file.write('\n\n'.join(part.strip() for part in parts if part.strip()) + '\n')


def days(records):
    """When records were taken, as text."""
    found = sorted({record['date'] for record in records if 'date' in record})
    if not found:
        return 'on an unknown day'
    return found[0] if len(found) == 1 else '%s to %s' % (found[0], found[-1])
