"""The weight of an `Embedding` whose table the engine keeps."""

import weakref
from typing import Any

import h5py
import numpy as np
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras


class TableVariable(keras.Variable):
    """Stands for a table among the weights of a layer.

    Its value in Keras's backend is a zero by which the loss is differentiated; the gradient of it
    is that of the rows of a batch. All else that reads or writes it sees the whole table.

    Args:
        table: the `keras3.sharded_tables.Table`.
        name: the name of the weight.
        scope: the `keras3.scope.Keras3Scope` in which the layer was built.
        layer: the layer.
    """

    def __init__(self, table: Any, name: str, scope: Any, layer: Any) -> None:
        self.table, self.scope, self.layer = table, scope, weakref.ref(layer)
        super().__init__('zeros', shape=(), dtype='float32', autocast=False, name=name)
        # Keras keeps no slots for it.
        self.overwrite_with_gradient = True

    def _initialize_with_initializer(self, initializer: Any) -> None:
        super()._initialize_with_initializer(initializer)
        # Within a step no initializer could be run.
        self.table.start.prepare()

    @property
    def shape(self) -> Any:
        """That of the table."""
        return keras3_api.backend_module().shape_of_table(self.table.shape)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def numpy(self) -> np.ndarray:
        """The whole table."""
        return self.table.read()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.table.read().astype(dtype or np.float32)

    def assign(self, value: Any) -> Any:
        """Sets the whole table; a scalar is the value in Keras's backend."""
        if np.ndim(value) == 0:
            value = keras.ops.convert_to_tensor(value, 'float32')
            if in_stateless_scope():
                get_stateless_scope().add_update((self, value))
            else:
                self._direct_assign(value)
            return value
        in_blocks = isinstance(value, (np.ndarray, h5py.Dataset))
        self.table.write(value if in_blocks else keras.ops.convert_to_numpy(value))
        return value
