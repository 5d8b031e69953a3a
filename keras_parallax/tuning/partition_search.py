# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`partitions='search'`: finds the best number of shards while the job trains."""

import hashlib
import json
import os
import statistics
import warnings
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

from keras_parallax.atomic_files import written_aside
from keras_parallax.engine.job.collectives import Gather
from keras_parallax.tuning import partition_fit

#: Steps after a change that do not count: the first one opens connections.
SKIPPED_STEPS = 2

#: Steps whose median is the measurement of a number of shards.
MEASURED_STEPS = 8

#: Where choices are kept, unless this variable of the environment says otherwise.
FOLDER_VARIABLE, FOLDER = 'KERAS_PARALLAX_CACHE', '~/.cache/keras-parallax'


class PartitionSearch:
    """Measures the steps of a job for several numbers of shards, and takes the best.

    Training goes on meanwhile: weights and slots move to the new shards. It takes at most ten
    numbers, of ten steps each.

    Args:
        change: function that gives the tables a number of shards; every worker calls it at the same
            step.
        start: the number of shards to begin with, which the step has now.
        limits: the smallest and the largest number to try, as far as tables have so many rows.
        gather: function that gathers a value from every worker.
        key: the `cache_key` of the model and the cluster.
        tell: function that takes the report, on rank 0; `None` on the others.
    """

    _measured: List[Tuple[int, float]]
    _seconds: List[float]

    def __init__(
        self,
        change: Callable[[int], None],
        start: int,
        limits: Tuple[int, int],
        gather: Gather,
        key: str,
        tell: Optional[Callable[[str], None]],
    ) -> None:
        self._change, self._gather, self._tell, self._key = change, gather, tell, key
        self._start, self._limits = start, limits
        self._count, self._measured, self._seconds = start, [], []

    def after_step(self, seconds: float) -> bool:
        """Takes the duration of a training step, and changes the number of shards when due.

        Returns whether the search goes on.
        """
        self._seconds.append(seconds)
        if len(self._seconds) < SKIPPED_STEPS + MEASURED_STEPS:
            return True
        medians = self._gather(statistics.median(self._seconds[SKIPPED_STEPS:]))
        self._seconds = []
        self._measured.append((self._count, sum(medians) / len(medians)))
        following = partition_fit.next_count(self._measured, self._start, *self._limits)
        if following is not None:
            self._use(following)
            return True
        choice = partition_fit.choose(self._measured)
        self._use(choice.shards)
        if self._tell is not None:
            self._tell(choice.report())
            remember(self._key, choice.shards)
        return False

    def _use(self, count: int) -> None:
        if count != self._count:
            self._change(count)
        self._count = count


def cache_key(report: Sequence[Any], cluster: Iterable[Any]) -> str:
    """A string that names a model, of which it is given the `model_report`, and a cluster."""
    text = json.dumps([report, list(cluster)], sort_keys=True)
    return hashlib.sha256(text.encode('utf-8')).hexdigest()


def _path(key: str) -> str:
    folder = os.path.expanduser(os.environ.get(FOLDER_VARIABLE) or FOLDER)
    if folder.startswith('~'):
        raise OSError('this user has no home folder')
    return os.path.join(folder, 'partitions', key + '.json')


def remember(key: str, shards: int) -> None:
    """Keeps a choice for the next job of the same model on the same cluster.

    If that cannot be done, it warns: the next job will measure again.
    """
    try:
        with written_aside(_path(key)) as aside, open(aside, 'w') as file:
            json.dump({'shards': shards}, file)
    except OSError as error:
        _warn('The number of shards that was chosen is not kept for the next job', error)


def remembered(key: str, most: int) -> Optional[int]:
    """The number of shards, at most `most`, that was chosen before, or `None`."""
    path = None
    try:
        path = _path(key)
        with open(path) as file:
            shards = json.load(file)['shards']
        if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= most:
            raise ValueError('shards must be from 1 to %d, but %r is there' % (most, shards))
        return shards
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        about = ' in %s' % path if path else ''
        _warn('The number of shards that was chosen before%s is not used' % about, error)
        return None


def _warn(what: str, error: Exception) -> None:
    warnings.warn(
        '%s (%s: %s). To keep numbers of shards in another folder, set %s.'
        % (what, type(error).__name__, error, FOLDER_VARIABLE),
        stacklevel=3,
    )
