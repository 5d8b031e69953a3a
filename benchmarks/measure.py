"""Takes a measurement on an emulated cluster and makes a record of it, plain data."""

import glob
import json
import os
import statistics
import sys
import tempfile
import time

import floor
import models
from emulated_cluster import EmulatedCluster

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.py')
#: A system that takes longer than this is recorded as failed.
LIMIT_SECONDS = 900
#: How long a job may take to end when all ranks have reported. Of TensorFlow's own parameter
#: servers some never do: a session that is closed waits for the server of a worker that has gone.
LEAVING_SECONDS = 20


class BenchmarkError(Exception):
    """A measurement cannot be taken as asked for."""


def measure(cluster, case):
    """Trains a system on some hosts of a cluster.

    Links and hosts get their speed after the first step: Horovod's first broadcast of a large table
    would take most of an hour over a slow link, and is not what is compared.

    Args:
        cluster: an `EmulatedCluster`, made with `cores_per_host` if the case has it.
        case: a dict: `work`, `options`, `system`, `hosts`, `workers_per_host`, `bandwidth_mbit`,
            `cores_per_host`, `threads`, and `warmup` and `steps`, of which `schedule` takes fewer
            where steps are long.

    Returns:
        A dict: the case, and what was seen, or `error`.
    """
    record = dict(case)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'seen')
        spec = dict(case, started=time.time())
        cluster.shape(None)
        if case['cores_per_host'] is not None:
            cluster.share_cores(None)
        job = cluster.start(
            [sys.executable, WORKER, json.dumps(spec), path],
            case['workers_per_host'],
            environ={'TF_CPP_MIN_LOG_LEVEL': '2', 'OMP_NUM_THREADS': str(case['threads'])},
            hosts=range(case['hosts']),
        )
        end = time.time() + LIMIT_SECONDS
        while job.process.poll() is None and time.time() < end:
            if os.path.exists(path + '.started'):
                cluster.shape(case['bandwidth_mbit'])
                if case['cores_per_host'] is not None:
                    cluster.share_cores(case['cores_per_host'])
                open(path + '.shaped', 'w').close()
                break
            time.sleep(0.2)
        ranks = case['hosts'] * case['workers_per_host']
        while job.process.poll() is None and time.time() < end:
            if len(glob.glob(path + '.rank*')) == ranks:
                end = time.time() + LEAVING_SECONDS
                break
            time.sleep(0.2)
        outcome = job.wait(max(1, end - time.time()))
        cluster.end_processes()
        seen = []
        for name in glob.glob(path + '.rank*'):
            with open(name) as file:
                seen.append(json.load(file))
    record['load'] = os.getloadavg()[0]
    if len(seen) < ranks:
        record['error'] = last_words(outcome, LIMIT_SECONDS)
        return record
    seen.sort(key=lambda one: one['rank'])
    record.update(summary(seen))
    return record


def last_words(outcome, limit):
    """Why a job failed, in a line or so."""
    if outcome.code is None:
        return 'did not end within %d s' % limit
    lines = [line for line in outcome.output.splitlines() if 'Error' in line]
    return lines[0][-300:] if lines else 'exit code %d' % outcome.code


def summary(seen):
    """What all ranks saw, in one record.

    Args:
        seen: a list with the dict that each rank wrote.

    Returns:
        A dict. Bytes are those of one host, on the mean over hosts, for each step.
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
        cases: a list of dicts as `measure` takes them, all of the same `cores_per_host`.
        done: called with each record.

    Returns:
        A list of records.
    """
    if os.geteuid() != 0:
        raise BenchmarkError('The emulated cluster needs root: network namespaces are made.')
    records, floors = [], {}
    hosts, cores = max(case['hosts'] for case in cases), cases[0]['cores_per_host']
    with EmulatedCluster(hosts, cores_per_host=cores) as cluster:
        for case in cases:
            record = measure(cluster, case)
            key = json.dumps(
                [case[name] for name in ('work', 'options', 'hosts', 'workers_per_host')]
            )
            if key not in floors:
                work = models.WORKS[case['work']](**case['options'])
                floors[key] = floor.floor(
                    work, case['hosts'], case['workers_per_host'], 5, case['warmup']
                )
            record.update(floors[key])
            records.append(record)
            done(record)
    return records
