# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The private side of graphs of TensorFlow 1.6, which keeps them in Python alone.

`tensorflow_api` hands it on.
"""

import contextlib
import threading
import types
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Optional

import tensorflow as tf

from keras_parallax.framework_types import Graph, Operation, Tensor

# isort: split
from tensorflow.python.ops import gen_dataset_ops as _dataset_ops
from tensorflow.python.ops import gen_io_ops as io_ops  # noqa: F401 - for all
from tensorflow.python.ops import gen_lookup_ops as _lookup_ops


def _public(module: Any, **others: Any) -> Any:
    """A module whose functions have no underscore before their names, and others."""
    names = {name[1:]: value for name, value in vars(module).items() if name[:1] == '_' != name[1]}
    copy = types.ModuleType(module.__name__)
    vars(copy).update(names, **{**vars(module), **others})
    return copy


#: As TF 1.11 has them.
lookup_ops = _public(_lookup_ops)

#: There an iterator's operation takes the names that it is given, too.
dataset_ops = _public(_dataset_ops, iterator_v2=_dataset_ops.iterator)


def consumers(tensor: Tensor) -> List[Operation]:
    """The operations that read a tensor, a list of its own: once for each input.

    What TF 1.6 gives is the list that it goes on with when inputs change (proven by
    `tests/unit/compat/test_tensorflow_1_6.py`).
    """
    return list(tensor.consumers())


def op_def(operation: Operation) -> Any:
    """What is known of all operations of an operation's type: an `OpDef`.

    TF 1.6 looks it up for some operations only.
    """
    if operation.op_def is not None:
        return operation.op_def
    if operation.type in operation.graph._functions:
        return operation.graph._functions[operation.type].definition.signature
    return operation.graph._registered_ops[operation.type]


def control_outputs(
    graph: Graph, among: Optional[AbstractSet[Operation]]
) -> Callable[[Operation], List[Operation]]:
    """A function from an operation to those that wait for it.

    TF 1.6 knows only what an operation waits for.

    Args:
        graph: the graph, which does not change while the function is used.
        among: a set of operations to which the answers may be limited, or `None`.
    """
    waiting: Dict[Operation, List[Operation]] = {}
    for operation in graph.get_operations() if among is None else among:
        for awaited in operation.control_inputs:
            waiting.setdefault(awaited, []).append(operation)
    return lambda operation: waiting.get(operation, [])


def remove_control_inputs(operation: Operation) -> None:
    """Makes an operation wait for nothing.

    A session that has already run the operation does not see the change: open a new one.
    """
    operation._remove_all_control_inputs()
    # TF 1.6 leaves what sessions are told as it was (proven by
    # `tests/unit/compat/test_tensorflow_1_6.py`).
    operation._recompute_node_def()


@contextlib.contextmanager
def no_new_operations(graph: Graph) -> Iterator[None]:
    """While open, other threads that add operations to a graph wait.

    Whoever is inside adds none either.
    """
    with graph._lock:
        yield


def allow_threads(graph: Graph) -> None:
    """Has a graph be asked by several threads, from now on.

    In TF 1.6 what one thread builds may be of a device, or after an operation, that another one has
    named for what it builds at the time. So one thread alone may build.
    """
    if not isinstance(graph._lock, _LOCK):
        # So that whoever is inside `no_new_operations` may ask the graph.
        graph._lock = threading.RLock()


_LOCK = type(threading.RLock())


def zeros(shape: List[int], dtype: Any) -> Tensor:
    """Zeros that are made where they are placed.

    No session makes them before: none of ours computes constants (`tensorflow_1_6.CONFIG`; proven
    by
    `tests/parallel/test_start_values.py::test_no_worker_holds_a_table_that_lies_on_a_dedicated_server`).

    Args:
        shape: a list of integers.
        dtype: the dtype, one of a trainable variable.
    """
    return tf.zeros(shape, dtype)
