# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Samples and their groups, on one worker and on all: what is kept of an epoch."""

from typing import List

import numpy as np

from keras_parallax.engine.job.job import Job
from keras_parallax.framework_types import Array

#: A sample, 21 bytes.
SAMPLE = np.dtype(
    [('group', np.int64), ('prediction', np.float64), ('weight', np.float32), ('label', np.bool_)]
)

#: Bits of a hash that tell whether a group is kept; others tell which worker compares its samples.
_LEVEL_BITS = 32


def hashes_of(groups: Array) -> Array:
    """Hashes of 64 bits, of which each bit depends on all of the group's number.

    It is the mixing function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
    number generators", OOPSLA 2014).

    Args:
        groups: an array of int64.

    Returns:
        An array of uint64.
    """
    mixed = groups.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def of_level(samples: Array, level: int) -> Array:
    """Those of the groups that a level keeps: one of `2 ** level` groups, each as a whole."""
    if not level:
        return samples
    low = hashes_of(samples['group']) & np.uint64(2**level - 1)
    return samples[low == 0]


def sums_of_groups(samples: Array) -> Array:
    """The areas under the groups' ROC curves, each times its weight, summed up; and the weights.

    A group weighs what its samples do. Of equal predictions, half of the pairs count. Groups
    without samples of both labels have no area.

    Args:
        samples: an array of `SAMPLE`, in any order, of whole groups.

    Returns:
        An array of two numbers.

    Example:
        ```python
        >>> rows = [(7, 0.2, 1, False), (7, 0.6, 1, True), (7, 0.6, 1, False), (8, 0.1, 1, True)]
        >>> sums_of_groups(np.array(rows, SAMPLE)).tolist()
        [2.25, 3.0]
        ```
    """
    if not len(samples):
        return np.zeros(2)
    samples = samples[np.lexsort((samples['prediction'], samples['group']))]
    groups, predictions = samples['group'], samples['prediction']
    weights = samples['weight'].astype(np.float64)
    positives = np.where(samples['label'], weights, 0)
    # Where a group begins, and where equal predictions of a group do.
    begins_group = np.append(True, groups[1:] != groups[:-1])
    begins_tie = begins_group | np.append(True, predictions[1:] != predictions[:-1])
    ties, first_ties = np.flatnonzero(begins_tie), np.flatnonzero(begins_group[begins_tie])
    positives = np.add.reduceat(positives, ties)
    negatives = np.add.reduceat(weights, ties) - positives
    before = np.cumsum(negatives) - negatives
    before -= np.repeat(before[first_ties], np.diff(np.append(first_ties, len(ties))))
    areas = np.add.reduceat(positives * (before + negatives / 2), first_ties)
    positives, negatives = (np.add.reduceat(of, first_ties) for of in (positives, negatives))
    pairs, weights = positives * negatives, positives + negatives
    has_both = pairs > 0
    areas = areas[has_both] / pairs[has_both]
    return np.array([np.sum(areas * weights[has_both]), np.sum(weights[has_both])])


class GroupSamples:
    """The samples of this worker, of all groups or, if they are too many, of some.

    Whether a group is kept depends on its number alone, so the workers keep the same groups as soon
    as they agree on the level.

    Args:
        most: how many samples are kept at most.

    Attributes:
        level: one of `2 ** level` groups is kept.
        count: how many samples are kept.
    """

    def __init__(self, most: int) -> None:
        self.level = self.count = 0
        self._most = most
        self._parts: List[Array] = []

    def add(self, *columns: Array) -> None:
        """Adds samples.

        Args:
            *columns: an array for each field of `SAMPLE`, in that order.
        """
        samples = np.empty(len(columns[0]), SAMPLE)
        for name, column in zip(SAMPLE.names or (), columns):
            samples[name] = column
        samples = of_level(samples, self.level)
        self._parts.append(samples)
        self.count += len(samples)
        while self.count > self._most and self.level < _LEVEL_BITS:
            self.level += 1
            self._parts = [of_level(self.samples(), self.level)]
            self.count = len(self._parts[0])

    def samples(self) -> Array:
        """All that are kept, an array of `SAMPLE`."""
        self._parts = [np.concatenate([np.empty(0, SAMPLE)] + self._parts)]
        return self._parts[0]

    def sums_of_share(self, job: Job) -> Array:
        """The sums of the groups whose samples this worker compares. A collective call.

        Each worker is sent all samples of some groups, wherever they are. They go one share after
        the other, so that no worker holds more than its own samples and about as many again.

        Args:
            job: the `Job`.

        Returns:
            As `sums_of_groups`.
        """
        level = max(job.gather(self.level))
        samples = of_level(self.samples(), level)
        owners = (hashes_of(samples['group']) >> np.uint64(_LEVEL_BITS)) % np.uint64(job.size)
        shares = [samples[owners == rank] for rank in range(job.size)]
        counts = np.sum(job.gather([len(share) for share in shares]), 0)
        own = np.empty(0, SAMPLE)
        for rank in np.flatnonzero(counts):
            joined = job.join(shares[rank])
            own = joined if rank == job.rank else own
        return sums_of_groups(own)
