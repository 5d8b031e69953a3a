# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A `keras.utils.Sequence` of one worker's batches."""

import functools
from typing import Any, Iterator

from keras_parallax.compat import keras_api
from keras_parallax.data.sample_order import Order


class SequenceShard:
    """This worker's batches of another `Sequence`; `shard_of` makes it one of Keras's."""

    def __init__(self, sequence: Any, order: Order, rank: int, epoch: int) -> None:
        self._sequence, self.order, self._rank = sequence, order, rank
        self._passed, self._stand_in = 0, None
        self.begin_epoch(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Takes the batches of an epoch."""
        self._epoch = epoch
        self._batches = self.order.of_rank(self._rank, epoch)

    def pass_over(self, batches: int) -> None:
        """Has the first batches of the epoch not be made, as nothing is computed with them.

        In place of each Keras gets the first of the others.
        """
        self._passed = min(batches, len(self) - 1)

    def __len__(self) -> int:
        return self.order.length

    def __getitem__(self, index: int) -> Any:
        if index >= self._passed:
            return self._sequence[int(self._batches[index])]
        if self._stand_in is None:
            self._stand_in = self._sequence[int(self._batches[self._passed])]
        return self._stand_in

    def __iter__(self) -> Iterator[Any]:
        # Keras asks for this with `workers=0`, and calls no `on_epoch_end` then.
        while True:
            for index in range(len(self)):
                yield self[index]
            self.on_epoch_end()

    def on_epoch_end(self) -> None:
        """Goes on to the next epoch, as Keras calls it."""
        self._sequence.on_epoch_end()
        self._passed, self._stand_in = 0, None
        self.begin_epoch(self._epoch + 1)


@functools.lru_cache(maxsize=None)
def _class_of(base: type) -> Any:
    return type('SequenceShard', (SequenceShard, base), {})


def shard_of(sequence: Any, order: Order, rank: int, epoch: int) -> SequenceShard:
    """A worker's batches of a `Sequence`.

    Args:
        sequence: the `Sequence`.
        order: the `Order` of its batches.
        rank: the rank.
        epoch: the epoch with which it begins.

    Returns:
        A `Sequence` of the same Keras package.
    """
    base = keras_api.package_of(sequence).module.utils.Sequence
    return _class_of(base)(sequence, order, rank, epoch)
