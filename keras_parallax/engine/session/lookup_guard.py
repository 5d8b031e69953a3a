# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks the ids of lookups that TensorFlow would not check: those of a graphics card.

On the CPU a gather raises an error if an id has no row. On a card it returns zeros, and training
goes on. Pulls check their ids themselves; the lookups here are those of tables without shards.
"""

from typing import Optional

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.tables.pull import check_of_ids
from keras_parallax.framework_types import Operation


class LookupGuard:
    """Adds a check to each lookup of a graph before a session runs it, where a card may run it.

    Args:
        scope: the `GraphScope` of the graph.
    """

    _version: Optional[int]

    def __init__(self, scope: ScopeInterface) -> None:
        self._scope, self._graph = scope, scope.graph
        self._seen, self._version = 0, None
        # Asked once: every run of a session looks whether there is something to check.
        self._is_needed = tensorflow_api.has_card()

    @property
    def is_done(self) -> bool:
        """Whether `look_through` has seen all of the graph, or there is no card."""
        return not self._is_needed or self._version == self._graph.version

    def look_through(self) -> None:
        """Adds the checks to what is new in the graph."""
        while not self.is_done:
            version, new = self._graph.version, self._graph.get_operations()[self._seen :]
            for operation in new:
                variable = graph_queries.variable_looked_up(operation)
                if variable is not None:
                    self._check(operation, variable)
            # What checks the ids is new as well, but looks up no variable.
            self._seen, self._version = self._seen + len(new), version

    def _check(self, lookup: Operation, variable: Operation) -> None:
        """Has a lookup wait for a check of its ids.

        Args:
            lookup: the lookup, which no session has run.
            variable: the operation of the storage of its variable.
        """
        rows = tensorflow_api.shape_of_storage(variable).as_list()[0]
        with self._graph.as_default(), tensorflow_api.inside_loop_of(lookup):
            with tf.name_scope(None), tf.device(None), tf.device(self._cpu):
                ids = lookup.inputs[1]
                check = check_of_ids(tf.reshape(ids, [-1]), rows, variable.name)
                with tf.control_dependencies([check]):
                    checked = tf.identity(ids)
        tensorflow_api.replace_input(lookup, 1, checked)

    @property
    def _cpu(self) -> str:
        sessions = self._scope.sessions
        return devices.shard_device(self._scope.job.rank) if sessions.target else '/cpu:0'
