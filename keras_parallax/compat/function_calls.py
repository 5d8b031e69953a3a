"""Calls of functions of TensorFlow 2: the function's own operations, where it looks up rows.

A `tf.function` is one operation of a graph, which reads the variables that it is given as a whole.
What is within is another graph, in which nothing can be pulled or pushed. So a function that looks
up rows of a variable is not called; its operations are made in the graph that would call it.
"""

import functools
import inspect

from keras_parallax.compat import graph_queries, patches, tensorflow_api
from keras_parallax.compat.stack import generation
from keras_parallax.compat.tensorflow_api import tf

#: Operations that have functions: loops, branches and calls of others.
_CALLING = {
    'Case', 'If', 'PartitionedCall', 'StatefulPartitionedCall', 'StatelessCase', 'StatelessIf',
    'StatelessWhile', 'While',
}  # fmt: skip

#: What marks a function that XLA compiles: TensorFlow 1.15, and TensorFlow 2.
_BY_XLA = ('_XlaCompile', '_XlaMustCompile')


def install(is_wanted):
    """Has calls of functions that look up rows be made of the function's operations.

    Args:
        is_wanted: function from a graph to whether that is so for calls in it.
    """
    if generation.FUNCTION_CALLS:
        owner, target, *names = generation.FUNCTION_CALLS
        patches.replace_method(target, owner, functools.partial(_call_of, is_wanted, names))


def _call_of(is_wanted, names, original):
    """What makes a call in the default graph, and returns its outputs, or `original` does."""
    signature = inspect.signature(original)

    def call(*arguments, **named):
        given = signature.bind(*arguments, **named).arguments
        function, inputs = (given[name] for name in names)
        graph = tf.get_default_graph()
        if is_wanted(_outermost(graph)) and _can_be_inlined(function, graph):
            return _operations_of(function, inputs, graph)
        return original(*arguments, **named)

    return call


def _outermost(graph):
    """The graph for which a function is traced, if a graph is one of a function."""
    while getattr(graph, 'outer_graph', None) is not None:
        graph = graph.outer_graph
    return graph


def _can_be_inlined(function, graph):
    """Whether a function looks up rows, and can be made of its operations.

    That is not so in a loop, in a branch, and for XLA. Nor where a gradient may pass through a
    loop, a branch or a call of its own: TensorFlow adds outputs to a loop for each gradient that is
    asked for, which a session that has run it does not see, and the gradient of a call is an
    attribute of an object in Python, which is not imported (TF 2.21).
    """
    if graph._get_control_flow_context() is not None:
        return False
    handles = (tensor for tensor in function.graph.inputs if tensor.dtype == tf.resource)
    if not any(graph_queries.reads_of(handle).lookups for handle in handles):
        return False
    # To ask a map of a message for what it has not puts it in: TF 1.15 keeps the message.
    attributes = function.definition.attr
    if any(name in attributes and attributes[name].b for name in _BY_XLA):
        return False
    return not any(
        operation.type in _CALLING and any(output.dtype.is_floating for output in operation.outputs)
        for operation in function.graph.get_operations()
    )


def _operations_of(function, inputs, graph):
    """Makes a function's operations in a graph, and returns what it returns, a list of tensors."""
    inner, given = function.graph, {}
    for argument, value in zip(inner.inputs, inputs):
        value = tf.convert_to_tensor(value)
        if value.graph is not graph:
            value = graph.capture(value)
        given[argument.name] = given['^' + argument.op.name] = value
    wanted = [tensor.name for tensor in inner.outputs]
    wanted += [operation.name for operation in inner.control_outputs]
    # It waits for what the call would wait for.
    first = tf.no_op()
    made = tf.import_graph_def(
        inner.as_graph_def(), input_map=given, return_elements=wanted, name='function'
    )
    if first.control_inputs:
        for operation in graph.get_operations():
            if tensorflow_api.operation_id(operation) > tensorflow_api.operation_id(first):
                tensorflow_api.add_control_inputs(operation, first.control_inputs)
    outputs, effects = made[: len(inner.outputs)], made[len(inner.outputs) :]
    # A call has run as a whole when its outputs are there.
    with tf.control_dependencies(effects):
        return [tf.identity(output) for output in outputs]
