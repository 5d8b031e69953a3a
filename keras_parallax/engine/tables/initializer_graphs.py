# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a layer's initializer has built, so that other processes can make the values.

A table may be larger than any worker's memory, so nobody can make its start values as a whole and
hand them out. Rank 0 sends the operations instead, seeds included, and the owner of each shard has
the shard's own server run them, in blocks of rows.
"""

import base64
import random
from typing import Any, List, NamedTuple, Optional, Sequence, Set, Tuple

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Operation, Tensor, Variable

#: A table of at most so many bytes is made as a whole, and the rows of the shard taken from it: its
#: values are then those that plain Keras makes from the same seeds. Blocks of larger ones, whose
#: size must not depend on the number of shards, have as many bytes.
BLOCK_BYTES = 128 * 2**20


#: A graph larger than this, in bytes, holds an array rather than a way to make one.
_LARGEST = 2**20


#: Operations that make each element of their result from the same element of what they are given.
_ELEMENTWISE = frozenset(
    'Abs Add AddV2 Cast Ceil Cos Div Exp Floor FloorDiv Identity Log Maximum Minimum Mod Mul Neg '
    'Pow RealDiv Round Sigmoid Sign Sin Sqrt Square Sub Tanh'.split()
)


#: Operations whose first input is the shape of their result, whose elements are made all alike.
_OF_SHAPE = frozenset('Fill RandomStandardNormal RandomUniform TruncatedNormal'.split())


#: Name of the node through which a graph is given a shape.
_SHAPE = 'parallax_shape'


class InitializerGraph(NamedTuple):
    """How the start values of a variable are made. All of it can be sent as JSON.

    Attributes:
        graph: a serialized `tf.GraphDef`, in base 64.
        output: name of the tensor in it that has the values.
        in_blocks: whether blocks of rows can be made; if not, only the whole can.
    """

    graph: str
    output: str
    in_blocks: bool


def initializer_graph_of(
    variable: Variable, block_bytes: int = BLOCK_BYTES
) -> Optional[InitializerGraph]:
    """The `InitializerGraph` of a variable of a Keras model, of either kind.

    It is `None` if the values can only be made where the variable is: they are an array, depend on
    other variables, or are larger than `block_bytes` and not made element by element.
    """
    values = variable.initial_value
    found = graph_queries.ancestors([values], by_data=True)
    operations = sorted(found, key=lambda operation: operation.name)
    if any(
        tensorflow_api.op_def(operation).is_stateful and not _is_random(operation)
        for operation in operations
    ):
        return None
    uniform = _uniform_operations(values)
    if not uniform and values.shape.num_elements() * values.dtype.base_dtype.size > block_bytes:
        return None
    nodes = tf.GraphDef()
    nodes.versions.CopyFrom(variable.graph.graph_def_versions)
    if uniform:
        nodes.node.add(name=_SHAPE, op='Placeholder').attr['dtype'].type = tf.int32.as_datatype_enum
    for operation in operations:
        if operation in uniform and operation.type == 'Const':
            _add_fill(operation, nodes)
            continue
        node = _add_copy(operation, nodes)
        if operation in uniform:
            node.input[0] = _SHAPE
    if nodes.ByteSize() > _LARGEST:
        return None
    graph = base64.b64encode(nodes.SerializeToString()).decode('ascii')
    return InitializerGraph(graph, values.name, bool(uniform))


def make(initializer: InitializerGraph, shape: Any) -> Tensor:
    """Builds the operations of an `InitializerGraph`, where the caller is in the graph.

    Each run makes the next block of the sequence that its seeds begin, of the shape, a list or an
    int32 tensor; that is the whole's, if it is not `in_blocks`. Returns the values, a tensor.
    """
    return make_all([(initializer, shape)])[0]


def make_all(wanted: Sequence[Tuple[InitializerGraph, Any]]) -> List[Tensor]:
    """As `make`, of several: a list of values, given a list of pairs of its arguments.

    They are imported together, because TensorFlow looks through the whole graph at each import.
    """
    nodes, given, outputs = tf.GraphDef(), {}, []
    for number, (initializer, shape) in enumerate(wanted):
        one = tf.GraphDef.FromString(base64.b64decode(initializer.graph))
        nodes.versions.CopyFrom(one.versions)
        for node in one.node:
            added = nodes.node.add()
            added.CopyFrom(node)
            added.name = _numbered(number, node.name)
            added.input[:] = [_numbered(number, name) for name in node.input]
            if node.name != _SHAPE:
                continue
            if isinstance(shape, list):
                # Part of the import, which costs less than a constant of its own.
                added.op = 'Const'
                added.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(shape, tf.int32))
            else:
                given[added.name + ':0'] = shape
        outputs.append(_numbered(number, initializer.output))
    if not wanted:
        return []
    values: List[Tensor] = tf.import_graph_def(
        nodes, input_map=given, return_elements=outputs, name='initializer'
    )
    return values


def _numbered(number: int, name: str) -> str:
    return 'of_%d/%s' % (number, name)


def _is_random(operation: Operation) -> bool:
    return all(name in operation.node_def.attr for name in ('seed', 'seed2'))


def _uniform_operations(values: Tensor) -> Set[Operation]:
    """The operations that make all elements alike, if the rest goes element by element.

    The set is empty if the values cannot be made in blocks of rows.
    """
    uniform, pending, shape = set(), [values.op], values.shape.as_list()
    while pending:
        operation = pending.pop()
        # TensorFlow's shape functions fold more than `constant_value` does, a sum for instance.
        of_shape = operation.outputs[0].shape == shape
        if operation.type in _OF_SHAPE and of_shape:
            uniform.add(operation)
        elif operation.type in _ELEMENTWISE:
            pending.extend(tensor.op for tensor in operation.inputs)
        elif operation.type == 'Const' and of_shape and shape and _has_one_value(operation):
            uniform.add(operation)
        elif operation.type != 'Const' or operation.outputs[0].shape.ndims:
            return set()
    return uniform


def _has_one_value(constant: Operation) -> bool:
    """Whether a constant is written down as one number for all its elements."""
    proto = constant.node_def.attr['value'].tensor
    values = [value for field, value in proto.ListFields() if field.name.endswith('_val')]
    return len(values) == 1 and len(values[0]) == 1


def _add_copy(operation: Operation, nodes: Any) -> Any:
    """Adds what an operation is to a graph, without where it is and what it waits for."""
    node = nodes.node.add()
    node.CopyFrom(operation.node_def)
    node.device = ''
    node.attr.pop('_class', None)
    del node.input[:]
    node.input.extend(tensor.name for tensor in operation.inputs)
    if _is_random(operation) and not node.attr['seed'].i and not node.attr['seed2'].i:
        # Without a seed each server would draw one of its own, and their shards would be rows of
        # different tables.
        node.attr['seed'].i = random.SystemRandom().getrandbits(62) + 1
    return node


def _add_fill(constant: Operation, nodes: Any) -> None:
    """Adds to a graph what fills any shape with the one value of a constant."""
    value = _add_copy(constant, nodes)
    value.name += '/value'
    value.attr.pop('_output_shapes', None)
    value.attr['value'].tensor.tensor_shape.Clear()
    fill = nodes.node.add(name=constant.name, op='Fill', input=[_SHAPE, value.name])
    fill.attr['T'].type = value.attr['dtype'].type
    fill.attr['index_type'].type = tf.int32.as_datatype_enum
