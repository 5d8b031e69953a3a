# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How good a model is after how long, by system: what `make bench` runs for convergence.md.

python benchmarks/convergence.py --out FOLDER
python benchmarks/convergence.py --works lm --systems hybrid --hosts 2 --steps 20

The same steps of the same batches, from the same weights. Time is that of training steps: without
the start of the job, and without the reading of weights, which another process judges afterwards.
"""

import functools
import json
import os
import sys
import tempfile

import click
import numpy as np
from cluster.emulated_cluster import EmulatedCluster
from measuring import measure
from report import results
from systems import catalog
from works import judges, models

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, 'convergence_worker.py')
SYSTEMS = ('hvd-allgather', 'tf-ps', 'hybrid')
#: Name of a work to its options, the rate with which it learns in so few steps, and its judge.
WORKS = {
    'lm': ({'vocabulary': 10000, 'words': 'corpus'}, 0.03, judges.perplexity),
    'ctr': ({}, 0.02, judges.accuracy),
}
LIMIT_SECONDS = 3000


def train(cluster, spec, bandwidth, cores, path):
    """Trains one system, and leaves its weights in files; returns the seconds of each step.

    Args:
        cluster: an `EmulatedCluster`.
        spec: what `convergence_worker.py` takes.
        bandwidth: Mbit/s of each host.
        cores: of each host.
        path: what the names of the job's files begin with.
    """
    cluster.shape(None)
    cluster.share_cores(None)
    job = cluster.start(
        [sys.executable, WORKER, json.dumps(spec), path],
        1,
        environ=dict(measure.ENVIRON, OMP_NUM_THREADS='1'),
        hosts=range(spec['hosts']),
    )

    case = dict(
        hosts=spec['hosts'], workers_per_host=1, bandwidth_mbit=bandwidth, cores_per_host=cores
    )
    seen = measure.take_phase(cluster, [measure.Copy(job, path)], 0, case, LIMIT_SECONDS)
    if seen is None:
        raise click.ClickException(measure.last_words(job.wait(1), LIMIT_SECONDS))
    job.wait(measure.LEAVING_SECONDS)
    cluster.end_processes()
    # A step is as long as the worker that took longest. The first one comes before the links'
    # speed.
    return [0.0] + [max(step) for step in zip(*(rank['seconds'] for rank in seen[0]))][1:]


def curve(judge, seconds, path, steps, every):
    """Pairs of seconds of training, and what a judge says of the weights by then."""
    elapsed = np.cumsum(seconds)
    points = []
    for count in range(every, steps + 1, every):
        with np.load('%s.%d.npz' % (path, count)) as saved:
            weights = [saved['arr_%d' % place] for place in range(len(saved.files))]
        points.append((float(elapsed[count - 1]), judge(weights)))
    return points


@click.command()
@click.option('--out', help='Folder for the result; none by default.')
@click.option('--works', default=','.join(WORKS), show_default=True)
@click.option('--systems', default=','.join(SYSTEMS), show_default=True)
@click.option('--hosts', default=8, show_default=True)
@click.option('--bandwidth', default=200.0, show_default=True, help='Mbit/s of each host.')
@click.option('--cores-per-host', default=0.25, show_default=True)
@click.option('--steps', default=100, show_default=True)
@click.option('--every', default=10, show_default=True, help='Steps from one point to the next.')
def main(out, works, systems, hosts, bandwidth, cores_per_host, steps, every):
    """Measures what is learned over time."""
    found = dict(
        hosts=hosts, bandwidth_mbit=bandwidth, cores_per_host=cores_per_host, steps=steps, works={}
    )
    with EmulatedCluster(hosts, cores_per_host=cores_per_host) as cluster:
        for name in works.split(','):
            options, rate, judge = WORKS[name]
            work = models.WORKS[name](**options)
            of_systems = found['works'][name] = {}
            for system in systems.split(','):
                spec = dict(
                    work=name, options=options, rate=rate, system=system, hosts=hosts,
                    steps=steps, every=every, threads=1,
                )  # fmt: skip
                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, 'job')
                    seconds = train(cluster, spec, bandwidth, cores_per_host, path)
                    of_work = functools.partial(judge, work)
                    of_systems[system] = curve(of_work, seconds, path, steps, every)
                click.echo('%s %s' % (name, catalog.SYSTEMS[system].title))
                for point in of_systems[system]:
                    click.echo('  %.1f s: %.4g' % point)
    if out:
        results.publish(out, 'convergence', found)


if __name__ == '__main__':
    main()
