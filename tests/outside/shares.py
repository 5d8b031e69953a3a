# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which samples a worker trains on, so that all batches together are those of one process."""

from typing import NamedTuple

import numpy as np

#: Batches are cut to a multiple of this, which one, two and three workers share equally.
MULTIPLE = 6


def batch_size(wanted, samples):
    """The joined batch's size for a script that wants batches of `wanted` of its `samples`."""
    size = -(-wanted // MULTIPLE) * MULTIPLE
    return max(min(size, samples // MULTIPLE * MULTIPLE), MULTIPLE)


class Place(NamedTuple):
    """Whose part of a joined batch is meant.

    Attributes:
        rank, ranks: the rank, and how many there are.
        backwards: whether the samples of a batch are taken in the reverse order. For one process
            that changes nothing but the order in which numbers are summed: what comes of it shows
            how far a script's numbers are determined at all.
    """

    rank: int = 0
    ranks: int = 1
    backwards: bool = False


def indices(samples, joined, steps, place):
    """The samples for a place in `steps` joined batches, in order; few samples come again."""
    steps = max(min(steps, samples // joined), 1)
    share = joined // place.ranks
    chosen = []
    for step in range(steps):
        start = step * joined + place.rank * share
        batch = [index % samples for index in range(start, start + share)]
        chosen += reversed(batch) if place.backwards else batch
    return np.array(chosen)


def count(data):
    """The number of samples of nested lists, tuples and dicts of arrays."""
    if isinstance(data, dict):
        return count(next(iter(data.values())))
    if isinstance(data, (list, tuple)) and len(data) and hasattr(data[0], 'shape'):
        return count(data[0])
    return len(data)


def take(data, chosen):
    """The chosen samples of nested lists, tuples and dicts of arrays; `None` stays `None`."""
    if data is None:
        return None
    if isinstance(data, dict):
        return {name: take(part, chosen) for name, part in data.items()}
    if isinstance(data, (list, tuple)) and len(data) and hasattr(data[0], 'shape'):
        return type(data)(take(part, chosen) for part in data)
    if hasattr(data, 'tocsr'):
        return data.tocsr()[chosen]
    return np.asarray(data)[chosen]


def of_batch(batch, place):
    """The part for a place of a batch, a tuple of inputs, targets and maybe weights."""
    samples = count(batch[0])
    joined = batch_size(samples, samples)
    return take_all(batch, indices(samples, joined, 1, place))


def take_all(batch, chosen):
    """`take` for each member of a tuple."""
    return tuple(take(part, chosen) for part in batch)


def of_generator(batches, place):
    """A generator's batches, each cut to the part for a place."""
    return (of_batch(batch, place) for batch in batches)


def of_sequence(base, sequence, place, most):
    """A `keras.utils.Sequence`'s first batches, each cut to the part for a place.

    Args:
        base: the `Sequence` class of the Keras package.
        sequence: the user's.
        place: the `Place`.
        most: how many batches at most.
    """

    class Share(base):
        def __len__(self):
            return min(len(sequence), most)

        def __getitem__(self, index):
            return of_batch(sequence[index], place)

        def on_epoch_end(self):
            sequence.on_epoch_end()

    return Share()


def split(data, fraction):
    """What `validation_split` makes of data: samples to train on, and the last ones to judge by."""
    samples = count(data[0])
    at = int(samples * (1 - fraction))
    return take_all(data, np.arange(at)), take_all(data, np.arange(at, samples))
