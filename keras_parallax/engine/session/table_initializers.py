# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Initializes lookup tables of TensorFlow 2 before the first run that reads them.

Eager execution initializes a lookup table where it is made, so scripts for TensorFlow 2 do not run
`tf.tables_initializer`. In a graph Keras 2 initializes variables only. Scripts for TensorFlow 1 run
the initializers themselves. Tested by the case `eager_tables` of `tests/parallel/test_sessions.py`.
"""

from typing import Iterable, List

from keras_parallax.compat import graph_queries
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.scope_interface import ScopeInterface


class TableInitializers:
    """Runs the initializers of a graph's lookup tables, each once, before a run needs its table.

    An initializer that reads a placeholder is left to the script, which feeds it.

    Args:
        scope: the `GraphScope`.
    """

    def __init__(self, scope: ScopeInterface) -> None:
        self._scope, self._seen = scope, 0
        self._waiting: List[tf.Operation] = []

    def before(self, names: Iterable[str]) -> None:
        """Initializes the lookup tables that running operations, given by their names, reads."""
        if not generation.TABLES_ARE_EAGER or self._is_done:
            return
        with self._scope.lock.held():
            self._see_new()
            if not self._waiting:
                return
            graph = self._scope.graph
            run = graph_queries.ancestors(map(graph.get_operation_by_name, names))
            needed = [one for one in self._waiting if one not in run and one.inputs[0].op in run]
            if needed:
                self._scope.session.run(needed)
                self._waiting = [one for one in self._waiting if one not in needed]

    @property
    def _is_done(self) -> bool:
        return not self._waiting and self._seen == len(self._collected())

    def _see_new(self) -> None:
        collected = self._collected()
        self._waiting += [
            one
            for one in collected[self._seen :]
            if len(one.inputs) > 0 and not graph_queries.placeholders(one)
        ]
        self._seen = len(collected)

    def _collected(self) -> List[tf.Operation]:
        return self._scope.graph.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS)
