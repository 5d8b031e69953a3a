# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which samples are whose: pure functions of the rank, the number of workers, a seed and the epoch.

The samples of an epoch have one order, the same on every worker. Of each `ranks` samples in a row
every worker takes one. So the batches with the same number on all workers are, together, a batch of
one process that is `ranks` times as large; the last, smaller one too.
"""

from typing import NamedTuple, Optional

import numpy as np

from keras_parallax.errors import DataError
from keras_parallax.framework_types import Array


class Order(NamedTuple):
    """The order of samples, batches or files, and how many of them a worker has.

    Attributes:
        count: how many there are.
        ranks: the number of workers.
        seed: what shuffles them, from 0 to 2**32 - 1; `None` leaves them in order.
        drop_remainder: whether those are left out that are too few for all workers; otherwise the
            first of the epoch come again.
    """

    count: int  # type: ignore[assignment] # A tuple's own `count` is not asked for.
    ranks: int
    seed: Optional[int] = None
    drop_remainder: bool = True

    @property
    def remainder(self) -> int:
        """How many are too few for all workers."""
        return self.count % self.ranks

    @property
    def length(self) -> int:
        """How many a worker has in each epoch."""
        whole = self.count // self.ranks
        return whole if self.drop_remainder else whole + bool(self.remainder)

    def of_all(self, epoch: int) -> Array:
        """The numbers of an epoch's samples in the order of one process, an array."""
        if self.seed is None:
            order = np.arange(self.count)
        else:
            order = np.random.RandomState([self.seed, epoch]).permutation(self.count)
        return np.resize(order, self.length * self.ranks)

    def of_rank(self, rank: int, epoch: int) -> Array:
        """The numbers of a worker's samples in an epoch, an array of `length`."""
        return self.of_all(epoch)[rank :: self.ranks]


def check(order: Order, things: str) -> None:
    """Looks whether every worker has something.

    Args:
        order: the `Order`.
        things: what is shared, in plural.

    Raises:
        DataError: some worker has nothing.
    """
    if order.count == 0:
        raise DataError('There are no %s: the share of every worker is empty.' % things)
    if order.length == 0:
        raise DataError(
            'There are %d %s for %d workers: the share of some is empty. Give more, fewer workers, '
            'or drop_remainder=False, with which several workers get the same.'
            % (order.count, things, order.ranks)
        )


def remainder_sentence(order: Order, things: str) -> Optional[str]:
    """What becomes of those that are too few for all workers, a sentence; `None` if there are none.

    Args:
        order: the `Order`.
        things: what is shared, in plural.
    """
    if not order.remainder:
        return None
    if order.drop_remainder:
        done, number = 'left out of', order.remainder
    else:
        done, number = 'repeated in', order.ranks - order.remainder
    verb = 'is' if number == 1 else 'are'
    always = '' if order.seed is None else ', not always the same'
    shared = '%d %s on %d workers' % (order.count, things, order.ranks)
    return '%s: %d of them %s %s each epoch%s.' % (shared, number, verb, done, always)
