# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which measurements are taken: pure functions from a choice to a list of cases."""

import itertools
import json
import math

ALONE = ('keras', 'tf')
HOROVOD = ('hvd-keras', 'hvd-allgather', 'hvd-dense')
PEERS = HOROVOD + ('tf-ps', 'tf-ps-strategy')
OURS = ('hybrid', 'hybrid-fp16', 'allreduce', 'allreduce-fp16', 'ps', 'ps-fp16')
#: Cores of each host in what is published, but for suites that have their own: 8 hosts are all of
#: a machine of two, and a host is the same machine in clusters of any size.
CORES_PER_HOST = 0.25
#: Steps at each link speed before those that are measured, where they are short.
WARMUP = 5
#: Steps at each link speed that are measured, where they are short.
STEPS = 30
#: Link speeds, Mbit/s; `None` leaves the links as fast as the machine is.
BANDWIDTHS = (None, 1000, 200)
#: Systems that send tables whole. At a headline's speed, and below, they take minutes a step.
WHOLE_TABLES = ('hvd-keras', 'hvd-dense')
#: Lengths of Parallax's sentences, from α = 1 down.
ALPHA_LENGTHS = (120, 60, 30, 15, 8, 4, 1)

#: Name of a suite to what it trains, and on what: on all `hosts` and `bandwidths` by default, and
#: at the speed of its `headline`. With `rounds`, all is measured so often, in turns, each time with
#: a part of the `steps`.
SUITES = {
    'lm': dict(
        work='lm',
        variants=[{}],
        systems=ALONE + PEERS + OURS,
        # Where Horovod's step was nearest to the paper's 15 compute steps.
        headline=52,
    ),
    'lm-corpus': dict(
        work='lm',
        variants=[{'words': 'corpus'}],
        systems=('hvd-allgather', 'tf-ps', 'hybrid'),
        hosts=(2, 8),
        bandwidths=(200,),
    ),
    'ctr': dict(
        work='ctr',
        variants=[{'kind': 'deepfm', 'width': 64}],
        systems=ALONE + PEERS + OURS,
        bandwidths=BANDWIDTHS + (50,),
        headline=140,
    ),
    # The other models and widths, where that tells most.
    'ctr-more': dict(
        work='ctr',
        variants=[
            {'kind': kind, 'width': width}
            for kind, width in (('wide_deep', 64), ('deepfm', 9), ('wide_deep', 9))
        ],
        systems=('tf', 'hvd-allgather', 'tf-ps', 'hybrid', 'hybrid-fp16'),
        hosts=(1, 2, 8),
        bandwidths=(200,),
    ),
    # What is compared differs by less than the machine's speed drifts from one job to the next. So
    # hosts are small enough for three systems to train side by side on eight each. Rounds of twenty
    # steps still differ by 2 %: the same system against itself does.
    'dense': dict(
        work='dense',
        variants=[{}],
        systems=('tf', 'hvd-keras', 'hvd-allgather', 'hybrid'),
        cores_per_host=0.083,
        rounds=9,
        steps=180,
    ),
    # For `smoke.py`: small, and rows wide enough for headers not to matter.
    'smoke': dict(
        work='lm',
        variants=[
            dict(vocabulary=20000, width=128, state=32, batch=64, length=10, noise=128),
        ],
        systems=('hvd-allgather', 'tf-ps', 'tf-ps-strategy', 'hybrid', 'allreduce'),
        hosts=(2,),
        bandwidths=(200, 100),
    ),
    'alpha': dict(
        work='alpha',
        variants=[{'length': length} for length in ALPHA_LENGTHS],
        systems=('hvd-allgather', 'tf-ps', 'hybrid'),
        hosts=(8,),
        bandwidths=(200,),
    ),
    # What each part of the engine brings, one after another: two workers on each host, so that
    # there is something for them to do together.
    'parts': dict(
        work='lm',
        variants=[{}],
        systems=('tf-ps', 'hybrid-whole', 'hybrid-shards', 'hybrid-together', 'hybrid-density'),
        hosts=(4,),
        workers_per_host=2,
        cores_per_host=0.5,
        bandwidths=(100,),
    ),
    'shards': dict(
        work='lm',
        variants=[{}],
        systems=tuple('shards-%d' % count for count in (1, 2, 4, 8, 16, 32)),
        hosts=(4,),
        cores_per_host=0.25,
        bandwidths=(200,),
    ),
}

#: What `make bench` measures when it is not told otherwise.
PUBLISHED = ('lm', 'ctr', 'dense', 'alpha', 'lm-corpus', 'ctr-more', 'parts', 'shards')
#: The same on a stack that is not the first.
PUBLISHED_ELSEWHERE = ('lm', 'ctr')


def cases(
    suite,
    hosts=(1, 2, 4, 8),
    systems=None,
    workers_per_host=None,
    steps=None,
    variants=None,
    bandwidths=None,
    cores_per_host=None,
    rounds=None,
):
    """The measurements of a suite.

    Args:
        suite: a name in `SUITES`.
        hosts: numbers of hosts.
        systems: names of systems; by default the suite's.
        workers_per_host: number of workers on each host; by default the suite's, or one.
        steps: number of steps that are measured at each link speed, where they are short, in all
            rounds together; by default the suite's.
        variants: a list of options of the work; by default the suite's.
        bandwidths: link speeds in Mbit/s, `None` for no limit; by default the suite's.
        cores_per_host: what a host has of the processor; `None` for no limit.
        rounds: how often each case is to be measured; by default the suite's.

    Returns:
        A list of dicts, as `measure.measure` takes them. A system for one process comes with one
        host only, and systems that need others do not come with one, except `hybrid`. What sends
        nothing comes once, whatever the link speeds.
    """
    chosen = SUITES[suite]
    headline = chosen.get('headline')
    workers_per_host = workers_per_host or chosen.get('workers_per_host', 1)
    found = []
    for options, speed, count, system in itertools.product(
        chosen['variants'] if variants is None else variants,
        bandwidths or chosen.get('bandwidths', BANDWIDTHS) + ((headline,) if headline else ()),
        [n for n in hosts if n in chosen.get('hosts', hosts)],
        systems or chosen['systems'],
    ):
        alone = count * workers_per_host == 1
        if alone != (system in ALONE) and not (alone and system == 'hybrid'):
            continue
        too_slow = speed and headline and speed <= headline
        if not bandwidths and too_slow and system in WHOLE_TABLES:
            continue
        case = dict(
            suite=suite,
            work=chosen['work'],
            options=options,
            system=system,
            hosts=count,
            workers_per_host=workers_per_host,
            bandwidth_mbit=None if alone else speed,
            cores_per_host=cores_per_host,
            warmup=WARMUP,
            steps=(steps or chosen.get('steps', STEPS)) // (rounds or rounds_of(suite)),
            threads=1,
        )
        if case not in found:
            found.append(case)
    return found


def cores_of(suite):
    """What a host has of the processor."""
    return SUITES[suite].get('cores_per_host', CORES_PER_HOST)


def rounds_of(suite):
    """How often each case of a suite is measured."""
    return SUITES[suite].get('rounds', 1)


def jobs(cases):
    """The jobs that take measurements: one trains through all link speeds of a case.

    Args:
        cases: as `cases` returns them.

    Returns:
        A list of lists of cases that differ in nothing but the link speed. The fastest link comes
        first, so that the steps in which a job settles down are short.
    """
    found = {}
    for case in cases:
        others = {name: value for name, value in case.items() if name != 'bandwidth_mbit'}
        found.setdefault(json.dumps(others, sort_keys=True), []).append(case)
    return [
        sorted(job, key=lambda case: case['bandwidth_mbit'] or math.inf, reverse=True)
        for job in found.values()
    ]


def side_by_side(jobs, hosts):
    """The jobs that train at the same time, because the machine's speed drifts between jobs.

    Args:
        jobs: as `jobs` returns them.
        hosts: how many the machine has room for.

    Returns:
        A list of lists of jobs. Those of a list differ in nothing but the system.
    """
    found = {}
    for job in jobs:
        alike = json.dumps([dict(case, system=None) for case in job], sort_keys=True)
        found.setdefault(alike, []).append(job)
    groups = []
    for alike in found.values():
        room = max(1, hosts // alike[0][0]['hosts'])
        groups += [alike[first : first + room] for first in range(0, len(alike), room)]
    return groups
