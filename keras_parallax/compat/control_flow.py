# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Loops and branches of graphs: what is looked up in them, and with which ids.

They are operations of the same graph, in a context of their own: `Enter` and `Switch` lead a tensor
in, `Merge` and `NextIteration` make it go round. With TensorFlow 2's `enable_control_flow_v2`,
which `disable_v2_behavior` undoes, they are one operation each, whose insides are another graph;
nothing is found there.
"""

import contextlib
from typing import AbstractSet, Any, Dict, Iterator, List, NamedTuple, Optional

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Graph, Operation, Tensor, Variable

#: Operations that put out what they are given, or some of it, or of several one: from types to the
#: inputs that it comes from.
_SELECTIONS: Dict[str, Any] = {
    'Cast': [0], 'ConcatV2': slice(0, -1), 'Enter': [0], 'Exit': [0], 'ExpandDims': [0],
    'Gather': [0], 'GatherNd': [0], 'GatherV2': [0], 'Identity': [0], 'Merge': slice(None),
    'NextIteration': [0], 'Pack': slice(None), 'Reshape': [0], 'ReverseV2': [0],
    'Select': [1, 2], 'Slice': [0], 'Split': [1], 'SplitV': [0], 'Squeeze': [0],
    'StridedSlice': [0], 'Switch': [0], 'Tile': [0], 'Transpose': [0], 'Unpack': [0],
}  # fmt: skip

#: Operations on a `TensorArray`, from types to the inputs that hold what it contains and what it
#: contained before.
_READS_OF_ARRAY = {'TensorArrayReadV3': 2, 'TensorArrayGatherV3': 2}
_WRITES_TO_ARRAY = {
    'TensorArrayScatterV3': (2, 3),
    'TensorArraySplitV3': (1, 3),
    'TensorArrayWriteV3': (2, 3),
}
_CARRIERS_OF_ARRAY = {'Enter', 'Exit', 'Identity', 'Merge', 'NextIteration', 'Switch'}


class InnerLookup(NamedTuple):
    """A lookup in a loop or a branch, whose ids are known before it.

    Attributes:
        operation: the gather.
        sources: tensors outside of any loop and branch; all of its ids are among their entries.
    """

    operation: tf.Operation
    sources: List[tf.Tensor]


def is_entered(variable: Variable) -> bool:
    """Whether a loop or a branch reads a variable."""
    return any(read.type in graph_queries.ENTRANCES for read in graph_queries.reads(variable).whole)


def inner_lookups(variable: Variable, members: AbstractSet[Operation]) -> List[InnerLookup]:
    """The lookups of a variable in loops and branches, if that is all that they read of it.

    Args:
        variable: a `tf.Variable` of either kind.
        members: the operations that count, a set.

    Returns:
        A list of `InnerLookup`s, in the order in which they were made; an empty one if something
        else reads the variable whole, or a lookup has ids that the loop itself computes.
    """
    found = []
    for entrance in graph_queries.reads(variable, members).whole:
        if entrance.type not in graph_queries.ENTRANCES:
            return []
        pending = list(entrance.outputs)
        while pending:
            tensor = pending.pop()
            for reader in tensorflow_api.consumers(tensor):
                if reader not in members:
                    continue
                if reader.type in graph_queries.TRANSPARENT | graph_queries.ENTRANCES:
                    pending.extend(reader.outputs)
                    continue
                sources = None
                if graph_queries.is_lookup(reader, tensor):
                    sources = selected_from(reader.inputs[1])
                if sources is None:
                    return []
                found.append(InnerLookup(reader, sources))
    unique = {lookup.operation: lookup for lookup in found}
    return sorted(unique.values(), key=lambda lookup: tensorflow_api.operation_id(lookup.operation))


def selected_from(tensor: Tensor) -> Optional[List[Tensor]]:
    """Tensors outside of any loop and branch among whose entries those of a tensor within are.

    Returns `None` if what is within computes its entries.
    """
    sources, constants, passed, pending = [], [], set(), [(tensor, False)]
    while pending:
        tensor, is_array = pending.pop()
        operation = tensor.op
        if (operation, is_array) in passed:
            continue
        passed.add((operation, is_array))
        if is_array:
            if operation.type in _WRITES_TO_ARRAY:
                value, before = _WRITES_TO_ARRAY[operation.type]
                pending += [(operation.inputs[value], False), (operation.inputs[before], True)]
            elif operation.type in _CARRIERS_OF_ARRAY:
                pending += [(before, True) for before in operation.inputs]
            elif operation.type != 'TensorArrayV3':
                return None
        elif not tensorflow_api.is_in_control_flow(tensor):
            sources.append(tensor)
        elif operation.type in _READS_OF_ARRAY:
            pending.append((operation.inputs[_READS_OF_ARRAY[operation.type]], True))
        elif operation.type in _SELECTIONS:
            inputs, which = list(operation.inputs), _SELECTIONS[operation.type]
            chosen = inputs[which] if isinstance(which, slice) else [inputs[n] for n in which]
            pending += [(before, False) for before in chosen]
        elif operation.type == 'Const':
            constants.append(tensorflow_api.constant_value(tensor))
        else:
            return None
    with outside(tensor.graph):
        return sources + [tf.constant(value) for value in constants]


@contextlib.contextmanager
def outside(graph: Graph) -> Iterator[None]:
    """While open, operations are made outside of any loop and branch, waiting for nothing."""
    with graph.as_default(), tf.control_dependencies(None):
        yield


@contextlib.contextmanager
def inside(operation: Operation) -> Iterator[None]:
    """While open, operations are made in the loop or branch of another, on its device."""
    context = operation._get_control_flow_context()
    with operation.graph.as_default(), tf.device(operation.device):
        context.Enter()
        try:
            yield
        finally:
            context.Exit()
