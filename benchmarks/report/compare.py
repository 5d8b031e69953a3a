# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What records say about each other: pure functions."""

import json
import re
import statistics
from typing import NamedTuple

from measuring import suites

#: Losses of systems that learn the same agree this well after the measured steps.
LOSS_TOLERANCE = 0.002
#: Systems of float32 and exact means: what the others' losses are compared with.
EXACT = ('hvd-allgather', 'hvd-keras', 'tf', 'keras')
TITLES = {
    'lm': 'Language model',
    'lm-corpus': "Language model, the demo's text",
    'ctr': 'Clicks',
    'ctr-more': 'Clicks',
    'dense': 'ResNet',
    'smoke': 'Smoke test',
    'alpha': 'α',
}
#: Suites that compare something else than systems and numbers of hosts.
OF_ANOTHER_FORM = ('alpha', 'parts', 'shards')


class Variant(NamedTuple):
    """Measurements that differ in nothing but the system and the number of hosts.

    Attributes:
        work: title of what is trained.
        suite: the name of its suite.
        speed: Mbit/s, or `None`.
        cores: of each host, or `None`.
        records: the list of records.
    """

    work: str
    suite: str
    speed: float
    cores: float
    records: list

    @property
    def title(self):
        """The heading."""
        return '%s, %s%s' % (
            self.work,
            link_speed(self.speed),
            ', %g cores a host' % self.cores if self.cores else '',
        )

    @property
    def plot(self):
        """The file name of its plot."""
        return 'plot-%s.png' % re.sub('[^a-z0-9]+', '-', self.title.lower())

    @property
    def hosts(self):
        """The numbers of hosts at which something was measured, from the smallest."""
        return sorted({record['hosts'] for record in self.records})

    def at(self, hosts):
        """The records of a number of hosts that did not fail, a dict by system."""
        return {
            record['system']: record
            for record in self.records
            if record['hosts'] == hosts and 'error' not in record
        }


def link_speed(speed):
    """A link speed in words."""
    return '%g Mbit/s' % speed if speed else 'links not limited'


def variants(records):
    """All variants but those of suites that have a page of another form, in a fixed order.

    What was measured in one process belongs to every link speed.
    """
    groups, alone = {}, {}
    for record in records:
        if record['suite'] in OF_ANOTHER_FORM:
            continue
        size = record['hosts'] * record['workers_per_host']
        cores = record.get('cores_per_host')
        # In one process there is no telling how many workers a host would have had.
        key = record['suite'], json.dumps(record['options'], sort_keys=True), cores
        if size == 1:
            alone.setdefault(key, []).append(record)
        else:
            speed = record['bandwidth_mbit']
            groups.setdefault(key + (record['workers_per_host'], speed), []).append(record)
    for key in alone:
        if not any(other[:3] == key for other in groups):
            groups[key + (1, None)] = []
    order = list(suites.SUITES)
    return [
        Variant(_work(key), key[0], key[4], key[2], alone.get(key[:3], []) + groups[key])
        for key in sorted(
            groups,
            key=lambda key: (order.index(key[0]), key[1], key[2] or 0, key[3], key[4] or 1e9),
        )
    ]


def _work(key):
    options = json.loads(key[1])
    text = ', '.join('%s %s' % pair for pair in sorted(options.items()))
    workers = ', %d workers a host' % key[3] if key[3] > 1 else ''
    return TITLES[key[0]] + (' (%s)' % text if text else '') + workers


def middle(records):
    """Of the rounds of one measurement, the record that counts: that of the median step.

    Args:
        records: a list of records of the same case. Those that failed count if all did.

    Returns:
        A record, with the number of `rounds` that it stands for, and their steps in order if none
        of them failed.
    """
    good = [record for record in records if 'error' not in record] or records
    ordered = sorted(good, key=lambda record: record.get('step_seconds', 0))
    found = dict(ordered[len(ordered) // 2], rounds=len(good))
    if len(good) == len(records) and 'error' not in found:
        found['step_seconds_of_rounds'] = [record['step_seconds'] for record in records]
    return found


def best_horovod(by_system):
    """The fastest record of Horovod's of a dict by system, or `None`."""
    return _fastest(by_system[name] for name in suites.HOROVOD if name in by_system)


def reference(by_system):
    """The record that the others' losses are compared with, or `None`."""
    return next((by_system[name] for name in EXACT if name in by_system), None)


def our_fastest(by_system):
    """Our fastest record of those that learn as the reference does, or `None`."""
    exact = reference(by_system)
    return _fastest(
        by_system[name]
        for name in suites.OURS
        if name in by_system and (exact is None or learns_alike(by_system[name], exact))
    )


def _fastest(records):
    return min(records, key=lambda record: record['step_seconds'], default=None)


def learns_alike(record, other):
    """Whether two systems had the same loss in the last step that both took."""
    last = min(len(record['losses']), len(other['losses'])) - 1
    one, two = record['losses'][last], other['losses'][last]
    return abs(one - two) <= LOSS_TOLERANCE * abs(two)


def speed_up(record, other):
    """How many times as fast a record is as another; `None` if one of them is missing.

    Of several rounds of one run, in which the two took turns or trained at the same time, the
    median ratio.
    """
    if not (record and other):
        return None
    ours, theirs = (
        one.get('step_seconds_of_rounds', [one['step_seconds']]) for one in (record, other)
    )
    # Others had no rounds in common.
    if any(record.get(name) != other.get(name) for name in ('hosts', 'rounds', 'run')):
        ours, theirs = [record['step_seconds']], [other['step_seconds']]
    return statistics.median(their / our for our, their in zip(ours, theirs))


def over_floor(record):
    """What a record sends over what it has to; `None` if there is none."""
    return record['sent_bytes'] / record['floor_bytes'] if record else None


def compute_steps(variant, hosts):
    """How many of one worker's compute steps the best step of Horovod takes, or `None`.

    A compute step is that of a worker alone, on a host of the same share of the processor.
    """
    alone = variant.at(1)
    horovod = best_horovod(variant.at(hosts))
    return speed_up(alone.get('tf') or alone.get('hybrid'), horovod) if hosts > 1 else None


def growth(variant, system):
    """A system's step at 8 hosts over its step at 2, or `None`."""
    return speed_up(variant.at(2).get(system), variant.at(8).get(system))


def alpha_points(records, peer='hvd-allgather'):
    """`(α, speed-up of hybrid over a peer)` of each length, from α = 1 down.

    Of the link speed and share of the processor that have most of them.
    """
    settings = {}
    for record in records:
        if record['suite'] == 'alpha' and 'error' not in record:
            key = record['bandwidth_mbit'], record.get('cores_per_host')
            by_length = settings.setdefault(key, {})
            by_length.setdefault(record['options']['length'], {})[record['system']] = record
    found = [
        [
            (pair['hybrid']['alpha'], speed_up(pair['hybrid'], pair[peer]))
            for _, pair in sorted(by_length.items(), reverse=True)
            if {'hybrid', peer} <= set(pair)
        ]
        for by_length in settings.values()
    ]
    return max(found, key=len, default=[])


def alpha_speed(records):
    """The link speed of the sweep over α, in Mbit/s: that of most of its records."""
    speeds = [record['bandwidth_mbit'] for record in records if record['suite'] == 'alpha']
    return max(set(speeds), key=speeds.count) if speeds else None
