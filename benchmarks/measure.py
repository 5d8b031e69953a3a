"""Takes measurements on an emulated cluster and makes a record of each, plain data."""

import json
import os
import statistics
import sys
import tempfile
import time

import floor
import models
import phases
import suites
from emulated_cluster import EmulatedCluster

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.py')
#: A job that takes longer than this at one link speed, or from its start to the end of the first,
#: has failed.
LIMIT_SECONDS = 900
#: How long a job may take to end when all ranks have reported. Of TensorFlow's own parameter
#: servers some never do: a session that is closed waits for the server of a worker that has gone.
LEAVING_SECONDS = 20
#: What every system runs with. TensorFlow 1.11 allocates with jemalloc 4, which gives freed pages
#: back to the kernel and has them zeroed anew in every step. With the second, it keeps them: that
#: saves a sixth of the processor time of every system on this work, raw TensorFlow's too.
ENVIRON = {'TF_CPP_MIN_LOG_LEVEL': '2', 'JEMALLOC_MALLOC_CONF': 'lg_dirty_mult:-1'}


class BenchmarkError(Exception):
    """A measurement cannot be taken as asked for."""


def measure(cluster, cases, known, done):
    """Trains a system on some hosts of a cluster, at one link speed after another.

    Links and hosts get their speed after the first step: Horovod's first broadcast of a large table
    would take most of an hour over a slow link, and is not what is compared.

    Args:
        cluster: an `EmulatedCluster`, made with `cores_per_host` if the cases have it.
        cases: a job of `suites.jobs`: a list of dicts with `work`, `options`, `system`, `hosts`,
            `workers_per_host`, `bandwidth_mbit`, `cores_per_host`, `threads`, and `warmup` and
            `steps`, of which `schedule` takes fewer where steps are long.
        known: a dict that every record has too.
        done: called with each record as it comes.

    Returns:
        A list of records, dicts: the case, and what was seen, or `error`. What was measured before
        a job failed counts.
    """
    first, records = cases[0], []

    def keep(case, found):
        records.append(dict(case, load=os.getloadavg()[0], **found, **known))
        done(records[-1])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'seen')
        spec = dict(first, phases=len(cases), started=time.time())
        cluster.shape(None)
        if first['cores_per_host'] is not None:
            cluster.share_cores(None)
        job = cluster.start(
            [sys.executable, WORKER, json.dumps(spec), path],
            first['workers_per_host'],
            environ=dict(ENVIRON, OMP_NUM_THREADS=str(first['threads'])),
            hosts=range(first['hosts']),
        )
        for phase, case in enumerate(cases):
            seen = _take(cluster, job, path, phase, case)
            if seen is None:
                break
            keep(case, summary(seen))
        outcome = job.wait(LEAVING_SECONDS if seen else 1)
        cluster.end_processes()
    for case in cases[len(records) :]:
        keep(case, {'error': last_words(outcome, LIMIT_SECONDS)})
    return records


def _take(cluster, job, path, phase, case):
    """What all ranks of a job saw in a phase; `None` if it has failed."""
    end = time.time() + LIMIT_SECONDS
    if not _wait(job, end, lambda: phases.is_ready(path, phase)):
        return None
    cluster.shape(case['bandwidth_mbit'])
    if phase == 0 and case['cores_per_host'] is not None:
        cluster.share_cores(case['cores_per_host'])
    phases.begin(path, phase)
    ranks = case['hosts'] * case['workers_per_host']
    return _wait(job, end, lambda: phases.read(path, phase, ranks))


def _wait(job, end, found):
    """What `found()` returns as soon as that is something, or the job has ended or its time."""
    while job.process.poll() is None and time.time() < end:
        value = found()
        if value:
            return value
        time.sleep(0.2)
    return found()


def last_words(outcome, limit):
    """Why a job failed, in a line or so."""
    if outcome.code is None:
        return 'did not end within %d s' % limit
    lines = [line for line in outcome.output.splitlines() if 'Error' in line]
    return lines[0][-300:] if lines else 'exit code %d' % outcome.code


def summary(seen):
    """What all ranks saw, in one record.

    Args:
        seen: a list with the dict that each rank wrote of a phase.

    Returns:
        A dict. Bytes are those of one host, on the mean over hosts, for each step. `losses` are
        those of all steps since the start of the job.
    """
    # The first worker of a host speaks for it: both read the same counters.
    hosts = [one for one in seen if one['local_rank'] == 0]
    # A step is as long as the rank that took longest.
    seconds = [max(step) for step in zip(*(one['seconds'] for one in seen))]
    median = statistics.median(seconds)
    ordered = sorted(seconds)
    return {
        'warmup': seen[0]['warmup'],
        'steps': seen[0]['steps'],
        'step_seconds': median,
        'step_seconds_quarter': ordered[len(ordered) // 4],
        'step_seconds_three_quarters': ordered[(3 * len(ordered)) // 4],
        'unit': seen[0]['unit'],
        'units_per_second': seen[0]['units'] * len(seen) / median,
        'sent_bytes': statistics.mean(one['sent'] for one in hosts),
        'sent_bytes_most': max(one['sent'] for one in hosts),
        'received_bytes': statistics.mean(one['received'] for one in hosts),
        'cpu_seconds': statistics.mean(one['cpu_seconds'] for one in seen),
        'peak_mib': max(one['peak_mib'] for one in seen),
        'start_peak_mib': max(one['start_peak_mib'] for one in seen),
        'first_step_seconds': max(one['first_step_seconds'] for one in seen),
        'losses': [statistics.mean(step) for step in zip(*(one['losses'] for one in seen))],
    }


def measure_all(cases, done=lambda record: None):
    """Takes measurements one after another, on one cluster of as many hosts as they need.

    Args:
        cases: a list as `suites.cases` returns it, all of the same `cores_per_host`.
        done: called with each record as it comes.

    Returns:
        A list of records.
    """
    if os.geteuid() != 0:
        raise BenchmarkError('The emulated cluster needs root: network namespaces are made.')
    records, floors = [], {}
    hosts, cores = max(case['hosts'] for case in cases), cases[0]['cores_per_host']
    with EmulatedCluster(hosts, cores_per_host=cores) as cluster:
        for job in suites.jobs(cases):
            case = job[0]
            key = json.dumps(
                [case[name] for name in ('work', 'options', 'hosts', 'workers_per_host')]
            )
            # Before the job, whose time it would take. Batches at other link speeds are alike.
            if key not in floors:
                work = models.WORKS[case['work']](**case['options'])
                floors[key] = floor.floor(
                    work, case['hosts'], case['workers_per_host'], 5, case['warmup']
                )
            records += measure(cluster, job, floors[key], done)
    return records
