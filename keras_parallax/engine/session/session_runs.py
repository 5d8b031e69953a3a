# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What runs in place of what a session is asked to run, and what of it is a training step."""

import contextlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from keras_parallax.compat.graph_queries import ancestors, descendants
from keras_parallax.engine.session import script_steps
from keras_parallax.engine.session.lookup_guard import LookupGuard
from keras_parallax.engine.session.scope_interface import (
    RunInterface,
    ScopeInterface,
    StepInterface,
)
from keras_parallax.engine.session.state_updates import gated, leaves_of
from keras_parallax.engine.session.variable_changes import flat
from keras_parallax.engine.tables import former_storage
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table, former_of
from keras_parallax.errors import ParallaxError, ScopeError
from keras_parallax.framework_types import Operation


class SessionRuns:
    """What a session of a scope's graph has to know of the operations that it runs.

    Args:
        scope: the `GraphScope`.
    """

    _train_steps: Dict[Operation, Any]
    _updates: Dict[Operation, RunInterface]
    _gates: Dict[Operation, StepInterface]
    _gated: Dict[Tuple[str, ...], List[str]]
    _waiting: Set[str]
    _runners: Dict[Operation, Tuple[int, Set[Operation]]]
    _not_steps: Dict[Tuple[Operation, ...], int]
    _fetches: Dict[str, Any]
    _looked_through: Optional[int]
    _awake: Dict[Tuple[Any, ...], Tuple[Optional[int], Any]]

    def __init__(self, scope: ScopeInterface) -> None:
        self._scope, self._graph = scope, scope.graph
        self._train_steps, self._updates, self._gates = {}, {}, {}
        # What is run instead of operations that were asked for, and the names of all of it.
        self._gated, self._waiting = {}, set()
        # What has been looked through for steps of the script's own, and at which graph version.
        self._runners, self._not_steps = {}, {}
        self._fetches, self._looked_through = {}, None
        self._awake = {}
        self._guard = LookupGuard(scope)

    def note_train_step(self, operation: Operation, step: StepInterface) -> None:
        """Notes an operation that a model's `TrainStep` runs every time, and nothing else does."""
        self._train_steps[operation] = step

    def note_update(self, operation: Operation, update: RunInterface) -> None:
        """Notes the operation of a `step_runs.Update`, which runs after several steps."""
        self._updates[operation] = update

    def note_gate(self, operation: Operation, step: StepInterface) -> None:
        """Notes the operation of a `TrainStep`, whose gradients other writes have to wait for."""
        self._gates[operation] = step

    @property
    def train_steps(self) -> List[Any]:
        """The `TrainStep`s of the graph, those of models compiled anew among them."""
        return list(self._train_steps.values())

    def steps_run_by(self, names: Sequence[str]) -> List[RunInterface]:
        """The `StepRuns` and `Update`s that running operations runs, a list.

        Args:
            names: the names of the operations.

        Raises:
            ParallaxError: an operation of the user's own writes to a table with each batch, or the
                operations are a training step of the user's own that exchanges nothing.
        """
        operations = [self._graph.get_operation_by_name(name) for name in names]
        runs = {operation: step.runs for operation, step in self._train_steps.items()}
        steps = [
            step
            for first, step in {**runs, **self._updates}.items()
            if any(operation in self._runners_of(first) for operation in operations)
        ]
        if steps:
            self._check_writes(names)
        elif self._scope.job.size > 1:
            self._check_own_step(operations)
        return steps

    def _check_own_step(self, operations: Sequence[Operation]) -> None:
        """Refuses a step of a script's own in which each worker trains the weights alone."""
        key, version = tuple(operations), self._graph.version
        if self._not_steps.get(key) == version:
            return
        weights = {
            weight.op: weight.name.split(':')[0]
            for weight in self._scope.records
            if not isinstance(weight, ShardedVariable)
        }
        trained = script_steps.trained_alone(operations, weights, self._writes_to_tables())
        if trained is not None:
            raise ScopeError(
                'A step of the script writes gradients of this worker to %s, and nothing exchanges '
                'them: each of the %d workers would train its own weights. Let an optimizer do it '
                '(model.train_on_batch, or kp.ParallaxOptimizer(...).get_updates(loss, params)), '
                'or average the gradients with hvd.allreduce.' % (trained, self._scope.job.size)
            )
        self._not_steps[key] = version

    def _runners_of(self, first: Operation) -> Set[Operation]:
        """The operations that run after an operation, itself among them: a set."""
        version, runners = self._runners.get(first, (None, set()))
        if version != self._graph.version:
            # Nothing but what groups a step follows it, so these are few.
            runners = descendants(first)
            self._runners[first] = self._graph.version, runners
        return runners

    def redirect(self) -> Dict[str, Any]:
        """Has what is new in the graph use the shards of tables, before a session runs it.

        Lookups of other variables check their ids from now on.

        Returns:
            A dict from names of tensors to what a session is to fetch instead of them.
        """
        with self._scope.lock.held():
            self._guard.look_through()
            tables = self._former_tables()
            while tables and self._looked_through != self._graph.version:
                version = self._graph.version
                with self._graph.as_default():
                    former_storage.redirect([table for table in tables if table.is_sharded])
                    self._fetches = former_storage.fetches_of(tables)
                # Of what was built meanwhile, maybe by another thread, nothing is known.
                self._looked_through = version
            return self._fetches

    def wake(self, fetches: Any) -> None:
        """Has a run use the shards of tables, where it runs what has rested since they had some.

        That is the initializer of a table's variable, or a read of it. Sessions know these, so that
        another one is opened if there are any.

        Args:
            fetches: what is about to be run, in any form that `tf.Session.run` takes.
        """
        parts = flat(fetches)
        key = tuple(part if isinstance(part, str) else id(part) for part in parts)
        # Kept with what has these ids, so that nothing else gets them.
        if self._awake.get(key, (None, None))[0] == self._graph.version:
            return
        with self._scope.lock.held():
            formers = [former_of(table) for table in self._former_tables() if table.is_sharded]
            if any([former.resting for former in formers]):
                run = ancestors(self._elements(parts))
                if any([former.wake(run) for former in formers]):
                    self._looked_through = None
                    self.redirect()
                    self._scope.sessions.open()
            self._awake[key] = self._graph.version, parts

    def _elements(self, parts: Iterable[Any]) -> List[Any]:
        """The tensors and operations among what is to be run; TensorFlow refuses the rest."""
        found = []
        for part in parts:
            # A sharded variable is read in blocks, and its tensor may not be made yet.
            if not hasattr(part, 'sharded_rows'):
                with contextlib.suppress(TypeError, ValueError, KeyError):
                    found.append(self._graph.as_graph_element(part))
        return found

    @property
    def is_redirected(self) -> bool:
        """Whether `redirect` has seen all of the graph, or there is nothing to redirect."""
        if not self._guard.is_done:
            return False
        return self._looked_through == self._graph.version or not self._former_tables()

    def _former_tables(self) -> List[Table]:
        return [table for table in self._scope.tables_by_name.values() if table.former]

    def gated(self, targets: Sequence[str], fetches: Sequence[str]) -> List[str]:
        """Has what layers and metrics write wait for what is fetched and for a step's gradients.

        Args:
            targets: names of the operations that are run.
            fetches: names of the tensors that are fetched.

        Returns:
            A list of names of operations to run instead.
        """
        if not targets or self._waiting.issuperset(targets):
            return list(targets)
        operations = list(map(self._graph.get_operation_by_name, targets))
        leaves = {leaf for run in operations for leaf in leaves_of(run, self._gates)}
        steps = {leaf: self._gates[leaf] for leaf in leaves if leaf in self._gates}
        tensors = list(map(self._graph.get_tensor_by_name, fetches))
        computed = [step.runs.computed for step in steps.values()] + [
            tensor.op for tensor in tensors
        ]
        if not computed:
            return list(targets)
        key = (*targets, *fetches, *(operation.name for operation in computed))
        with self._scope.lock.held():
            if key not in self._gated:
                with self._graph.as_default():
                    self._gated[key] = [
                        gated(operation, tensors, list(steps), computed).name
                        for operation in operations
                    ]
                self._waiting.update(set(self._gated[key]) - set(targets))
        return self._gated[key]

    def _check_writes(self, targets: Sequence[str]) -> None:
        """Checks that a training step writes to tables with its optimizer only.

        Args:
            targets: names of the operations that it runs.

        Raises:
            ParallaxError: an operation of the user's own writes to a table with each batch.
        """
        writes = self._writes_to_tables()
        run = ancestors(map(self._graph.get_operation_by_name, targets)) if writes else set()
        for operation in run & writes.keys():
            raise ParallaxError(
                'The training step runs %s, which writes to the sharded table %s while the '
                'optimizer updates it, in no order. Take it out of the updates of the layers, and '
                "run it in Keras's session between the steps, in a callback of every worker."
                % (operation.name, writes[operation])
            )

    def _writes_to_tables(self) -> Dict[Operation, str]:
        """Dict from the user's operations that write to sharded tables to the tables' names."""
        return {
            operation: table.name
            for table in self._former_tables()
            for operation in former_of(table).written
        }
