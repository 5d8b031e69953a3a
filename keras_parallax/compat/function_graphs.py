# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Questions to the graph of a function of TensorFlow 2: what it looks up, what else it does."""

from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

from keras_parallax.compat import graph_queries
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Graph, Operation

#: Operations that have functions, by what is done with them.
LOOP, BRANCH, CALL = 'loop', 'branch', 'call'
KINDS = {
    'Case': BRANCH, 'If': BRANCH, 'PartitionedCall': CALL, 'StatefulPartitionedCall': CALL,
    'StatelessCase': BRANCH, 'StatelessIf': BRANCH, 'StatelessWhile': LOOP, 'While': LOOP,
}  # fmt: skip

#: Operations that TensorFlow takes to be stateful, for what they read may change.
_READS = {'ReadVariableOp', 'ResourceGather', 'ResourceGatherNd', 'VarHandleOp'}

#: What marks a function that XLA compiles: TensorFlow 1.15, and TensorFlow 2.
_BY_XLA = ('_XlaCompile', '_XlaMustCompile')


def looks_up(graph: Graph, only_within: Iterable[str] = ()) -> bool:
    """Whether a function looks up rows of a variable, itself or in a function that it has.

    Args:
        graph: the function's graph.
        only_within: kinds of operations; if there are any, only what is done in one of them counts.
    """
    return any(
        _is_lookup(operation)
        for operation, within in _operations(graph)
        if not only_within or within.intersection(only_within)
    )


def _is_lookup(operation: Operation) -> bool:
    if not operation.inputs or not graph_queries.is_lookup(operation, operation.inputs[0]):
        return False
    return _source_of(operation).dtype == tf.resource


def _source_of(lookup: tf.Operation) -> tf.Tensor:
    """What a lookup reads: the handle of a variable, or another tensor."""
    source = lookup.inputs[0]
    while source.op.type in graph_queries.TRANSPARENT:
        source = source.op.inputs[0]
    return source


def looked_up_in_loops(graph: Any) -> Set[tf.Tensor]:
    """The variables that a function looks up in a loop: a set of inputs of the function's graph.

    Their gradients are tensors. The gradients of other lookups are `IndexedSlices`.
    """
    return _looked_up(graph, {tensor: tensor for tensor in graph.inputs}, False)


def _looked_up(graph: Any, origins: Dict[tf.Tensor, tf.Tensor], in_loop: bool) -> Set[tf.Tensor]:
    """The variables that a graph, which may be the body of a loop, looks up in a loop.

    Args:
        graph: the graph of a function.
        origins: dict from inputs of the graph to what is returned for them.
        in_loop: whether the graph runs in a loop.
    """
    found = set()
    for operation in graph.get_operations():
        if in_loop and _is_lookup(operation):
            found |= {origins[one] for one in [_source_of(operation)] if one in origins}
        for inner in _functions_of(operation):
            # The first input of a branch chooses it, and is not passed to its function.
            given = list(operation.inputs)[len(operation.inputs) - len(inner.inputs) :]
            of_inner = {
                place: origins[tensor]
                for tensor, place in zip(given, inner.inputs)
                if tensor in origins
            }
            is_loop = in_loop or KINDS.get(operation.type) == LOOP
            found |= _looked_up(inner, of_inner, is_loop)
    return found


def has_effects(graph: Graph, only_within: Iterable[str] = ()) -> bool:
    """Whether a function does more than to compute its outputs: it writes, prints, or may fail."""
    return any(
        operation.type not in _READS
        and not _functions_of(operation)
        and generation.FUNCTIONS.is_stateful(operation)
        for operation, within in _operations(graph)
        if not only_within or within.intersection(only_within)
    )


def reads_in_branches_of_loops(graph: Graph) -> bool:
    """Whether a branch in a loop of a function is given a variable."""
    return any(
        LOOP in within
        and KINDS.get(operation.type) == BRANCH
        and any(tensor.dtype == tf.resource for tensor in operation.inputs)
        for operation, within in _operations(graph)
    )


def is_compiled_by_xla(definition: Any) -> bool:
    """Whether TensorFlow has a function compiled, a `FunctionDef`."""
    # To ask a map of a message for what it has not puts it in: TF 1.15 keeps the message.
    attributes = definition.attr
    return any(name in attributes and attributes[name].b for name in _BY_XLA)


def _operations(
    graph: Graph, within: FrozenSet[str] = frozenset()
) -> Iterator[Tuple[Operation, FrozenSet[str]]]:
    """The operations of a function and of those that it has, each with the kinds it is within."""
    for operation in graph.get_operations():
        yield operation, within
        for inner in _functions_of(operation):
            yield from _operations(inner, within | {KINDS.get(operation.type, CALL)})


def _functions_of(operation: Operation) -> List[Graph]:
    """The graphs of the functions that an operation has: a call has one, a loop two."""
    names = []
    for attribute in operation.op_def.attr:
        if attribute.type == 'func':
            names.append(operation.get_attr(attribute.name).name)
        elif attribute.type == 'list(func)':
            names += [function.name for function in operation.get_attr(attribute.name)]
    functions = [operation.graph._get_function(name) for name in names]
    return [function.graph for function in functions if hasattr(function, 'graph')]
