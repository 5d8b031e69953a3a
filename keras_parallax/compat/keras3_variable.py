# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Variables of Keras whose values the engine keeps: tables, and the slots of tables."""

import sys
import weakref
from typing import Any, Callable, Tuple

import h5py
import numpy as np
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras


class RowsInParts:
    """The rows of a table or a slot that lie in several files, as Keras reads them from one.

    Args:
        rows: what is cut into rows, with `shape` and `dtype`.
        share: as of `StoredRows.write`: which blocks of them this worker writes to the engine.

    Attributes:
        share: as given.
        shape: `(rows, width)`.
    """

    def __init__(self, rows: Any, share: Tuple[int, int]) -> None:
        self._rows, self.share, self.shape = rows, share, rows.shape

    def __getitem__(self, places: slice) -> np.ndarray:
        found: np.ndarray = self._rows[places]
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self[: self.shape[0]].astype(dtype or np.float32)


class EngineVariable(keras.Variable):
    """Stands for a table or a slot among the variables of Keras.

    Its value in Keras's backend is a zero. All else that reads or writes it sees the whole, which
    `whole` reads and writes.

    Args:
        name: its name.
        trainable: whether the loss is differentiated by it.
    """

    #: A `keras3.stored_rows.StoredRows`.
    whole: Any
    #: The `keras3.sharded_tables.Table` that it is, or is a slot of.
    table: Any

    def __init__(self, name: str, trainable: bool) -> None:
        super().__init__(
            'zeros', shape=(), dtype='float32', trainable=trainable, autocast=False, name=name
        )

    @property
    def shape(self) -> Any:
        """That of the whole."""
        return keras3_api.backend_module().shape_of_table(self.whole.shape)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def numpy(self) -> np.ndarray:
        """The whole."""
        keras3_api.backend_module().wait_for(self)
        values: np.ndarray = self.whole.read()
        return values

    def copy_to(self, target: Any) -> None:
        """Copies the whole to an array or an HDF5 dataset, once the steps so far are over."""
        keras3_api.backend_module().wait_for(self)
        self.whole.copy_to(target)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.numpy().astype(dtype or np.float32)

    def assign(self, value: Any) -> Any:
        """Sets the whole; a scalar is the value in Keras's backend."""
        if isinstance(value, RowsInParts):
            self.whole.write(value, value.share)
            return value
        if np.ndim(value) == 0:
            value = keras.ops.convert_to_tensor(value, 'float32')
            if in_stateless_scope():
                get_stateless_scope().add_update((self, value))
            else:
                self._direct_assign(value)
            return value
        in_blocks = isinstance(value, (np.ndarray, h5py.Dataset))
        self.whole.write(value if in_blocks else keras.ops.convert_to_numpy(value))
        return value


#: Functions of Keras's backends by which an operation makes a tensor of a variable.
_CONVERSIONS = ('convert_to_tensor', '__tf_tensor__')
#: The packages that handle variables without computing with them.
_FRAMEWORKS = ('keras', 'jax', 'jaxlib', 'tensorflow')


def _computes(frame: Any) -> bool:
    """Whether the function of a frame, which reads a variable's value, computes with the whole."""
    module, name = frame.f_globals.get('__name__', ''), frame.f_code.co_name
    if module.startswith('keras.src.backend.') and name in _CONVERSIONS:
        return True
    if module == 'keras.src.backend.common.variables':
        # Of these, `__add__` and the like are what a script calls by an operator.
        return name.startswith('__') and name not in ('__init__', '__repr__', '__array__')
    if module.startswith('keras_rs.'):
        # `DistributedEmbedding.get_embedding_tables` returns it.
        return True
    if not in_stateless_scope() or module.startswith('keras_parallax.'):
        return False
    return name == '__jax_array__' or module.split('.')[0] not in _FRAMEWORKS


class TableVariable(EngineVariable):
    """The weight of an `Embedding` whose table the engine keeps.

    By its zero the loss is differentiated; the gradient of it is that of the rows of a batch. What
    computes with the whole table, and is differentiated, has every worker hold it.

    Args:
        table: the `keras3.sharded_tables.Table`.
        name: the name of the weight.
        scope: the `keras3.scope.Keras3Scope` in which the layer was built.
        layer: the layer.
        make_dense: function of the layer and a reason, which returns the variable of Keras that has
            the table from then on.

    Attributes:
        table, scope: as given.
        layer: a weak reference to it.
        dense: the variable of Keras that has the table now, or `None`.
    """

    def __init__(
        self, table: Any, name: str, scope: Any, layer: Any, make_dense: Callable[[Any, str], Any]
    ) -> None:
        self.table, self.scope, self.layer = table, scope, weakref.ref(layer)
        self.dense: Any = None
        self._make_dense = make_dense
        super().__init__(name, trainable=True)

    @property
    def value(self) -> Any:
        """The zero for what handles variables, the whole for what computes with it."""
        if self.dense is not None:
            return self.dense.value
        if not _computes(sys._getframe(1)):
            return super().value
        if in_stateless_scope() or keras3_api.backend_module().may_differentiate():
            return self._make_dense(self.layer(), 'it is read whole').value
        return keras.ops.convert_to_tensor(self.numpy())

    def numpy(self) -> np.ndarray:
        """The whole."""
        values: np.ndarray = super().numpy() if self.dense is None else self.dense.numpy()
        return values

    def assign(self, value: Any) -> Any:
        """As `EngineVariable.assign`."""
        return super().assign(value) if self.dense is None else self.dense.assign(value)

    @property
    def whole(self) -> Any:
        """The table."""
        return self.table

    def _initialize_with_initializer(self, initializer: Any) -> None:
        super()._initialize_with_initializer(initializer)
        # Within a step no initializer could be run.
        self.table.start.prepare()


class SlotVariable(EngineVariable):
    """A slot of a table among the variables of an optimizer.

    Args:
        name: its name.
        table: the `keras3.sharded_tables.Table`.
        find: function of nothing that returns the `StoredRows`, once the optimizer is built.

    Attributes:
        table: as given.
    """

    def __init__(self, name: str, table: Any, find: Callable[[], Any]) -> None:
        self.table, self._find = table, find
        super().__init__(name, trainable=False)

    @property
    def shape(self) -> Any:
        """That of the table."""
        return keras3_api.backend_module().shape_of_table(self.table.shape)

    @property
    def whole(self) -> Any:
        """The slot."""
        return self._find()
