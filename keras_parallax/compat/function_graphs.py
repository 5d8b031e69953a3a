"""Questions to the graph of a function of TensorFlow 2: what it looks up, what else it does."""

from keras_parallax.compat import graph_queries
from keras_parallax.compat.stack import generation
from keras_parallax.compat.tensorflow_api import tf

#: Operations that TensorFlow takes to be stateful, for what they read may change.
_READS = {'ReadVariableOp', 'ResourceGather', 'ResourceGatherNd', 'VarHandleOp'}

#: What marks a function that XLA compiles: TensorFlow 1.15, and TensorFlow 2.
_BY_XLA = ('_XlaCompile', '_XlaMustCompile')


def functions_of(operation):
    """The graphs of the functions that an operation has: a call has one, a loop two."""
    names = []
    for attribute in operation.op_def.attr:
        if attribute.type == 'func':
            names.append(operation.get_attr(attribute.name).name)
        elif attribute.type == 'list(func)':
            names += [function.name for function in operation.get_attr(attribute.name)]
    functions = [operation.graph._get_function(name) for name in names]
    return [function.graph for function in functions if hasattr(function, 'graph')]


def looks_up(graph):
    """Whether a function looks up rows of a variable, itself or in a function that it has."""
    handles = [tensor for tensor in graph.inputs if tensor.dtype == tf.resource]
    return any(graph_queries.reads_of(handle).lookups for handle in handles) or any(
        looks_up(inner) for operation in graph.get_operations() for inner in functions_of(operation)
    )


def has_effects(graph, only_in_loops=False):
    """Whether a function does more than to compute its outputs: it writes, prints, or may fail.

    Args:
        graph: the function's graph.
        only_in_loops: whether only that counts which loops do.
    """
    for operation in graph.get_operations():
        is_looped = not only_in_loops or operation.type in ('StatelessWhile', 'While')
        inner = functions_of(operation)
        if any(has_effects(one, only_in_loops=not is_looped) for one in inner):
            return True
        if inner or only_in_loops or operation.type in _READS:
            continue
        if generation.FUNCTIONS.is_stateful(operation):
            return True
    return False


def passes_gradients_on(graph):
    """Whether a gradient may pass through a loop, a branch or a call that a function has."""
    return any(
        functions_of(operation) and any(_has_gradient(output) for output in operation.outputs)
        for operation in graph.get_operations()
    )


def _has_gradient(tensor):
    # A list of tensors is a variant.
    return tensor.dtype == tf.variant or tensor.dtype.is_floating or tensor.dtype.is_complex


def is_compiled_by_xla(definition):
    """Whether TensorFlow has a function compiled, a `FunctionDef`."""
    # To ask a map of a message for what it has not puts it in: TF 1.15 keeps the message.
    attributes = definition.attr
    return any(name in attributes and attributes[name].b for name in _BY_XLA)
