# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether `architecture='auto'` is as fast as the best of those it chooses from.

`'hybrid'`, `'ps'`, `'allreduce'` and `'auto'` train the same at the same time, each on emulated
hosts of its own. `'auto'` first trains until it has chosen, while the others wait. Then all four
take rounds of steps; ratios are those of a round, and the median over rounds counts. With
`--out`, a folder, what came out is kept there. Needs root.

    python benchmarks/architectures.py
    python benchmarks/architectures.py --setting deepfm-2
"""

import sys

import click
from cluster.emulated_cluster import ClusterError, EmulatedCluster
from measuring import measure, suites
from report import results, scripts

SYSTEMS = scripts.FIXED + ('auto',)
#: Cores of all hosts together.
CORES = 2.0
#: How long a phase may take: in the first, `auto` trains a hundred steps or more.
LIMIT_SECONDS = 2700
#: How much slower than the best of the three `auto` may be.
MOST = 1.05
#: By name: a title, and what is trained on how many hosts at which link speed, Mbit/s. Those in
#: which another than hybrid was the fastest in the published benchmarks, and one in which it was.
SETTINGS = {
    'deepfm-2': ('DeepFM, 2 hosts, links not limited', 'ctr', 2, None),
    'deepfm-2-1000': ('DeepFM, 2 hosts, 1000 Mbit/s', 'ctr', 2, 1000),
    'deepfm-2-50': ('DeepFM, 2 hosts, 50 Mbit/s', 'ctr', 2, 50),
    'lm-2-200': ('language model, 2 hosts, 200 Mbit/s', 'lm', 2, 200),
    'lm-4-1000': ('language model, 4 hosts, 1000 Mbit/s', 'lm', 4, 1000),
}


def jobs_of(suite, hosts, speed, rounds, steps):
    """The jobs of a setting, as `measure.measure` takes them: a phase for each round."""
    cases = suites.cases(
        suite,
        (hosts,),
        SYSTEMS,
        steps=rounds * steps,
        bandwidths=(speed,),
        cores_per_host=CORES / hosts / len(SYSTEMS),
        rounds=rounds,
    )
    return [[case] * (1 + rounds) for case in cases]


def rounds_of(records):
    """Rounds of what was measured, dicts from systems to records, without the one that warms up."""
    count = len(records) // len(SYSTEMS)
    rounds = [records[first * len(SYSTEMS) :][: len(SYSTEMS)] for first in range(1, count)]
    return [{record['system']: record for record in of_round} for of_round in rounds]


def kept(title, records):
    """What is kept of a setting: a dict."""
    settled = next(record['settled_on'] for record in records if 'settled_on' in record)
    names = ('step_seconds', 'step_seconds_quarter', 'step_seconds_three_quarters', 'steps')
    return {
        'title': title,
        'settled_on': settled['following'],
        'trials': settled['measured'],
        'rounds': [
            {system: {name: record[name] for name in names} for system, record in of_round.items()}
            for of_round in rounds_of(records)
        ],
    }


@click.command()
@click.option('--setting', 'chosen', type=click.Choice(sorted(SETTINGS)), multiple=True)
@click.option('--rounds', default=5, show_default=True, help='How often all four take steps.')
@click.option('--steps', default=20, show_default=True, help='Steps of a round, if they are short.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(chosen, rounds, steps, out):
    """Prints how long steps take; without `--out`, `auto` must not be slower by 5 per cent."""
    found = []
    for name in chosen or SETTINGS:
        title, suite, hosts, speed = SETTINGS[name]
        jobs = jobs_of(suite, hosts, speed, rounds, steps)
        share = jobs[0][0]['cores_per_host']
        try:
            with EmulatedCluster(hosts * len(SYSTEMS), cores_per_host=share) as cluster:
                records = measure.measure(cluster, jobs, {}, lambda record: None, LIMIT_SECONDS)
        except ClusterError as error:
            raise click.ClickException(str(error)) from error
        errors = [record['error'] for record in records if 'error' in record]
        if errors:
            raise click.ClickException('%s: %s' % (title, errors[0]))
        found.append(kept(title, records))
        print(scripts.architectures_table(found), flush=True)
    if out:
        results.publish_part(out, 'architectures', found, ['title'])
    slow = [
        setting['title']
        for setting in found
        if max(scripts.settled_ratios(setting['rounds']).values()) > MOST
    ]
    for title in slow:
        print('auto is slower than the best by more than 5 %%: %s' % title, file=sys.stderr)
    # What is published is judged by who reads it.
    sys.exit(1 if slow and not out else 0)


if __name__ == '__main__':
    main()
