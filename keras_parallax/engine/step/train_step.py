# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model's training step: what the rest of the package knows of it."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job_interface import Workers
from keras_parallax.engine.step.operations import StepOperations
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.step_runs import StepRuns
from keras_parallax.engine.step.step_spec import StepSpec
from keras_parallax.engine.step.synchronization import Synchronization as Synchronization
from keras_parallax.engine.tables.table import Table
from keras_parallax.errors import ParallaxError
from keras_parallax.framework_types import Model
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request


class Fits:
    """What a training step remembers of the calls of `fit` that have run it.

    Attributes:
        epochs: the number of epochs that `fit` has trained.
        saved: what a checkpoint says of the `fit` that it was saved in, until one goes on.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self.saved: Any = None

    def count_epoch(self) -> None:
        """Takes note of an epoch."""
        self.epochs += 1

    def keep(self, saved: Any) -> None:
        """Takes note of what a checkpoint says, until `take`."""
        self.saved = saved

    def take(self) -> Any:
        """What `keep` was given last, once."""
        saved, self.saved = self.saved, None
        return saved


class TrainStep:
    """The training step of one model.

    Args:
        spec: the `StepSpec`.
        request: the `plan_request.Request` that it follows.
        plan: the `Plan` that follows from it.
        tables: dict from variables to `Table`s.
        operations: the `StepOperations`.

    Attributes:
        spec, request, tables, operations: as given, or as they are after `follow`.
        job: the `Job`, or the `HorovodWorkers` without a strategy.
        synchronization: the `Synchronization`.
        runs: the `StepRuns`, which say what a session does with it.
        fits: the `Fits`.
        whole_step: the operation that Keras runs, whatever the step is made of later.
        observers: the `StepObserver`s that look on, a list that others add to.
    """

    def __init__(
        self,
        spec: StepSpec,
        request: Request,
        plan: Plan,
        tables: Dict[tf.Variable, Table],
        operations: StepOperations,
    ) -> None:
        self.spec, self.request, self.tables = spec, request, tables
        self._plan, self.operations = plan, operations
        self.job: Workers = spec.job
        self.synchronization = _synchronization_of(spec, plan)
        self.whole_step = tf.group(*operations.operations)
        self.observers: List[StepObserver] = []
        self.runs, self.fits = StepRuns(self), Fits()
        self._past: List[Tuple[int, int]] = []
        self._is_replaced = False

    @property
    def plan(self) -> Plan:
        """The `Plan` that the step follows, with the densities that it has measured."""
        shards = {table.name: table.plan.shards for table in self.tables.values()}
        return self._plan.as_followed(shards, self.runs.density, self.first_of_observers('trials'))

    def first_of_observers(self, attribute: str) -> Optional[Any]:
        """An attribute of the first observer that has it, or `None`."""
        found = (getattr(observer, attribute) for observer in self.observers)
        return next((value for value in found if value is not None), None)

    def follow(
        self,
        request: Request,
        plan: Plan,
        rebuilt: Callable[[], Tuple[Dict[tf.Variable, Table], StepOperations]],
    ) -> None:
        """Follows another plan from now on.

        Args:
            request: the `plan_request.Request` from which it follows.
            plan: the `Plan`.
            rebuilt: function that builds the step's tables and its `StepOperations` for the plan.
        """
        self._past.append(self.operations.span)
        self.tables, self.operations = rebuilt()
        self.request, self._plan = request, plan
        for observer in self.observers:
            observer.moved()

    def is_past(self, operation: tf.Operation) -> bool:
        """Whether an operation of the graph is of what the step was made of, and is no more."""
        number = tensorflow_api.operation_id(operation)
        return any(first <= number <= last for first, last in self._past)

    def holds_for(self, spec: StepSpec) -> bool:
        """Whether its variables must stay where they are when another step is built.

        They may move if the other step is of the same model, which was compiled again, unless
        tables have moved while this step ran.

        Args:
            spec: the `StepSpec` of the other step.
        """
        # Asked while the model is there, so that all workers say the same.
        if spec.model is not None and self.spec.model is not None:
            self._is_replaced = self._is_replaced or self.spec.model() is spec.model()
        return bool(self._past) or not self._is_replaced


def _synchronization_of(spec: StepSpec, plan: Plan) -> Synchronization:
    sync = spec.timing.sync
    lockstep = sync or any(not planned.shards for planned in plan.variables)
    waits = lockstep or spec.timing.max_staleness is not None
    return Synchronization(
        sync, lockstep, waits, spec.scope is not None and spec.job.size > 1 and waits
    )


def step_of(model: Model) -> TrainStep:
    """The `TrainStep` of a compiled model.

    Raises:
        ParallaxError: the model's optimizer is not a `ParallaxOptimizer`, or has no step yet.
    """
    step = getattr(getattr(model, 'optimizer', None), '_parallax_step', None)
    if step is None:
        raise ParallaxError(
            'The model has no training step of ours yet: compile it inside `with strategy:`, or '
            'with a ParallaxOptimizer, and use the callback in fit.'
        )
    return step
