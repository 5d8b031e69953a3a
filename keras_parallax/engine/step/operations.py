# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The operations of a training step, for as long as it follows one plan."""

import functools
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, cast

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import collectives
from keras_parallax.engine.step.density import DensityMeter
from keras_parallax.engine.step.gradients import StepGradients
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy, scope_of_strategy
from keras_parallax.engine.tables import initial_values
from keras_parallax.engine.tables.pull_data import Connection
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.keras_slots import keras_order
from keras_parallax.engine.updates.step_updates import Applied
from keras_parallax.framework_types import Optimizer, Variable, Weight


class Runnable(NamedTuple):
    """What a session runs of a step.

    Attributes:
        operations: what a step runs.
        connections: the `pull.Connection`s that hold in it.
        interruptions: operations that, run in turn, make a step fail that waits for another worker.
        first_tokens: what to run before the first step, or `None`.
        update: what is run after a step, if gradients of several are exchanged together, or `None`.
        forget: the operation that empties `sums`, or `None`.
        sums: the variables in which this worker adds up gradients.
    """

    operations: List[tf.Operation]
    connections: List[Connection]
    interruptions: Sequence[tf.Operation] = ()
    first_tokens: Optional[tf.Operation] = None
    update: Optional[tf.Operation] = None
    forget: Optional[tf.Operation] = None
    sums: Sequence[tf.Variable] = ()


class StepOperations:
    """The operations of a step, for as long as it follows one plan.

    `build_operations.py` builds them.

    Args:
        spec: the `StepSpec`.
        prefix: starts the names of its collectives and queues, the same on every worker.
        gradients: the `StepGradients`.
        applied: the `Applied`.
        of_tables: dict from variables to the optimizers that tables have of their own.
        meter: the `DensityMeter` of tables whose density is not known, or `None`.
        runnable: the `Runnable`.
        span: the ids of the first and of the last of all operations that were built for it.

    Attributes:
        prefix, gradients, meter, span: as given.
        operations, connections, interruptions, update, forget, sums: those of the `Runnable`.
        computed: an operation that has run when this worker has all gradients of the step.
        state: the optimizer's `OptimizerState`, or `None`.
        held: the variables on this worker's server that it uses: those of slots, and others that it
            has for itself.
        made: a list of the `MadeSlots` of tables.
    """

    def __init__(
        self,
        spec: StepSpec,
        prefix: str,
        gradients: StepGradients,
        applied: Applied,
        of_tables: Dict[Variable, Optimizer],
        meter: Optional[DensityMeter],
        runnable: Runnable,
        span: Tuple[int, int],
    ) -> None:
        self._spec, self.prefix, self.gradients, self.meter = spec, prefix, gradients, meter
        self._synced, self._storage = applied.synced, applied.storage
        self.state, self.held, self.made = applied.state, applied.held, applied.made
        self._of_tables, self._first_tokens = of_tables, runnable.first_tokens
        self.operations, self.connections = runnable.operations, runnable.connections
        self.interruptions, self.sums = list(runnable.interruptions), list(runnable.sums)
        self.update, self.forget = runnable.update, runnable.forget
        self.computed, self.span = gradients.computed, span
        self._collectives: Dict[Any, tf.Operation] = {}
        self._weights: Optional[List[tf.Variable]] = None

    def initialize(
        self, tables: Iterable[Table], fills: Sequence[initial_values.FillPlan] = ()
    ) -> None:
        """Initializes what is on this worker's server, and new shards of tables. Collective.

        Their `FillPlan`s are empty if rows are copied to them.
        """
        spec = self._spec
        scope_of_strategy(spec).sessions.open()
        session = spec.package.backend.get_session()
        new = [part.variable for table in tables for part in table.parts_of(spec.job.rank)]
        new += self._storage + self.sums
        if self.meter is not None:
            new.append(self.meter.variable)
        session.run([variable.initializer for variable in new])
        if self._first_tokens is not None:
            session.run(self._first_tokens)
        job_of_strategy(spec).barrier()
        for made in self.made:
            made.keep()
        initial_values.run(fills, session)

    @property
    def weights(self) -> List[Weight]:
        """The optimizer's weights in Keras's order."""
        if self._weights is None:
            state = cast(OptimizerState, self.state)  # Callers check it first.
            self._weights = keras_order(
                self._spec.optimizer, state, self._spec.variables, self._of_tables
            )
        return self._weights

    def forget_synced(self, variables: Iterable[Any]) -> None:
        """Leaves variables out of later broadcasts, because their memory is about to be freed."""
        freed = set(map(id, variables))
        self._synced = {name: one for name, one in self._synced.items() if id(one) not in freed}

    def broadcast(self, root_rank: int, own: Sequence[tf.Variable]) -> tf.Operation:
        """What gives every worker the values of one, as `dense_values.broadcast` says."""
        # The table of another model, built since, is no longer each worker's own.
        variables = {
            name: variable
            for name, variable in self._synced.items()
            if variable not in own and not isinstance(variable, ShardedVariable)
        }
        gather, key = self._spec.job.gather, ('broadcast', root_rank, frozenset(variables))
        build = functools.partial(collectives.broadcast, variables, root_rank, gather, self.prefix)
        return self._collective(key, build)

    def average(self, variables: Sequence[tf.Variable]) -> tf.Operation:
        """What gives variables their mean over the workers, as `dense_values.average` says."""
        size, key = self._spec.job.size, ('average', frozenset(variables))
        build = functools.partial(collectives.average, variables, size, self.prefix)
        return self._collective(key, build)

    def _collective(self, key: Any, build: Callable[[], tf.Operation]) -> tf.Operation:
        """What `build` returns; the next time, what it has returned."""
        if key not in self._collectives:
            with self._spec.loss.graph.as_default():
                self._collectives[key] = build()
        return self._collectives[key]
