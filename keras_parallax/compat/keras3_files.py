# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The files of Keras 3, in which tables are written and read block by block."""

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple, Union

import h5py
import numpy as np
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib

from keras_parallax.compat import patches
from keras_parallax.compat.keras3_variable import EngineVariable, RowsInParts
from keras_parallax.errors import CheckpointError

#: The attribute of a dataset without rows: what those are called that lie in other files.
_ELSEWHERE = 'keras_parallax_rows'

#: While a checkpoint of several parts is written, from ids of variables to the names of their rows.
_left_out: Dict[int, str] = {}
#: While one is read, from these names to the rows.
_given: Dict[str, Union[RowsInParts, 'Shared']] = {}


class Shared(NamedTuple):
    """Rows as a tensor, which a variable of Keras takes over without a copy.

    Attributes:
        tensor: of Keras's backend.
    """

    tensor: Any


class StoreOfBlocks:
    """What a layer saves its variables to, or loads them from, without a whole table in memory.

    Args:
        store: what Keras gives the layer, from numbers to arrays.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def keys(self) -> Iterable[str]:
        """Those of the store."""
        found: Iterable[str] = self._store.keys()
        return found

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(value, EngineVariable):
            self._store[key] = value
        elif type(self._store) is not saving_lib.H5IOStore:
            self._store[key] = value.numpy()
        else:
            # Has Keras make the group.
            self._store[key] = np.zeros(0, np.float32)
            del self._store[key]
            group, name = self._store._h5_entry_group, _left_out.get(id(value))
            if name is None:
                value.copy_to(group.create_dataset(key, value.whole.shape, 'float32'))
            else:
                empty = group.create_dataset(key, (0, *value.whole.shape[1:]), 'float32')
                empty.attrs[_ELSEWHERE] = name

    def __getitem__(self, key: str) -> Any:
        if type(self._store) is saving_lib.H5IOStore:
            # As the store does it, which then reads it whole.
            found = saving_lib.safe_get_h5_dataset(self._store._h5_entry_group, key)
            if isinstance(found, Shared):
                return found.tensor
            if isinstance(found, RowsInParts):
                return found
            if isinstance(found, h5py.Dataset) and found.dtype == np.float32:
                return found
        return self._store[key]


def names_in(group: Any, attribute: str) -> List[str]:
    """A list of names that a group of a file in the form of Keras 2 has; `[]` if it has none."""
    names: List[str] = legacy_h5_format.load_attributes_from_hdf5_group(group, attribute)
    return names


def ordered_weights(layer: Any) -> List[Any]:
    """The weights of a layer in the order that files in the form of Keras 2 have."""
    weights: List[Any] = legacy_h5_format._legacy_weights(layer)
    return weights


def replace_memory_check(has_tables: Callable[[Any], bool]) -> None:
    """Has Keras write the weights of models to the disk at once, if they have tables with shards.

    Args:
        has_tables: whether a model has.
    """
    patches.require_listed(patches.OF_KERAS_3, 'saving_lib.is_memory_sufficient')
    original = saving_lib.is_memory_sufficient

    def is_memory_sufficient(model: Any) -> bool:
        return not has_tables(model) and original(model)

    saving_lib.is_memory_sufficient = is_memory_sufficient


def find_rows_in_parts() -> None:
    """Has Keras find the rows of a dataset that lie in other files."""
    patches.require_listed(patches.OF_KERAS_3, 'saving_lib.safe_get_h5_dataset')
    original = saving_lib.safe_get_h5_dataset

    def safe_get_h5_dataset(group: Any, name: str) -> Any:
        found = original(group, name)
        of_rows = found.attrs.get(_ELSEWHERE)
        if of_rows is None:
            return found
        if of_rows not in _given:
            raise CheckpointError(
                '%s is one part of a checkpoint, without the rows of tables. Give strategy.resume '
                'the folder that it is in.' % found.file.filename
            )
        return _given[of_rows]

    saving_lib.safe_get_h5_dataset = safe_get_h5_dataset


@contextlib.contextmanager
def rows_left_out(names: Iterable[Tuple[EngineVariable, str]]) -> Iterator[None]:
    """While open, some variables are written without their rows.

    Args:
        names: pairs of a variable, and of what its rows are called in other files.
    """
    _left_out.update((id(variable), name) for variable, name in names)
    try:
        yield
    finally:
        _left_out.clear()


@contextlib.contextmanager
def rows_given(rows: Mapping[str, Union[RowsInParts, Shared]]) -> Iterator[None]:
    """While open, rows are found that were left out, by what they are called."""
    _given.update(rows)
    try:
        yield
    finally:
        _given.clear()
