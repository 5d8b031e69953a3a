# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step takes with a `DynamicEmbedding` and with an `EmbeddingBag`, over `Embedding`.

Both models of a pair are in one job, on one host or several, which are emulated. They take steps of
the same rows in turn; ratios are those of a round, and the median over rounds counts. With `--out`,
a folder, what came out is kept there. Needs root.

    python benchmarks/table_steps.py
    python benchmarks/table_steps.py --case bag --hosts 1 --rounds 3
"""

import json
import os
import statistics
import sys
import tempfile

import click
from cluster.emulated_cluster import ClusterError, EmulatedCluster
from measuring import measure
from report import results, scripts
from works import table_pairs

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'table_steps_worker.py')
#: Cores of all hosts together.
CORES = 2.0
#: Mbit/s of the links where they are limited.
LIMITED = 200
#: How long a phase may take.
LIMIT_SECONDS = 1800
#: What tells the entries of its results apart.
TOLD_BY = ('title', 'ids', 'hosts', 'bandwidth_mbit')


def take(cluster, spec, speeds):
    """Runs a job on the first of a cluster's hosts.

    Args:
        cluster: an `EmulatedCluster` made with `cores_per_host`.
        spec: what `table_steps_worker.py` takes, but for `phases`; and `hosts`.
        speeds: Mbit/s of the links in each phase, `None` for no limit.

    Returns:
        For each phase what all workers saw, a list of lists.

    Raises:
        ClusterError: the job failed.
    """
    hosts, seen = spec['hosts'], []
    case = dict(
        hosts=hosts, workers_per_host=1, cores_per_host=None if hosts == 1 else CORES / hosts
    )
    environ = {'TF_CPP_MIN_LOG_LEVEL': '2'}
    if hosts > 1:
        # A host of a core or less has no use for more threads.
        environ['OMP_NUM_THREADS'] = '1'
    cluster.shape(None)
    cluster.share_cores(None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'job')
        job = cluster.start(
            [sys.executable, WORKER, json.dumps(dict(spec, phases=len(speeds))), path],
            environ=environ,
            hosts=range(hosts),
        )
        for phase, speed in enumerate(speeds):
            copies = [measure.Copy(job, path)]
            of_phase = measure.take_phase(
                cluster, copies, phase, dict(case, bandwidth_mbit=speed), LIMIT_SECONDS
            )
            if of_phase is None:
                raise ClusterError(measure.last_words(job.wait(1), LIMIT_SECONDS))
            seen += of_phase
        job.wait(measure.LEAVING_SECONDS)
        cluster.end_processes()
    return seen


def rounds_of(ranks):
    """The median step of both models in each round, seconds: a list of pairs.

    Args:
        ranks: for each worker the rounds that `table_steps_worker.rounds_of` returns. A step is as
            long as the worker that took longest.
    """
    return [
        [statistics.median(map(max, zip(*of_model))) for of_model in zip(*of_round)]
        for of_round in zip(*ranks)
    ]


def kept(case, hosts, speed, ranks):
    """What is kept of what all workers saw in a phase: a dict for each way to draw ids."""
    return [
        {
            'title': '%s, width %d' % (case.title, case.width),
            'bound': case.bound,
            'ids': draw,
            'hosts': hosts,
            'bandwidth_mbit': speed,
            'rounds': rounds_of([rank[draw] for rank in ranks]),
        }
        for draw in case.draws
    ]


@click.command()
@click.option('--case', 'chosen', type=click.Choice(sorted(table_pairs.CASES)), multiple=True)
@click.option('--hosts', 'counts', type=int, multiple=True, help="Instead of the case's.")
@click.option('--rows', default=10**6, show_default=True, help='Of both tables.')
@click.option('--rounds', default=9, show_default=True, help='How often both take steps.')
@click.option('--steps', default=5, show_default=True, help='Steps of each in a round.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(chosen, counts, rows, rounds, steps, out):
    """Prints what steps take, and their ratios."""
    found = []
    for name in chosen or table_pairs.CASES:
        case = table_pairs.CASES[name]
        for hosts in counts or case.hosts:
            speeds = [None, LIMITED] if case.limited and hosts > 1 else [None]
            spec = dict(case=name, hosts=hosts, rows=rows, rounds=rounds * case.rounds, steps=steps)
            try:
                with EmulatedCluster(hosts, cores_per_host=CORES / hosts) as cluster:
                    seen = take(cluster, spec, speeds)
            except ClusterError as error:
                raise click.ClickException('%s, %d hosts: %s' % (name, hosts, error)) from error
            added = [kept(case, hosts, *pair) for pair in zip(speeds, seen)]
            found += sum(added, [])
            print(scripts.table_steps_table(sum(added, [])), flush=True)
    if out:
        results.publish_part(out, 'table_steps', found, TOLD_BY)


if __name__ == '__main__':
    main()
