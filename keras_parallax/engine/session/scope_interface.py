# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the parts of a graph's scope ask of the scope itself, which is made of them.

`graph_scope.GraphScope` says what each attribute is.
"""

from typing import Any, Callable, ContextManager, List, Optional, Sequence

from typing_extensions import Protocol

from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_lock import GraphLock
from keras_parallax.engine.tables.pull_data import Connection
from keras_parallax.engine.tables.scope_interface import TablesScope
from keras_parallax.framework_types import Graph, Operation, Server, Variable
from keras_parallax.planning.plan_request import Request, Timing


class RunInterface(Protocol):
    """What a session does with a part of a training step: a `StepRuns`, or an `Update`."""

    @property
    def waits(self) -> bool:
        """Whether the workers need equally many runs."""

    @property
    def ends_together(self) -> bool:
        """Whether the next run ends for no worker before all have begun it."""

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections that hold in a run."""

    @property
    def tracer(self) -> Any:
        """What runs it and traces it, or `None`."""

    @property
    def beside(self) -> List[str]:
        """Names of operations to run with it, which are no part of it."""

    def end_batch(self) -> None:
        """Called when a batch has run."""

    def after_run(self, seconds: float) -> None:
        """Called after each run and what it was followed by."""


class StrategyInterface(Protocol):
    """What a scope keeps of a `ParallaxStrategy`."""

    @property
    def request(self) -> Request:
        """What it asks of a plan."""

    @property
    def timing(self) -> Timing:
        """When workers wait for each other."""


class StepRunsInterface(RunInterface, Protocol):
    """What a session does with the batches of a step: `StepRuns`."""

    @property
    def computed(self) -> Operation:
        """An operation that has run when this worker has all gradients of the step."""


class StepInterface(Protocol):
    """What a session asks of a `TrainStep`."""

    @property
    def runs(self) -> StepRunsInterface:
        """What a session does with it."""


class SessionsInterface(Protocol):
    """What is asked of a scope's `GraphSessions`."""

    @property
    def target(self) -> str:
        """What a session of the graph connects to."""

    def open(self) -> None:
        """Opens a session that sees all changes of the graph, and gives it to Keras."""

    def extend(self) -> None:
        """Makes what is new in the graph known to the session."""

    def in_use(self) -> ContextManager[Any]:
        """Gives the session, which knows the whole graph; while open, it is not closed."""

    def see_new_operations(self) -> None:
        """Has what new operations stand for outlive a session."""

    def lost_iterator(self, reader: str) -> Optional[Operation]:
        """The iterator that could not be moved, if an operation reads one."""


class ScopeInterface(TablesScope, Protocol):
    """What the parts of a `GraphScope` ask of it."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def job(self) -> Job:
        """The job."""

    @property
    def server(self) -> Server:
        """The server of this process."""

    @property
    def lock(self) -> GraphLock:
        """The lock of the graph."""

    @property
    def sessions(self) -> SessionsInterface:
        """The sessions of the graph."""

    def weight_named(self, name: str) -> Optional[Variable]:
        """The variable of a name without `:0`."""

    def weight_read_by(self, name: str) -> Optional[Variable]:
        """The variable that the lookup called `name` reads."""

    def order_write(
        self, names: Sequence[str], write: Callable[[], None], skip: Callable[[], None]
    ) -> None:
        """Writes what a script gives to sharded tables, as `WriteOrder` does."""
