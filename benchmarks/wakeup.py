# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How late a thread goes on that waits on an emulated host, beside others that compute.

The kernel holds a host to its share by stopping all that runs on it. A machine that is slow by
itself would let a thread that has waited go on at once; here it may have to wait again. A message
that goes from host to host, as in a ring, may be late by that on each of them.

With `--out`, a folder, what came out is kept there. Needs root.

    python benchmarks/wakeup.py
"""

import multiprocessing
import os
import sys
import time

import click
import numpy as np
from cluster.emulated_cluster import ClusterError, EmulatedCluster
from measuring import suites
from report import results, scripts

#: What the thread waits for, seconds.
NAP = 0.003
#: Numbers of processes that compute.
BUSY = (0, 1, 2)
PERCENTILES = (50, 90, 99)


def compute_until(end):
    """Computes until a time of `time.monotonic`."""
    while time.monotonic() < end:
        pass


def naps(busy, seconds):
    """Sleeps beside processes that compute.

    Args:
        busy: the number of these processes.
        seconds: for how long.

    Returns:
        By how many milliseconds it woke up late, a float for each nap.
    """
    end = time.monotonic() + seconds
    others = [
        multiprocessing.Process(target=compute_until, args=(end,), daemon=True) for _ in range(busy)
    ]
    for other in others:
        other.start()
    late = []
    while time.monotonic() < end:
        start = time.monotonic()
        time.sleep(NAP)
        late.append(1e3 * (time.monotonic() - start - NAP))
    for other in others:
        other.join()
    return late


def measure(cluster, cores, busy, seconds):
    """What `naps` returns on the first of a cluster's hosts.

    Args:
        cluster: an `EmulatedCluster` made with `cores_per_host`.
        cores: what a host has of the processor; `None` for no limit.
        busy, seconds: as `naps` takes them.

    Raises:
        ClusterError: it did not run.
    """
    cluster.share_cores(cores)
    words = [sys.executable, os.path.abspath(__file__), '--here', busy, '--seconds', seconds]
    outcome = cluster.exec(0, words)
    if outcome.code != 0:
        raise ClusterError('wakeup.py failed on an emulated host: %s' % outcome.output)
    return [float(word) for word in outcome.output.split()]


def summary(cores, busy, late):
    """What is kept of how late naps ended, ms: a dict."""
    return {
        'cores': cores,
        'busy': busy,
        'naps': len(late),
        'mean': float(np.mean(late)),
        'percentiles': {str(share): float(np.percentile(late, share)) for share in PERCENTILES},
    }


@click.command()
@click.option('--cores', type=float, default=suites.CORES_PER_HOST, show_default=True)
@click.option('--seconds', default=5.0, show_default=True, help='How long each takes its turn.')
@click.option('--rounds', default=4, show_default=True, help='How often each has its turn.')
@click.option('--out', help='Folder that keeps the results, for the report.')
@click.option('--here', type=int, help='Measure beside so many, where this runs, and print all.')
def main(cores, seconds, rounds, out, here):
    """Prints how late a thread wakes up on a host of so many cores, and on one without a limit."""
    if here is not None:
        print(*naps(here, seconds))
        return
    found = {(share, busy): [] for share in (None, cores) for busy in BUSY}
    try:
        with EmulatedCluster(1, cores_per_host=cores) as cluster:
            for _ in range(rounds):
                for (share, busy), late in found.items():
                    late += measure(cluster, share, busy, seconds)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error
    found = [summary(share, busy, late) for (share, busy), late in found.items()]
    print(scripts.wakeup_table(found))
    if out:
        results.publish(out, 'wakeup', found)


if __name__ == '__main__':
    main()
