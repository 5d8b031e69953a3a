"""The files of Keras 3, in which tables are written and read block by block."""

from typing import Any, Callable, Iterable

import h5py
import numpy as np
from keras.src.saving import saving_lib

from keras_parallax.compat import patches
from keras_parallax.compat.keras3_variable import EngineVariable


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
            group = self._store._h5_entry_group
            value.copy_to(group.create_dataset(key, value.whole.shape, 'float32'))

    def __getitem__(self, key: str) -> Any:
        if type(self._store) is saving_lib.H5IOStore:
            # As the store does it, which then reads it whole.
            found = saving_lib.safe_get_h5_dataset(self._store._h5_entry_group, key)
            if isinstance(found, h5py.Dataset) and found.dtype == np.float32:
                return found
        return self._store[key]


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
