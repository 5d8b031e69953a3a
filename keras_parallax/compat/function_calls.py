# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Calls of functions of TensorFlow 2: their Python is run in the graph, where it looks up rows.

A `tf.function` is one operation of a graph, which reads the variables that it is given as a whole.
What is within is another graph, in which nothing can be pulled or pushed. So a function that looks
up rows of a variable is not called; it is run once more, and makes its operations in the graph that
would call it.
"""

import contextlib
import functools
import weakref
from typing import Any, Callable, Iterator, Set, Tuple

import numpy as np

from keras_parallax.compat import function_graphs, patches, tensorflow_api
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import VARIABLES, tf
from keras_parallax.framework_types import Graph, Tensor


def install(is_wanted: Callable[[Graph], bool]) -> None:
    """Has functions that look up rows be run where they are called.

    Args:
        is_wanted: function from a graph to whether that is so in it.
    """
    if generation.FUNCTIONS:
        patches.replace_method(
            'Function.__call__',
            generation.FUNCTIONS.FUNCTION,
            functools.partial(_function_call_of, is_wanted),
        )


def _function_call_of(
    is_wanted: Callable[[Graph], bool], original: Callable[..., Any]
) -> Callable[..., Any]:
    """What a `tf.function` does when it is called: run its Python, or what `original` does."""

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        graph, given = tf.get_default_graph(), (arguments, named)
        if is_wanted(graph):
            concrete = generation.concrete_function_of(self, *given)
            traced, definition = concrete.graph, concrete.function_def
            is_open = _is_within(graph) or function_graphs.looks_up(traced, _INSIDES)
            if _can_be_run(self, traced, definition, given, is_open, graph):
                _looked_up_in_loops.setdefault(graph, set()).update(_names_in_loops(traced, given))
                with _loops(is_open), _effects(traced, graph) as result_of:
                    return _results_of(self, given, result_of)
        return original(self, *arguments, **named)

    return call


#: The names of the handles of variables that functions look up in loops, for each graph that calls
#: the functions. An operation in place of its name would keep the graph alive.
_looked_up_in_loops: Any = weakref.WeakKeyDictionary()


def has_tensor_gradient(variable: Any) -> bool:
    """Whether the gradient of a looked-up variable is a tensor in plain Keras.

    The gradient of a loop in a `tf.function` is a tensor. The functions that are run in the graph
    use TensorFlow 1's loops instead, whose gradients are `IndexedSlices`.
    """
    handle = tensorflow_api.storage(variable)
    return handle.op.name in _looked_up_in_loops.get(handle.graph, ())


def _names_in_loops(traced: Any, given: Tuple[Any, Any]) -> Set[str]:
    """The names of the handles of variables that a function looks up in its loops."""
    places = function_graphs.looked_up_in_loops(traced)
    outer = {place: handle for handle, place in traced.captures}
    arguments = [
        one.handle
        for one in tf.nest.flatten(given, expand_composites=True)
        if isinstance(one, VARIABLES) and hasattr(one, 'handle')
    ]
    others = [place for place in traced.inputs if place.dtype == tf.resource and place not in outer]
    outer.update(zip(others, arguments))
    return {outer[place].op.name for place in places if place in outer}


#: What is a graph of its own, but for TensorFlow 1's loops and branches.
_INSIDES = (function_graphs.LOOP, function_graphs.BRANCH)


def _is_within(graph: Graph) -> bool:
    """Whether operations that a graph gets next are in a loop or a branch of it."""
    return graph._get_control_flow_context() is not None


def _can_be_run(
    function: Any, traced: Graph, definition: Any, given: Any, is_open: bool, graph: Graph
) -> bool:
    """Whether the Python of a function that looks up rows can be run where it would be called.

    Args:
        function: what `tf.function` has made.
        traced: its graph, as it is for what it is called with.
        definition: the `FunctionDef` that it would call.
        given: what it is called with: a tuple of arguments, and a dict of those by name.
        is_open: whether its loops and branches are to be the graph's own. In them, TensorFlow does
            not see to what has an effect: that it is written, printed or refused.
        graph: the graph in which it is called.
    """
    open_ones = () if _is_within(graph) else _INSIDES
    return (
        function_graphs.looks_up(traced)
        and not function_graphs.is_compiled_by_xla(definition)
        # TensorFlow converts numbers to what the signature says.
        and (function.input_signature is None or _are_tensors(given))
        and not (is_open and function_graphs.has_effects(traced, open_ones))
        and not (is_open and _has_unreadable_branches(traced))
    )


def _has_unreadable_branches(traced: Graph) -> bool:
    is_asked = not generation.BRANCHES_IN_LOOPS_READ
    return is_asked and function_graphs.reads_in_branches_of_loops(traced)


def _are_tensors(given: Any) -> bool:
    return all(map(tf.is_tensor, tf.nest.flatten(given, expand_composites=True)))


@contextlib.contextmanager
def _loops(are_open: bool) -> Iterator[None]:
    """While open, loops and branches that are made are the graph's own, or functions."""
    if are_open or tf.control_flow_v2_enabled():
        yield
        return
    tf.enable_control_flow_v2()
    try:
        yield
    finally:
        tf.disable_control_flow_v2()


@contextlib.contextmanager
def _effects(traced: Graph, graph: Graph) -> Iterator[Callable[[Tensor], Any]]:
    """While open, what has effects is made to run before the results.

    Yields:
        A function from a tensor to what is to be returned of it.
    """
    # It is open already where a function is run within another one.
    if graph._add_control_dependencies or not function_graphs.has_effects(traced):
        yield _as_another
        return
    tools = generation.FUNCTIONS
    # TensorFlow says of an assertion that it is never used, which in a graph would be so.
    with patches.replaced(
        'tf_should_use._add_should_use_warning', [tools.tf_should_use], lambda one, **_: one
    ), tools.ControlDependencies() as dependencies:
        yield dependencies.mark_as_return


def _results_of(function: Any, given: Any, result_of: Callable[[Tensor], Any]) -> Any:
    """Runs a function's Python, and returns what a call of the function returns."""
    with tf.name_scope('function'):
        arguments, named = tf.nest.map_structure(_as_argument, given)
        results = generation.python_of(function)(*arguments, **named)
        return tf.nest.map_structure(
            lambda one: None if one is None else result_of(_as_tensor(one)),
            results,
            expand_composites=True,
        )


def _as_argument(given: Any) -> Any:
    """What the Python of a function sees of an argument."""
    # A number of Python is part of the trace.
    if isinstance(given, (np.ndarray, np.generic)):
        return tf.convert_to_tensor(given)
    if isinstance(given, VARIABLES) or not tf.is_tensor(given):
        return given
    return tf.nest.map_structure(_as_another, given, expand_composites=True)


def _as_another(tensor: Any) -> Any:
    """The same values, of which Keras does not know a mask: it does not see into a function."""
    return tensor if isinstance(tensor, tf.TensorArray) else tf.identity(tensor)


def _as_tensor(result: Any) -> Any:
    return result if isinstance(result, tf.TensorArray) else tf.convert_to_tensor(result)
