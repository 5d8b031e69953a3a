# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What an index of ids is made of: rows by the storage that holds them, hash tables, locks.

Other processes reach hash tables and locks by their names, on the device where they lie.
"""

import contextlib
from typing import Any, Dict, Iterator, Sequence, Tuple

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.installed_frameworks import generation, tf
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Tensor, Variable

# isort: split
from tensorflow.python.ops import gen_resource_variable_ops as _resources
from tensorflow.python.ops import gen_state_ops as _states


class Storage:
    """The memory of a variable, which is read when an operation here runs, and not before.

    Args:
        tensor: its reference, or its resource handle.
        dtype: its dtype.
    """

    def __init__(self, tensor: Tensor, dtype: Any) -> None:
        self.tensor, self._dtype = tensor, dtype
        self._by_handle = tensor.dtype == tf.resource

    def read(self) -> Tensor:
        """All of it."""
        if self._by_handle:
            return _resources.read_variable_op(self.tensor, self._dtype)
        return tf.identity(self.tensor)

    def rows(self, rows: Tensor) -> Tensor:
        """Its rows of numbers `[n]`."""
        if self._by_handle:
            return _resources.resource_gather(self.tensor, rows, dtype=self._dtype)
        return tf.gather(self.tensor, rows)

    def write(self, rows: Tensor, values: Tensor) -> Operation:
        """An operation that writes values `[n, ...]` to rows `[n]`."""
        if self._by_handle:
            return _resources.resource_scatter_update(self.tensor, rows, values)
        return _states.scatter_update(self.tensor, rows, values, use_locking=True).op

    def add(self, rows: Tensor, values: Tensor) -> Operation:
        """An operation that adds values to rows, as `write` writes them."""
        if self._by_handle:
            return _resources.resource_scatter_add(self.tensor, rows, values)
        return _states.scatter_add(self.tensor, rows, values, use_locking=True).op


def require_locks() -> None:
    """Looks for the operations of locks that servers hold.

    Raises:
        PlanError: TensorFlow 1.6 has none.
    """
    if not hasattr(_resources, 'mutex_lock'):
        raise PlanError(
            'DynamicEmbedding needs locks of rows, which no server of TensorFlow %s has; give '
            'numbers to the ids and use Embedding, or take TensorFlow 1.11.' % tf.__version__
        )


def by_reference(package: KerasPackage) -> Dict[str, bool]:
    """Arguments of `add_weight` for a variable whose every read is of what it is by then.

    A resource is read when a step begins, maybe, and an optimizer of Keras that writes all of it
    then takes back what was written meanwhile (`tf.keras` of TF 1.11; proven by
    `tests/unit/layers/test_dynamic_embedding.py`, the comparison with plain Keras). What is read of
    a reference is its memory. Optimizers of TensorFlow 2 write all of a table by adding to it.
    """
    if generation.BY_RESOURCE or package.name != 'tf.keras':
        return {}
    return {'use_resource': False}


def storage_of(variable: Variable) -> Storage:
    """The `Storage` of a variable."""
    return Storage(tensorflow_api.storage(variable), variable.dtype.base_dtype)


def another_name(variable: Variable) -> Storage:
    """The same, by another operation that stands for it.

    Who asks for what reads or writes the variable does not find what is done with this. It belongs
    on the variable's device.
    """
    known, shape = tensorflow_api.storage(variable), variable.shape.as_list()
    dtype, name = variable.dtype.base_dtype, 'parallax/%s/by_index' % variable.op.name
    shared = known.op.get_attr('shared_name').decode() or known.op.name
    named = dict(
        shape=shape,
        dtype=dtype,
        shared_name=shared,
        name=name,
        container=known.op.get_attr('container').decode(),
    )
    make = _resources.var_handle_op if known.dtype == tf.resource else _states.variable_v2
    return Storage(make(**named), dtype)


def mutex(name: str) -> Tensor:
    """The handle of a lock that processes share by its name, on the device where it lies."""
    return _resources.mutex_v2(shared_name=name, name=name)


class Lock:
    """A lock that is held while some operations of a step run.

    Attributes:
        released: an operation that runs when it is held no more.
    """

    def __init__(self, held: Tensor) -> None:
        self._held, self.released = held, None

    def hold_until(self, operations: Sequence[Operation]) -> None:
        """Holds it until some operations have run."""
        with tf.control_dependencies(operations):
            self.released = _resources.consume_mutex_lock(self._held)


@contextlib.contextmanager
def locked(mutex: Tensor, after: Sequence[Operation] = ()) -> Iterator[Lock]:
    """Builds what runs while a lock is held; gives the `Lock`.

    A step that breaks off gives the lock back.

    Args:
        mutex: the handle that `mutex` has returned.
        after: what must have run before the lock is taken, a list.
    """
    with tf.control_dependencies(after):
        held = _resources.mutex_lock(mutex)
    with tf.control_dependencies([held.op]):
        yield Lock(held)


class HashTable:
    """A hash table from numbers of 64 bits to such, on the device in whose scope it is made.

    Args:
        name: its name, by which processes share it.
    """

    def __init__(self, name: str) -> None:
        self._handle = tensorflow_api.lookup_ops.mutable_hash_table_v2(
            tf.int64, tf.int64, shared_name=name, name=name
        )

    def find(self, keys: Tensor, none: int) -> Tensor:
        """The values of keys `[n]`; `none` for each that has none."""
        none = tf.constant(none, tf.int64)
        return tensorflow_api.lookup_ops.lookup_table_find_v2(self._handle, keys, none)

    def insert(self, keys: Tensor, values: Tensor) -> Operation:
        """An operation that gives keys `[n]` values `[n]`, all at once."""
        return tensorflow_api.lookup_ops.lookup_table_insert_v2(self._handle, keys, values)

    def all(self) -> Tuple[Tensor, Tensor]:
        """All keys, and their values, in any order."""
        exported = tensorflow_api.lookup_ops.lookup_table_export_v2(
            self._handle, tf.int64, tf.int64
        )
        for column in exported:
            column.set_shape([None])
        return exported.keys, exported.values

    def size(self) -> Tensor:
        """How many keys there are, a scalar int64."""
        return tensorflow_api.lookup_ops.lookup_table_size_v2(self._handle)

    def replace(self, keys: Tensor, values: Tensor) -> Operation:
        """An operation that forgets what there is, and does as `insert`."""
        return tensorflow_api.lookup_ops.lookup_table_import_v2(self._handle, keys, values)
