# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A worker's share of an array, or of a sparse matrix: its rows change with the epoch of `fit`."""

import functools
import weakref
from typing import Any, List, Optional, cast

import numpy as np

from keras_parallax.data.sample_order import Order
from keras_parallax.framework_types import Mixin


class Share:
    """The rows of data that are this worker's in an epoch; `fit` has them change with it.

    Attributes:
        order: the `Order` of all rows; `None` of what is made from a share.
    """

    _source: Any = None
    _rank = 0
    order: Optional[Order] = None
    shape: Any

    @property
    def changes(self) -> bool:
        """Whether it has other rows in another epoch."""
        return self.order is not None and self.order.seed is not None

    def begin_epoch(self, epoch: int) -> None:
        """Takes the rows of an epoch."""
        if self.changes:
            self._fill(epoch)

    def _rows(self, epoch: int) -> Any:
        order = cast(Order, self.order)  # What is made from a share has no rows to take.
        return self._source[order.of_rank(self._rank, epoch)]

    def _fill(self, epoch: int) -> None:
        raise NotImplementedError


class ArrayShare(Share, np.ndarray):
    """A share of an array.

    A view of it, or an array made from it, is a plain array of the rows that are there.
    """

    @classmethod
    def of(cls, source: np.ndarray, order: Order, rank: int) -> 'ArrayShare':
        """The share of a worker in epoch 0.

        Args:
            source: the whole array.
            order: the `Order` of its rows.
            rank: the rank.
        """
        share = np.empty((order.length,) + source.shape[1:], source.dtype).view(cls)
        share._source, share._rank, share.order = source, rank, order
        share._fill(0)
        return share

    def _fill(self, epoch: int) -> None:
        self[...] = self._rows(epoch)


class SparseShare(Share, Mixin):
    """A share of a matrix of SciPy; `sparse_share_of` makes it one of the matrix's class."""

    _copies: List[Any] = []

    def _fill(self, epoch: int) -> None:
        rows = self._rows(epoch)
        self.data, self.indices, self.indptr = rows.data, rows.indices, rows.indptr
        for copy in [reference() for reference in self._copies]:
            if copy is not None:
                copy[...] = rows.toarray()

    def toarray(self, *arguments: Any, **named: Any) -> np.ndarray:
        """The rows as an array, as SciPy has it; they change with the epoch, too.

        Keras 2.15 and later ask for it once, before the first epoch, for an input that is dense.
        """
        dense = super().toarray(*arguments, **named)
        if self.changes:
            self._copies.append(weakref.ref(dense))
        return dense


@functools.lru_cache(maxsize=None)
def _sparse_class(base: Any) -> Any:
    return type('SparseShare', (SparseShare, base), {})


def sparse_share_of(source: Any, order: Order, rank: int) -> SparseShare:
    """The share of a worker in epoch 0, of a matrix of SciPy with compressed rows.

    Args:
        source: the whole matrix.
        order: the `Order` of its rows.
        rank: the rank.
    """
    cls: Any = type(source)
    share = _sparse_class(cls)(source[order.of_rank(rank, 0)])
    share._source, share._rank, share.order, share._copies = source, rank, order, []
    return share
