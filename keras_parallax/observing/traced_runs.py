# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs of a training step that TensorFlow traces, and the role of each operation in the step.

A server tells a function no metadata (TF 1.11), and `tf.Session.run`, which has them, knows no
edges of a function's own, through which a step may read its rows. So a traced step runs in a copy
of the graph that has these edges, in a session of its own at the same server: variables, queues and
iterators have names there, and are the same (`tests/parallel/test_behaviour.py`, the profile).
"""

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries, session_hooks
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.session_scope import SessionScope
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.framework_types import Graph, Operation, Session
from keras_parallax.observing import phases


class Tracer(StepObserver):
    """Traces the runs of a training step while it is one of the step's `observers`.

    Attributes:
        traced: what TensorFlow says of each run: a list of triples of begin and end, in seconds
            since the epoch, and `RunMetadata`.
    """

    traced: List[Tuple[float, float, Any]]
    _session: Session
    _of: Any

    def __init__(self) -> None:
        self.traced = []
        self._session = self._of = None

    @property
    def tracer(self) -> 'Tracer':
        """As of `StepObserver`."""
        return self

    def run(self, scope: SessionScope, options: Any, args: Sequence[Any]) -> Any:
        """Runs what the function of `CallableOptions` does, with some arguments, and notes it.

        Returns what the function returns.
        """
        metadata, begin = tf.RunMetadata(), time.time()
        if scope.sessions.target:
            results = self._run_at_server(scope, options, args, metadata)
        else:
            traced = session_hooks.connected_options(options, [])
            traced.run_options.trace_level = tf.RunOptions.FULL_TRACE
            function = session_hooks.make_callable(scope.session, traced)
            begin = time.time()
            results = function(*args, run_metadata=metadata)
        self.traced.append((begin, time.time(), metadata))
        return results

    def _run_at_server(
        self, scope: SessionScope, options: Any, args: Sequence[Any], metadata: Any
    ) -> Any:
        edges = {edge.to_tensor: edge.from_tensor for edge in options.tensor_connection}
        # What is new in a graph may be another step, whose tables have moved.
        of = scope.graph.version, edges
        if self._session is None or self._of != of:
            self.close()
            self._of = of
            self._session = tf.Session(
                scope.sessions.target,
                graph=_connected_graph(scope.graph, edges),
                config=scope.job.config,
            )
        graph = self._session.graph
        fetches = [graph.get_tensor_by_name(edges.get(name, name)) for name in options.fetch]
        targets = [graph.get_operation_by_name(name) for name in options.target]
        feeds = dict(zip(map(graph.get_tensor_by_name, options.feed), args))
        run_options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        return self._session.run(fetches + targets, feeds, run_options, metadata)[: len(fetches)]

    def close(self) -> None:
        """Closes the session, if there is one."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _connected_graph(graph: Graph, edges: Mapping[str, str]) -> Graph:
    """A copy of a graph whose operations read other tensors, a dict of names by names."""
    definition = graph.as_graph_def()
    if edges:
        for node in definition.node:
            for place, name in enumerate(node.input):
                full = name if ':' in name else name + ':0'
                if not name.startswith('^') and full in edges:
                    node.input[place] = edges[full]
    copy = tf.Graph()
    with copy.as_default():
        tf.import_graph_def(definition, name='')
    return copy


def roles_of(step: TrainStep) -> Dict[str, phases.Role]:
    """The `phases.Role`s of the operations of a `TrainStep`, a dict from their names."""
    gradients = step.operations.gradients
    rows: Dict[str, List[Operation]] = {}
    pushes: Dict[Optional[str], List[Operation]] = {}
    summed: Dict[str, List[Operation]] = {}
    names: Dict[str, str] = {}
    for traffic in gradients.table_traffic:
        name = ', '.join(table.name for table in traffic.table.tables)
        names.update((table.name, name) for table in traffic.table.tables)
        rows[name] = [of_pull.op for of_pull in traffic.arrived]
        pushes[name] = list(traffic.pushes)
    for part, of_part in gradients.parts:
        operation = getattr(of_part, 'values', of_part).op
        name = names.get(part.table.name, part.table.name)
        summed.setdefault(name, []).append(operation)
    # Those of dense variables on servers.
    pushes[None] = list(gradients.pushes)
    computed, whole = gradients.computed, step.whole_step
    if step.operations.update is not None:
        # Gradients are added up with a batch, and exchanged by themselves.
        computed, whole = whole, step.operations.update
    marks = phases.Marks(rows, gradients.loss.op, computed, pushes, summed, whole)
    return phases.roles_of(marks, graph_queries.ancestors)
