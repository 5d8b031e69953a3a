# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Takes measurements on an emulated cluster and makes a record of each, plain data."""

import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any, NamedTuple

from cluster.emulated_cluster import EmulatedCluster
from works import floor, models, stack

from measuring import phases, schedule, suites

WORKER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'worker.py')
#: A job that takes longer than this at one link speed, or from its start to the end of the first,
#: has failed.
LIMIT_SECONDS = 900
#: How long a job may take to end when all workers have reported. Of TensorFlow's own parameter
#: servers some never do: a session that is closed waits for the server of a worker that has gone.
LEAVING_SECONDS = 20
#: Batches that the floor is computed from: the first that a job measures, where steps are short.
FLOOR_STEPS = 10
#: Hosts that have a share of the processor each are at work at all times, as many as there is room
#: for on so many cores. Processors that share caches and memory with busy ones are slower; on more
#: cores, memory would run out first.
BUSY_CORES = 2
#: What every system runs with. TensorFlow 1.11 allocates with jemalloc 4, which gives freed pages
#: back to the kernel and has them zeroed anew in every step. With the second, it keeps them: that
#: saves a sixth of the processor time of every system on this work, raw TensorFlow's too.
ENVIRON = {
    'TF_CPP_MIN_LOG_LEVEL': '2',
    'JEMALLOC_MALLOC_CONF': 'lg_dirty_mult:-1',
    # Of TensorFlow 2: its Keras 2. Here, because a worker imports Horovod before all else.
    'TF_USE_LEGACY_KERAS': '1',
}


class BenchmarkError(Exception):
    """A measurement cannot be taken as asked for."""


class Copy(NamedTuple):
    """One of the jobs that train the same on different hosts.

    Attributes:
        job: its `emulated_cluster.Job`.
        path: what the names of its files begin with: see `phases`.
    """

    job: Any
    path: str


def copies_of(case, cores, systems=1):
    """How many copies of a job train side by side, so that the machine is equally busy.

    Args:
        case: as `measure` takes them.
        cores: how many the machine has.
        systems: how many systems train side by side, each with as many copies.
    """
    return max(1, _hosts_for(case, cores) // (systems * case['hosts']))


def _hosts_for(case, cores):
    """How many hosts the machine has room for; 1 if hosts share its cores as they come."""
    share = case['cores_per_host']
    return 1 if share is None else int(min(cores, BUSY_CORES) / share)


def measure(cluster, jobs, known, done, limit=LIMIT_SECONDS):
    """Trains systems side by side, each on hosts of its own, at one link speed after another.

    Copies of the jobs train on hosts that they leave idle, and what they do counts as well.

    Links and hosts get their speed after the first step: Horovod's first broadcast of a large table
    would take most of an hour over a slow link, and is not what is compared.

    Args:
        cluster: an `EmulatedCluster`, made with `cores_per_host` if the cases have it.
        jobs: jobs of `suites.jobs` that differ in nothing but the system: each a list of dicts with
            `work`, `options`, `system`, `hosts`, `workers_per_host`, `bandwidth_mbit`,
            `cores_per_host`, `threads`, and `warmup` and `steps`, of which `schedule` takes fewer
            where steps are long.
        known: a dict that every record has too.
        done: called with each record as it comes.
        limit: how many seconds a phase may take.

    Returns:
        A list of records, dicts: the case, and what was seen, or `error`. What was measured before
        a job failed counts; if one fails, all do.
    """
    first, records = jobs[0][0], []

    def keep(case, found):
        seen = dict(case, stack=stack.NAME, load=os.getloadavg()[0])
        records.append(dict(seen, **found, **known))
        done(records[-1])

    with tempfile.TemporaryDirectory() as folder:
        cluster.shape(None)
        if first['cores_per_host'] is not None:
            cluster.share_cores(None)
        copies = [
            _start(cluster, job[0], len(job), os.path.join(folder, 'copy%d' % number), number)
            for number, job in enumerate(jobs * copies_of(first, os.cpu_count(), len(jobs)))
        ]
        for phase, cases in enumerate(zip(*jobs)):
            seen = take_phase(cluster, copies, phase, cases[0], limit)
            if seen is None:
                break
            for number, case in enumerate(cases):
                keep(case, summary(seen[number :: len(jobs)]))
        # Those that have failed come first.
        copies.sort(key=lambda copy: copy.job.process.poll() is None)
        outcomes = [copy.job.wait(LEAVING_SECONDS if seen else 1) for copy in copies]
        cluster.end_processes()
    for cases in list(zip(*jobs))[len(records) // len(jobs) :]:
        for case in cases:
            keep(case, {'error': last_words(outcomes[0], limit)})
    return records


def _start(cluster, case, phases_of_job, path, number):
    """Starts a copy of a job, on the hosts that are its own by its number; returns a `Copy`."""
    spec = dict(case, phases=phases_of_job, started=time.time())
    job = cluster.start(
        [sys.executable, WORKER, json.dumps(spec), path],
        case['workers_per_host'],
        environ=dict(ENVIRON, OMP_NUM_THREADS=str(case['threads'])),
        hosts=range(number * case['hosts'], (number + 1) * case['hosts']),
    )
    return Copy(job, path)


def take_phase(cluster, copies, phase, case, limit):
    """Gives links and hosts their speed when all are ready for a phase, and has it taken.

    Args:
        cluster: an `EmulatedCluster`.
        copies: a list of `Copy`.
        phase: its number.
        case: a dict with `hosts`, `workers_per_host`, `bandwidth_mbit` and `cores_per_host`.
        limit: how many seconds it may take.

    Returns:
        What all workers saw, a list for each copy; `None` if one has failed.
    """
    end = time.time() + limit
    if not wait(copies, end, lambda copy: phases.is_ready(copy.path, phase)):
        return None
    cluster.shape(case['bandwidth_mbit'])
    if phase == 0 and case['cores_per_host'] is not None:
        cluster.share_cores(case['cores_per_host'])
    for copy in copies:
        phases.begin(copy.path, phase)
    ranks = case['hosts'] * case['workers_per_host']
    return wait(copies, end, lambda copy: phases.read(copy.path, phase, ranks))


def wait(copies, end, found):
    """What `found(copy)` returns, a list, when it is something for all; `None` if it never is."""
    while True:
        over = time.time() > end
        ended = [copy.job.process.poll() is not None for copy in copies]
        values = list(map(found, copies))
        if all(values):
            return values
        # A copy that has left what it saw in the last phase ends before the others have.
        if over or any(gone and not value for gone, value in zip(ended, values)):
            return None
        time.sleep(0.2)


def last_words(outcome, limit):
    """Why a job failed, in a line or so."""
    if outcome.code is None:
        return 'did not end within %d s' % limit
    # What was raised, and not the line of code that raised it, if both are there.
    lines = [line for line in outcome.output.splitlines() if 'Error' in line]
    lines.sort(key=lambda line: 'Error: ' not in line)
    return lines[0][-300:] if lines else 'exit code %d' % outcome.code


def summary(seen):
    """What all workers saw, in one record.

    Args:
        seen: a list for each copy of the job, with the dict that each worker wrote of a phase.

    Returns:
        A dict. Bytes are those of one host, on the mean over hosts, for each step. `losses` are
        those of all steps since the start of the job; copies train on the same batches.
    """
    first, everyone = seen[0], list(itertools.chain.from_iterable(seen))
    # The first worker of a host speaks for it: both read the same counters.
    hosts = [one for one in everyone if one['local_rank'] == 0]
    # A step is as long as the worker that took longest.
    ordered = sorted(max(step) for copy in seen for step in zip(*(one['seconds'] for one in copy)))
    median = statistics.median(ordered)
    return {
        'copies': len(seen),
        'warmup': first[0]['warmup'],
        'steps': len(ordered),
        'step_seconds': median,
        'step_seconds_quarter': ordered[len(ordered) // 4],
        'step_seconds_three_quarters': ordered[(3 * len(ordered)) // 4],
        'unit': first[0]['unit'],
        'units_per_second': first[0]['units'] * len(first) / median,
        'sent_bytes': statistics.mean(one['sent'] for one in hosts),
        'sent_bytes_most': max(one['sent'] for one in hosts),
        'received_bytes': statistics.mean(one['received'] for one in hosts),
        'cpu_seconds': statistics.mean(one['cpu_seconds'] for one in everyone),
        'peak_mib': max(one['peak_mib'] for one in everyone),
        'start_peak_mib': max(one['start_peak_mib'] for one in everyone),
        'first_step_seconds': max(one['first_step_seconds'] for one in everyone),
        **{name: first[0][name] for name in ('settled_on',) if name in first[0]},
        # Where one worker reports for all, the others have none.
        'losses': [
            statistics.mean(step)
            for step in zip(*(one['losses'] for one in first if one['losses']))
        ],
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
    jobs, cores = suites.jobs(cases), cases[0]['cores_per_host']
    groups = suites.side_by_side(jobs, _hosts_for(cases[0], os.cpu_count()))
    hosts = max(
        group[0][0]['hosts'] * len(group) * copies_of(group[0][0], os.cpu_count(), len(group))
        for group in groups
    )
    with EmulatedCluster(hosts, cores_per_host=cores) as cluster:
        for group in groups:
            case = group[0][0]
            key = json.dumps(
                [case[name] for name in ('work', 'options', 'hosts', 'workers_per_host')]
            )
            # Before the job, whose time it would take. Batches at other link speeds are alike.
            if key not in floors:
                work = models.WORKS[case['work']](**case['options'])
                floors[key] = floor.floor(
                    work,
                    case['hosts'],
                    case['workers_per_host'],
                    FLOOR_STEPS,
                    skip=1 + schedule.SETTLING_STEPS,
                )
            records += measure(cluster, group, floors[key], done)
    return records
