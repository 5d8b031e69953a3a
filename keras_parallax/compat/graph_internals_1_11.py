# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The private side of graphs, as TensorFlow has it from 1.11 on.

`tensorflow_api` hands it on.
"""

from typing import AbstractSet, Any, Callable, List, Optional

from tensorflow.python.ops import gen_dataset_ops as dataset_ops  # noqa: F401 - for all
from tensorflow.python.ops import gen_io_ops as io_ops  # noqa: F401
from tensorflow.python.ops import gen_lookup_ops as lookup_ops  # noqa: F401
from tensorflow.python.ops import inplace_ops as _inplace_ops

from keras_parallax.framework_types import Graph, Operation, Tensor


def consumers(tensor: Tensor) -> List[Operation]:
    """The operations that read a tensor, a list of its own: once for each input."""
    return tensor.consumers()


def op_def(operation: Operation) -> Any:
    """What is known of all operations of an operation's type: an `OpDef`."""
    return operation.op_def


def control_outputs(
    graph: Graph, among: Optional[AbstractSet[Operation]]
) -> Callable[[Operation], List[Operation]]:
    """A function from an operation to those that wait for it.

    Args:
        graph: the graph, which does not change while the function is used.
        among: a set of operations to which the answers may be limited, or `None`.
    """
    del graph, among
    return lambda operation: operation._control_outputs


def remove_control_inputs(operation: Operation) -> None:
    """Makes an operation wait for nothing.

    A session that has already run the operation does not see the change: open a new one.
    """
    operation._remove_all_control_inputs()


def no_new_operations(graph: Graph) -> Any:
    """A context manager: while open, other threads that add operations to a graph wait.

    Whoever is inside adds none either. TF 1.11 has it for the moment in which a session learns what
    is new in a graph.
    """
    return graph._session_run_lock()


def allow_threads(graph: Graph) -> None:
    """Has a graph be built by several threads, from now on.

    What is built in one is not of a device, or after an operation, that another one has named for
    what it builds (`test_sessions.py`, the threads that read).
    """
    graph.switch_to_thread_local()


def zeros(shape: List[int], dtype: Any) -> Tensor:
    """Zeros that are made where they are placed.

    A session makes those of `tf.zeros` itself, on rank 0 for instance, and sends them to the server
    inside the graph, of which 2 GB are too much (TF 1.11; proven by
    `tests/parallel/test_start_values.py::test_no_worker_holds_a_table_that_lies_on_a_dedicated_server`).

    Args:
        shape: a list of integers.
        dtype: the dtype, one of a trainable variable.
    """
    return _inplace_ops.empty(shape, dtype, init=True)
