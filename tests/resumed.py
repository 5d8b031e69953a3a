# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the tests of resuming train, save and go on with: the names that their processes share."""

import itertools
from typing import Any, Dict, NamedTuple, Optional, Tuple

import cases
from frameworks import KERAS_PACKAGES

#: Batches are those of two workers, whatever the size of a job.
RANKS = 2
FORMS = ('single.h5', 'parts')


class Entry(NamedTuple):
    """One training run of a job: from the start, saving half way, or from what another has saved.

    Attributes:
        case: name of the case of `cases.py`.
        strategy: arguments of `ParallaxStrategy`.
        source: name of the entry whose checkpoint it goes on from, and the form; or `None`.
        half, steps: number of steps until the save, and until the end.
    """

    case: str
    strategy: Dict[str, Any]
    source: Optional[Tuple[str, str]] = None
    half: int = 4
    steps: int = 8

    @property
    def equals_plain_keras(self):
        """Whether it must have the numbers of one process."""
        return self.strategy.get('sync', True)


def after(source, form, strategy):
    """An entry that goes on from another one's checkpoint."""
    found = next(entries[source] for entries in JOBS.values() if source in entries)
    return found._replace(strategy=strategy, source=(source, form))


HYBRID_3 = {'partitions': 3}
PS, PS_3 = {'architecture': 'ps'}, {'architecture': 'ps', 'partitions': 3}
ALLREDUCE, AUTO = {'architecture': 'allreduce'}, {'architecture': 'auto'}
ASYNC = {'architecture': 'ps', 'sync': False}
#: From the names of jobs to their entries, which run in this order.
JOBS = {}
JOBS['two workers'] = {
    'hybrid_3': Entry('adam', HYBRID_3),
    'ps': Entry('momentum', PS),
    'ps_3': Entry('few_rows', PS_3),
    'allreduce': Entry('adagrad', ALLREDUCE),
    # A density is measured in ten steps; then the table becomes dense.
    'auto': Entry('auto_400_adam', AUTO, half=11, steps=22),
    # Saved between trials: by ps, which hybrid came before, and allreduce comes after.
    'tried': Entry('moved_regularized_adam', {}, half=3, steps=10),
    'async': Entry('adam', ASYNC),
    'tf_adam': Entry('tf_adam', {}),
    'tf_adagrad': Entry('tf_adagrad', PS_3),
    'tf_momentum': Entry('tf_momentum', ALLREDUCE),
}
JOBS['three workers'] = {
    'hybrid to ps': after('hybrid_3', 'parts', PS),
    'ps to allreduce': after('ps', 'parts', ALLREDUCE),
    'ps to hybrid': after('ps_3', 'single.h5', {}),
    'allreduce to ps': after('allreduce', 'parts', PS_3),
    'tried to allreduce': after('tried', 'parts', ALLREDUCE),
    'auto to auto': after('auto', 'parts', AUTO),
    'async to async': after('async', 'parts', ASYNC),
    'tf_adam to ps': after('tf_adam', 'single.h5', PS_3),
    'tf_adagrad to hybrid': after('tf_adagrad', 'parts', {}),
    'tf_momentum to hybrid': after('tf_momentum', 'parts', HYBRID_3),
    # TensorFlow's optimizers follow tables to other shards, too.
    'tf_adam to search': after('tf_adam', 'parts', {'partitions': 'search'})._replace(steps=20),
}
JOBS['a server a host'] = {
    'host': Entry('adam', {'servers': 'host'}),
    'tf_adam to host': after('tf_adam', 'parts', {'servers': 'host', 'partitions': 2}),
}
#: `dedicated` stands for the addresses of two servers.
DEDICATED = {'servers': 'dedicated'}
JOBS['dedicated servers'] = {
    'dedicated': Entry('adam', DEDICATED),
    'host to dedicated': after('host', 'parts', DEDICATED),
    'tf_adam to dedicated': after('tf_adam', 'single.h5', dict(DEDICATED, partitions=3)),
}
JOBS['one process'] = {
    'hybrid alone': after('hybrid_3', 'parts', {}),
    'ps alone': after('ps', 'parts', PS),
    'auto alone': after('auto', 'parts', AUTO),
    'host alone': after('host', 'single.h5', {}),
    'dedicated alone': after('dedicated', 'parts', {}),
    'tf_adam alone': after('tf_adam', 'parts', {}),
}
#: Of those on two hosts, by the number of workers on each.
ON_TWO_HOSTS = {2: 'two hosts, two workers each', 1: 'two hosts, a worker each'}
JOBS['two hosts, two workers each'] = {
    'on hosts': Entry('adam', {'servers': 'host', 'partitions': 3})
}
JOBS['two hosts, a worker each'] = {
    'hosts to ps': after('on hosts', 'parts', PS),
    'hosts to hybrid': after('on hosts', 'single.h5', {}),
}


def _in_turn(*ways):
    """Ways to go on, each after the name of one of the packages, which take turns: a list."""
    packages = itertools.cycle(KERAS_PACKAGES)
    return ['%s %s' % (package, way) for package, way in zip(packages, ways)]


#: For a job, what it shuffles besides: a Keras package, and the argument `shuffle` of `fit`.
SHUFFLES = {'two workers': _in_turn(True, 'batch')}
#: For a job, what it goes on with within an epoch: a Keras package, the kind of data, and the form
#: in which the job of two workers has saved.
WITHIN = {
    'two workers': _in_turn('shares single', 'shares parts', 'shuffled parts', 'Sequence parts'),
    'three workers': _in_turn('shares single', 'shares parts'),
}
#: The number of workers of those on one host; 0 is a process without a launcher.
RANKS_OF = {
    'two workers': 2,
    'three workers': 3,
    'a server a host': 2,
    'dedicated servers': 2,
    'one process': 0,
}
assert all(cases.find(entry.case) for entries in JOBS.values() for entry in entries.values())


def with_sources(names):
    """The names of some entries and of all that they go on from, a set."""
    found, pending = set(), list(names)
    while pending:
        name = pending.pop()
        found.add(name)
        pending += [
            entries[name].source[0]
            for entries in JOBS.values()
            if name in entries and entries[name].source
        ]
    return found
