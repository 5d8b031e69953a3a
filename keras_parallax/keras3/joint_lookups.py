# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The lookups of a functional model, whose rows one call pulls before its layers are called."""

import collections
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.keras3 import embedding_layer
from keras_parallax.keras3.embedding_layer import given

#: The graphs of models of whose calls XLA is to compile all but the lookups.
compiled_graphs: Any = weakref.WeakSet()


class _Node(NamedTuple):
    """What is known of a node of a functional model before its operations are called.

    Attributes:
        operation: the layer or operation.
        ids: the ids of a lookup, a tensor; `None` if they are not known, or it is no lookup.
        outputs: what the operation returns, if it was called for the ids of a lookup.
    """

    operation: Any
    ids: Any = None
    outputs: Any = None


def install() -> None:
    """Has functional models look up the rows of all tables by one call."""
    keras3_api.replace_method(
        'Function._run_through_graph', keras3_api.Function, _run_through_graph
    )


def _run_through_graph(original: Callable[..., Any]) -> Callable[..., Any]:
    def _run_through_graph(
        self: Any,
        inputs: Any,
        operation_fn: Callable[[Any], Any] = lambda operation: operation,
        call_fn: Optional[Callable[..., Any]] = None,
    ) -> Any:
        backend = keras3_api.backend_module()
        compiles = call_fn is None and self in compiled_graphs and backend.is_traced()
        least = 1 if compiles else 2
        known = [] if call_fn else _known_nodes(self, keras.tree.flatten(inputs), least)
        if not compiles and sum(node.ids is not None for node in known) < least:
            return original(self, inputs, operation_fn, call_fn)
        ready = _ready_calls(known)

        def as_known(operation: Any) -> Any:
            call, of_calls = operation_fn(operation), ready.get(operation)
            return of_calls.popleft()(call) if of_calls else call

        if not compiles:
            return original(self, inputs, as_known, call_fn)
        layers = list(keras3_api.layers_of(self))
        return backend.compiled_by_xla(lambda: original(self, inputs, as_known), layers)

    return _run_through_graph


def looked_up_alone(model: Any) -> List[Any]:
    """The layers of a model whose ids are known no earlier than in a layer's call.

    Each step makes a call of its own for each of their lookups.
    """
    graph = keras3_api.function_of(model)
    nodes = keras3_api.nodes_of(graph) if graph is not None else []
    known = {id(one) for one in graph.inputs} if graph is not None else set()
    needed = _needed_for_ids(nodes)
    at_once: Dict[int, bool] = {}
    for node in nodes:
        are_known = all(id(one) in known for one in node.input_tensors)
        if id(node) in needed and are_known:
            known.update(map(id, node.outputs))
        if not node.is_input and embedding_layer.table_of(node.operation) is not None:
            is_at_once = are_known and embedding_layer.calls_ours(node.operation)
            layer = id(node.operation)
            at_once[layer] = at_once.get(layer, True) and is_at_once
    layers = keras3_api.layers_of(model)
    return [
        layer
        for layer in layers
        if embedding_layer.table_of(layer) is not None and not at_once.get(id(layer), False)
    ]


def _known_nodes(function: Any, inputs: List[Any], least: int) -> List[_Node]:
    """The nodes of a functional model, in the order in which it calls them.

    None, if it has fewer lookups than `least`, or inputs that are symbols or not there.
    """
    nodes = [node for node in keras3_api.nodes_of(function) if not node.is_input]
    if sum(map(_is_lookup, nodes)) < least:
        return []
    if not all(keras3_api.backend_module().is_plain(of_one) for of_one in inputs):
        return []
    values: Dict[int, Any] = {id(of): value for of, value in zip(function.inputs, inputs)}
    needed = _needed_for_ids(nodes)
    known = []
    for node in nodes:
        operation = node.operation
        if _is_lookup(node):
            known.append(_Node(operation, ids=values.get(id(node.input_tensors[0]))))
        elif id(node) in needed and all(id(one) in values for one in node.input_tensors):
            args, kwargs = node.arguments.fill_in(values)
            outputs = operation(*args, **kwargs)
            values.update(
                (id(of), value) for of, value in zip(node.outputs, keras.tree.flatten(outputs))
            )
            known.append(_Node(operation, outputs=outputs))
        else:
            known.append(_Node(operation))
    return known


def _is_lookup(node: Any) -> bool:
    layer = node.operation
    return embedding_layer.table_of(layer) is not None and embedding_layer.calls_ours(layer)


def _needed_for_ids(nodes: List[Any]) -> Set[int]:
    """The nodes, by `id`, of operations without weights that lookups get their ids from."""
    wanted: Set[int] = set()
    needed = set()
    for node in reversed(nodes):
        if _is_lookup(node):
            wanted.update(map(id, node.input_tensors))
        elif any(id(output) in wanted for output in node.outputs):
            # A model within may have weights, and change them.
            if not isinstance(node.operation, (keras.Layer, keras3_api.Function)):
                needed.add(id(node))
                wanted.update(map(id, node.input_tensors))
    return needed


def _ready_calls(known: List[_Node]) -> Dict[Any, Deque[Callable[[Any], Any]]]:
    """For each call of an operation a function from what Keras calls to what is called."""
    lookups = [node for node in known if node.ids is not None]
    rows = iter(_rows_of(lookups) if lookups else [])
    ready: Dict[Any, Deque[Callable[[Any], Any]]] = collections.defaultdict(collections.deque)
    for node in known:
        if node.ids is not None:
            wrap = _with_rows(node.operation, next(rows))
        elif node.outputs is not None:
            wrap = _with_outputs(node.outputs)
        else:
            wrap = _as_it_is
        ready[node.operation].append(wrap)
    return ready


def _as_it_is(call: Any) -> Any:
    return call


def _with_outputs(outputs: Any) -> Callable[[Any], Any]:
    return lambda call: lambda *args, **kwargs: outputs


def _with_rows(layer: Any, rows: Any) -> Callable[[Any], Any]:
    def wrap(call: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            with given.to(layer, rows):
                return call(*args, **kwargs)

        return called

    return wrap


def _rows_of(lookups: List[_Node]) -> List[Any]:
    """The rows of lookups whose ids are known, pulled by one call."""
    of_lookups: List[Any] = [embedding_layer.table_of(lookup.operation) for lookup in lookups]
    # The tables are in the order in which a training step has built this pull already.
    order = sorted(range(len(lookups)), key=lambda place: of_lookups[place].table.number)
    lookups, variables = [lookups[place] for place in order], [of_lookups[place] for place in order]
    of_ids = {id(lookup.ids): embedding_layer.as_ids(lookup.ids) for lookup in lookups}
    tables = tuple(variable.table for variable in variables)
    found: List[Any] = keras3_api.backend_module().lookups(
        variables[0].scope.noting_errors(tables[0].joint_pull(tables)),
        variables,
        [of_ids[id(lookup.ids)] for lookup in lookups],
        [table.shape[1] for table in tables],
    )
    by_place = dict(zip(order, found))
    return [by_place[place] for place in range(len(order))]
