"""Calls of functions of TensorFlow 2: the function's own operations, where it looks up rows.

A `tf.function` is one operation of a graph, which reads the variables that it is given as a whole.
What is within is another graph, in which nothing can be pulled or pushed. So a function that looks
up rows of a variable is not called; its operations are made in the graph that would call it. They
are imported; or, where it has loops, branches or calls of its own, its Python is run once more.
"""

import contextlib
import functools
import inspect

import numpy as np

from keras_parallax.compat import function_graphs, patches, tensorflow_api
from keras_parallax.compat.stack import generation
from keras_parallax.compat.tensorflow_api import tf


def install(is_wanted):
    """Has calls of functions that look up rows be made of the function's operations.

    Args:
        is_wanted: function from a graph to whether that is so for calls in it.
    """
    if generation.FUNCTION_CALLS:
        owner, target, *names = generation.FUNCTION_CALLS
        patches.replace_method(target, owner, functools.partial(_call_of, is_wanted, names))
        patches.replace_method(
            'Function.__call__',
            generation.FUNCTIONS.FUNCTION,
            functools.partial(_function_call_of, is_wanted),
        )


def _call_of(is_wanted, names, original):
    """What makes a call in the default graph, and returns its outputs, or `original` does."""
    signature = inspect.signature(original)

    def call(*arguments, **named):
        given = signature.bind(*arguments, **named).arguments
        function, inputs = (given[name] for name in names)
        graph = tf.get_default_graph()
        if is_wanted(_outermost(graph)) and _can_be_imported(
            function.graph, function.definition, graph
        ):
            return _operations_of(function, inputs, graph)
        return original(*arguments, **named)

    return call


def _function_call_of(is_wanted, original):
    """What a `tf.function` does when it is called: run its Python, or what `original` does."""

    def call(self, *arguments, **named):
        graph = tf.get_default_graph()
        if is_wanted(graph):
            concrete = generation.concrete_function_of(self, arguments, named)
            traced, definition = concrete.graph, concrete.function_def
            given = (arguments, named)
            if not _can_be_imported(traced, definition, graph) and _can_be_run(
                self, traced, definition, given, graph
            ):
                return _results_of(self, given, graph, function_graphs.has_effects(traced))
        return original(self, *arguments, **named)

    return call


def _outermost(graph):
    """The graph for which a function is traced, if a graph is one of a function."""
    while getattr(graph, 'outer_graph', None) is not None:
        graph = graph.outer_graph
    return graph


def _can_be_imported(traced, definition, graph):
    """Whether a function looks up rows, and can be made of its operations.

    That is not so in a loop, in a branch, and for XLA. Nor where a gradient may pass through a
    loop, a branch or a call of its own: TensorFlow adds outputs to a loop for each gradient that is
    asked for, which a session that has run it does not see, and the gradient of a call is an
    attribute of an object in Python, which is not imported (TF 2.21).
    """
    return (
        graph._get_control_flow_context() is None
        and function_graphs.looks_up(traced)
        and not function_graphs.is_compiled_by_xla(definition)
        and not function_graphs.passes_gradients_on(traced)
    )


def _can_be_run(function, traced, definition, given, graph):
    """Whether the Python of a function that looks up rows can be run where it would be called.

    Loops and branches are then the graph's own, as in a layer that has them itself. TensorFlow does
    not see to what they write, print or refuse, which is why a loop has to have no such effect.

    Args:
        function: what `tf.function` has made.
        traced: its graph, as it is for what it is called with.
        definition: the `FunctionDef` that it would call.
        given: what it is called with: a tuple of arguments, and a dict of those by name.
        graph: the graph in which that is.
    """
    is_within = graph._get_control_flow_context() is not None
    return (
        function_graphs.looks_up(traced)
        and not function_graphs.is_compiled_by_xla(definition)
        and not function_graphs.has_effects(traced, only_in_loops=not is_within)
        # It made them when it was traced.
        and not function._created_variables
        # TensorFlow converts numbers to what the signature says.
        and (function.input_signature is None or all(map(tf.is_tensor, _flat(given))))
    )


def _flat(given):
    return tf.nest.flatten(given, expand_composites=True)


def _results_of(function, given, graph, has_effects):
    """Runs a function's Python in a graph, and returns what a call of the function returns."""
    run = generation.python_of(function)
    arguments, named = tf.nest.map_structure(
        lambda one: tf.convert_to_tensor(one) if isinstance(one, _NUMPY) else one,
        given,
    )
    with tf.name_scope('function'), _in_order(graph, has_effects) as mark_as_return:
        return tf.nest.map_structure(
            lambda one: None if one is None else mark_as_return(_converted(one)),
            run(*arguments, **named),
            expand_composites=True,
        )


#: What a function takes as a tensor, where another number of Python is part of its trace.
_NUMPY = (np.ndarray, np.generic)


def _converted(result):
    is_array = isinstance(result, tf.TensorArray)
    return result if is_array else tf.convert_to_tensor(result)


@contextlib.contextmanager
def _in_order(graph, has_effects):
    """While open, what has effects is made to run before the tensors that are marked.

    Yields:
        A function from a tensor to what is returned of it.
    """
    # It is open already where a function is run within another one.
    if not has_effects or graph._add_control_dependencies:
        yield lambda tensor: tensor
        return
    tools = generation.FUNCTIONS
    # TensorFlow says of an assertion that it is never used, which in a graph would be so.
    with patches.replaced(
        'tf_should_use._add_should_use_warning', [tools.tf_should_use], lambda one, **_: one
    ), tools.ControlDependencies() as dependencies:
        yield dependencies.mark_as_return


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
