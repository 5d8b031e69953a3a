# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What layers and metrics write beside the optimizer: states, moving averages, counts.

Keras runs these assignments (`model.updates`) with the optimizer's and with what a function
returns, in no order. A recurrent layer that is stateful reads its state in the backward pass too,
so a state that is written before gives other gradients; a metric may return its count and add to
it. Keras shares most of these operations between its functions, which compute other things. So each
runs copies of them, which wait for what it computes.
"""

from typing import AbstractSet, Container, Dict, List, Sequence, Set

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Operation, Tensor


def leaves_of(operation: Operation, own: Container[Operation]) -> List[Operation]:
    """What a group of operations runs, as a list.

    Args:
        operation: the operation; Keras gathers a step's updates in a NoOp of NoOps, one a device.
        own: operations at which to stop; they are part of the answer.
    """
    leaves: List[Operation] = []
    pending, seen = [operation], set()
    while pending:
        operation = pending.pop()
        if operation in seen:
            continue
        seen.add(operation)
        if operation.type == 'NoOp' and operation not in own:
            pending.extend(operation.control_inputs)
        else:
            leaves.append(operation)
    return leaves


def gated(
    target: Operation,
    fetches: Sequence[Tensor],
    own: Sequence[Operation],
    computed: Sequence[Operation],
) -> Operation:
    """Has what is written beside the optimizer wait for what is computed.

    Args:
        target: the operation that runs all updates.
        fetches: the tensors that are fetched with it.
        own: the operations of `TrainStep`s, which wait by themselves.
        computed: operations that have run when all that the updates must not change is computed.

    Returns:
        An operation to run in place of `target`; `target` itself, if nothing has to wait.
    """
    leaves = leaves_of(target, own)
    # What the loss and metrics need is run for them, whatever else runs.
    needed = graph_queries.ancestors([*fetches, *own])
    others = graph_queries.ancestors([leaf for leaf in leaves if leaf not in own], leaves=needed)
    waiting: Set[Operation] = set()
    for operation in others:
        if operation.type in graph_queries.WRITES:
            after = graph_queries.descendants(operation, among=others)
            # A copy would not be in the branch that its original is in. Moving averages are (TF
            # 1.11), which no gradient is computed from.
            if not any(map(tensorflow_api.is_in_control_flow, after)):
                waiting |= after
    if not waiting:
        return target
    copies: Dict[Operation, Operation] = {}
    with tf.name_scope(None), tf.control_dependencies(None):
        for operation in sorted(waiting, key=tensorflow_api.operation_id):
            _copy(operation, waiting, copies, computed)
        with tf.control_dependencies([copies.get(leaf, leaf) for leaf in leaves]):
            return tf.no_op('parallax/updates')


def _copy(
    operation: Operation,
    waiting: AbstractSet[Operation],
    copies: Dict[Operation, Operation],
    computed: Sequence[Operation],
) -> Operation:
    """Copies an operation, and before it what it waits for, into `copies`."""
    if operation not in waiting:
        return operation
    if operation not in copies:
        inputs = [
            _copy(tensor.op, waiting, copies, computed).outputs[tensor.value_index]
            for tensor in operation.inputs
        ]
        controls = [_copy(o, waiting, copies, computed) for o in operation.control_inputs]
        if operation.type in graph_queries.WRITES:
            controls += computed
        copies[operation] = tensorflow_api.copy_operation(operation, inputs, controls)
    return copies[operation]
