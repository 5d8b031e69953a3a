# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The rows of a table as they lie in the parts of a checkpoint, read as one dataset. Pure."""

import collections
import os
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np

from keras_parallax.engine.tables.row_transfer import local_range
from keras_parallax.framework_types import Array

#: So many files of a checkpoint are open at a time; a process may have 1024 on many systems.
_OPEN_FILES = 128


class PartFiles:
    """Files in the folder of a checkpoint, opened when they are asked for; a context manager.

    Args:
        folder: the folder.
        open_file: function from a path to an open file, which has `close`.
        limit: how many are open at a time, those used last.
    """

    def __init__(
        self, folder: str, open_file: Callable[[str], Any], limit: int = _OPEN_FILES
    ) -> None:
        self._folder, self._open_file, self._limit = folder, open_file, limit
        self._files: Any = collections.OrderedDict()

    def __getitem__(self, name: str) -> Any:
        if name not in self._files:
            if len(self._files) >= self._limit:
                self._files.popitem(last=False)[1].close()
            self._files[name] = self._open_file(os.path.join(self._folder, name))
        self._files.move_to_end(name)
        return self._files[name]

    def __enter__(self) -> 'PartFiles':
        return self

    def __exit__(self, *exception: Any) -> None:
        while self._files:
            self._files.popitem()[1].close()


class PartDataset(NamedTuple):
    """A dataset of a part, which is opened when rows are asked for.

    Attributes:
        files: the `PartFiles`, or another mapping from names to open files.
        part: the name of the part.
        path: the path of the dataset in it.
    """

    files: Any
    part: str
    path: str

    def read(self, first: int, last: Optional[int]) -> Array:
        """The rows from `first` to `last`, excluded."""
        return self.files[self.part][self.path][first:last]


class ChangedShard:
    """Rows of a shard in a delta.

    Args:
        shard: the number of the shard.
        rows: the `PartDataset` of the rows.
        ids: the `PartDataset` of their numbers in the shard, in order; `None` for all rows.
    """

    def __init__(self, shard: int, rows: PartDataset, ids: Optional[PartDataset] = None) -> None:
        self.shard, self._rows, self._ids = shard, rows, ids
        self._numbers: Any = None

    def put(self, rows: Array, first: int, last: int, count: int) -> None:
        """Puts what it has of rows `first` to `last` of a table into an array of these.

        Args:
            rows: the array.
            first: the number of the first row.
            last: that of the one after the last.
            count: the number of the table's shards.
        """
        begin, end = local_range(first, last, count, self.shard)
        if self._ids is None:
            rows[(self.shard - first) % count :: count] = self._rows.read(begin, end)
            return
        if self._numbers is None:
            self._numbers = self._ids.read(0, None)
        here = slice(*np.searchsorted(self._numbers, [begin, end]))
        if here.start < here.stop:
            places = self._numbers[here] * count + self.shard - first
            rows[places] = self._rows.read(here.start, here.stop)


class SavedRows:
    """The rows of a table as a base has them, and the deltas since.

    Args:
        shape: shape of the whole.
        dtype: its NumPy dtype.
        shards: the `PartDataset`s of the base's shards, in order; none if all rows are zeros.
        deltas: for each delta, the oldest first, a list of its `ChangedShard`s.

    Attributes:
        shape, dtype: as given.

    Example:
        ```python
        >>> files = {'base': {'rows': np.zeros((4, 1))}}
        >>> files['delta'] = {'rows': np.ones((1, 1)), 'ids': np.array([2])}
        >>> rows, ids = (PartDataset(files, 'delta', path) for path in ('rows', 'ids'))
        >>> base = [PartDataset(files, 'base', 'rows')]
        >>> saved = SavedRows([4, 1], np.float64, base, [[ChangedShard(0, rows, ids)]])
        >>> saved[1:4].tolist()
        [[0.0], [1.0], [0.0]]
        ```
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        shards: Sequence[PartDataset],
        deltas: Sequence[Sequence[ChangedShard]] = (),
    ) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self._shards, self._deltas = shards, deltas

    def __getitem__(self, places: slice) -> Array:
        first, last, _ = places.indices(self.shape[0])
        rows = np.zeros((last - first,) + self.shape[1:], self.dtype)
        count = len(self._shards)
        for number, shard in enumerate(self._shards):
            begin, end = local_range(first, last, count, number)
            rows[(number - first) % count :: count] = shard.read(begin, end)
        for delta in self._deltas:
            for changed in delta:
                changed.put(rows, first, last, count)
        return rows
