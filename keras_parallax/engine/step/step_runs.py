# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a session does with a training step: what it runs, and what follows a run."""

import time
from typing import Any, Dict, List, Optional, Sequence

from typing_extensions import Protocol

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job_interface import Workers
from keras_parallax.engine.step.operations import StepOperations
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy, scope_of_strategy
from keras_parallax.engine.step.synchronization import Synchronization


class StepInterface(Protocol):
    """A `TrainStep`, which says what each attribute is."""

    spec: StepSpec
    operations: StepOperations
    job: Workers
    synchronization: Synchronization
    observers: List[StepObserver]

    @property
    def runs(self) -> 'StepRuns':
        """What a session does with it."""

    def first_of_observers(self, attribute: str) -> Optional[Any]:
        """An attribute of the first observer that has it, or `None`."""


class StepRuns:
    """The runs of a `TrainStep`.

    Args:
        step: the `TrainStep`.

    Attributes:
        pending: the number of batches whose gradients are added up and not exchanged yet.
        density: dict from names of tables to the densities that were measured.
    """

    def __init__(self, step: StepInterface) -> None:
        self._step = step
        self.pending = 0
        self.density: Dict[str, float] = {}
        self._seconds, self._has_measured = 0.0, False
        self._update: Optional[Update] = None

    @property
    def waits(self) -> bool:
        """Whether the workers need equally many runs."""
        return self._step.synchronization.waits

    @property
    def connections(self) -> Sequence[Any]:
        """The `pull.Connection`s that hold in a run."""
        return self._step.operations.connections

    @property
    def computed(self) -> tf.Operation:
        """An operation that has run when this worker has all gradients of the step."""
        return self._step.operations.computed

    @property
    def tracer(self) -> Any:
        """What runs the step and traces it, or `None`."""
        return self._step.first_of_observers('tracer')

    @property
    def beside(self) -> List[str]:
        """Names of operations to run with each batch, which are no part of the step."""
        return [name for observer in self._step.observers for name in observer.beside_batch()]

    @property
    def ends_together(self) -> bool:
        """Whether the next run ends for no worker before all have begun it."""
        return self._step.synchronization.lockstep and self.pending + 1 >= self._accumulate_steps

    @property
    def _accumulate_steps(self) -> int:
        return self._step.spec.settings.accumulate_steps

    def end_batch(self) -> None:
        """Called when a batch has run: exchanges the gradients that are added up, if it is time."""
        if self._accumulate_steps > 1:
            self.pending += 1
            if self.pending >= self._accumulate_steps:
                self._apply()

    def apply_rest(self) -> None:
        """Exchanges and applies what is added up of fewer batches. Workers that wait all call it.

        Raises:
            PlanError: a term of the loss counts as many times as there are batches.
        """
        step = self._step
        step.spec.sums.require_batches(self.pending, self._accumulate_steps)
        if self.pending:
            began = time.perf_counter()
            with job_of_strategy(step.spec).activity.step(
                step.synchronization.lockstep, is_new=False
            ):
                self._apply()
            for observer in step.observers:
                observer.note_rest(time.perf_counter() - began)

    def drop_pending(self) -> None:
        """Forgets what is added up, for it is of other weights than there will be."""
        if self.pending:
            self._step.spec.package.backend.get_session().run(self._step.operations.forget)
            self.pending = 0

    def _apply(self) -> None:
        update, scope = self._step.operations.update, scope_of_strategy(self._step.spec)
        if self._update is None or self._update.operation is not update:
            self._update = Update(self._step, update)
            scope.runs.note_update(update, self._update)
        self._update.run()
        self.pending = 0

    def after_run(self, seconds: float) -> None:
        """Called after each run of the step and what it was followed by.

        If the gradients of several batches are exchanged together, tables move after the exchange.

        Args:
            seconds: how long the two took.
        """
        step = self._step
        for observer in step.observers:
            observer.note_batch(seconds)
        self._seconds += seconds
        with step.job.call('what follows from the first training batches'):
            meter = step.operations.meter
            if meter is not None and meter.after_step():
                # Workers that do not wait for each other do not gather it: each knows its own.
                gather = step.job.gather if step.synchronization.sync else lambda value: [value]
                density = meter.density(scope_of_strategy(step.spec).session, gather)
                self.density = dict(self.density, **density)
                self._has_measured = True
            if self.pending:
                return
            seconds, measured = self._seconds, self._has_measured
            self._seconds, self._has_measured = 0.0, False
            for observer in step.observers:
                observer.after_update(seconds, measured)

    def interrupt(self) -> None:
        """Makes a run that waits for another worker fail.

        Closing the session would do it too, but waits for servers that may be gone (TF 1.11).
        """
        for closing in self._step.operations.interruptions:
            scope_of_strategy(self._step.spec).session.run_known(closing)


class Update:
    """The exchange of gradients of several batches, which the session runs as it does a step.

    Args:
        step: the `TrainStep`.
        operation: the operation that exchanges and applies them.
    """

    #: The `StepRuns` say for both when workers wait.
    waits = ends_together = False
    connections: Sequence[Any] = ()

    def __init__(self, step: StepInterface, operation: tf.Operation) -> None:
        self._step, self.operation = step, operation
        self._function: Any = None

    @property
    def tracer(self) -> Any:
        """As of `StepRuns`."""
        return self._step.runs.tracer

    @property
    def beside(self) -> List[str]:
        """Names of operations to run with it, which are no part of it."""
        return [name for observer in self._step.observers for name in observer.beside_update()]

    def run(self) -> None:
        """Exchanges and applies."""
        if self._function is None:
            self._function = scope_of_strategy(self._step.spec).session.function_of(self.operation)
        self._function()

    def end_batch(self) -> None:
        """There is none."""

    def after_run(self, seconds: float) -> None:
        """The `StepRuns` take note of it."""
