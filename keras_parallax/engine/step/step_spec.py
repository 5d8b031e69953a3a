# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a training step is built of, whichever plan it follows."""

import contextlib
import functools
import itertools
import os
import weakref
from typing import (
    Any,
    Callable,
    ContextManager,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
    cast,
)

from keras_parallax.compat import keras_api, keras_losses
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import rendezvous_server
from keras_parallax.engine.job.collectives import Gatherer
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.job.job_interface import Workers
from keras_parallax.engine.session.graph_scope import (
    GraphScope,
    WeightRecord,
    compiled_outside,
    scope_of,
)
from keras_parallax.engine.step import loss_sums, loss_terms
from keras_parallax.engine.step.batch_parts import BatchParts, batch_parts
from keras_parallax.engine.step.loss_sums import Sums
from keras_parallax.engine.step.loss_terms import LossTerm
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.updates.adapter_base import OptimizerAdapter
from keras_parallax.engine.updates.kept_slots import KeptSlots, kept_slots_of
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Model, Optimizer, Tensor, Variable
from keras_parallax.planning.classify import Reach
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request, Timing, for_variables

#: Every worker builds its training steps in the same order, so the numbers agree between workers.
_numbers = itertools.count()


_Result = TypeVar('_Result')


class HorovodWorkers:
    """The workers of a step without a strategy, with what a `Job` has for those of one with it.

    Attributes:
        rank, size: the rank of this process, and the number of workers.
    """

    _gatherer: Optional[Gatherer]

    def __init__(self) -> None:
        try:
            self.rank, self.size = hvd.rank(), hvd.size()
        except ValueError as error:
            raise ScopeError(
                'ParallaxOptimizer needs a ParallaxStrategy, or hvd.init() before compile.'
            ) from error
        if self.size == 1:
            rendezvous_server.check_met(os.environ)
        self._name, self._gatherer = 'step.%d' % next(_numbers), None

    def gather(self, value: Any) -> List[Any]:
        """Gathers a JSON-able value from every worker. A collective call."""
        if self._gatherer is None:
            self._gatherer = Gatherer(self._name)
        return self._gatherer(value)

    def call(self, name: str) -> ContextManager[Any]:
        """A context manager for a call that all workers make, which nobody watches."""
        return contextlib.ExitStack()

    def collective(self, act: Callable[[Optional[str]], _Result]) -> _Result:
        """Runs a collective, as `Job.collective`."""
        return act(None)


class StepSpec(NamedTuple):
    """What a training step is built of, whichever plan it follows.

    Attributes:
        optimizer: the wrapped Keras optimizer.
        loss: the model's total loss.
        trained: the loss whose gradients are exchanged: `loss` with each of its terms as often as
            this worker counts it in the joined batch.
        parts: the `BatchParts` that `trained` is made of.
        sums: the `Sums` among the terms of `loss`.
        variables: its trainable variables, in order.
        settings: the optimizer's `OptimizerSettings`.
        keras_updates: function from a list of pairs of variable and gradient, whether no other
            worker updates these variables, and the `NarrowRows` among them, to the list of update
            operations of the optimizer itself.
        scope: the `GraphScope`, or `None` without a strategy.
        job: the `Job`, or the `HorovodWorkers`.
        request: what the strategy was asked for, a `plan_request.Request`.
        timing: when workers wait for each other, a `plan_request.Timing`.
        adapter: the `OptimizerAdapter` of the optimizer.
        reach_of, takes_slices: those of the adapter; they remember, for the formula does not change
            with the plan.
        model: a weak reference to the model, or `None` if a script builds updates itself.
        beside: what Keras runs together with the step.
        name_scope: the name scope in which Keras builds the step: its own slots have their names
            from it.
    """

    optimizer: Optimizer
    loss: tf.Tensor
    trained: tf.Tensor
    parts: BatchParts
    sums: Sums
    variables: List[tf.Variable]
    settings: OptimizerSettings
    keras_updates: Callable[..., List[Any]]
    scope: Optional[GraphScope]
    job: Workers
    request: Request
    timing: Timing
    adapter: OptimizerAdapter
    reach_of: Callable[..., Reach]
    takes_slices: Callable[..., bool]
    model: Optional[Callable[[], Any]] = None
    beside: keras_api.RunBeside = keras_api.RunBeside()
    name_scope: str = ''

    @property
    def package(self) -> KerasPackage:
        """The `KerasPackage` of the optimizer."""
        return keras_api.package_of(self.optimizer)

    @property
    def terms(self) -> List[LossTerm]:
        """The `LossTerm`s that `trained` counts otherwise than `loss`, a list."""
        return [*self.parts.terms, *self.sums.terms]

    @property
    def records(self) -> Mapping[Variable, WeightRecord]:
        """What layers said of the graph's weights, as `GraphScope.records`."""
        return self.scope.records if self.scope else {}

    @property
    def has_shards(self) -> bool:
        """Whether a table of the model is sharded."""
        return any(isinstance(variable, ShardedVariable) for variable in self.variables)

    def kept_slots(self, keeper: Optional[Optimizer]) -> KeptSlots:
        """The `KeptSlots` of an optimizer, the `keeper` of an adapter."""
        return kept_slots_of(keeper, self.scope.kept_slots if self.scope else {})

    def forget_slots(self, variables: Sequence[Variable]) -> None:
        """Has the optimizers make new slots for variables that they have updated before."""
        for optimizer in [self.optimizer, *self.settings.tables.all().values()]:
            adapter_of(optimizer).forget_slots(variables)

    def plan_for(self, request: Request, moves: bool = True) -> Plan:
        """The `Plan` of the model that follows from a `plan_request.Request`.

        Unless the job `moves` tables to follow it, those that have shards stay on shards.
        """
        fp16 = self.settings.fp16
        return loss_analysis.plan_model(
            self.loss,
            self.variables,
            self.scope,
            request,
            fp16,
            self.reach_of,
            self.settings.accumulate_steps,
            self.adapter,
            moves,
        )


def scope_of_strategy(spec: StepSpec) -> GraphScope:
    """The scope of a step, where there must be one: if it has a strategy, as one with servers."""
    return cast(GraphScope, spec.scope)  # Callers know that there is one.


def job_of_strategy(spec: StepSpec) -> Job:
    """The job of a step that has a strategy."""
    return cast(Job, spec.job)  # Callers know that it is a `Job`.


def spec_of(
    optimizer: Optimizer,
    model: Optional[Model],
    loss: Tensor,
    variables: List[Variable],
    settings: OptimizerSettings,
    keras_updates: Callable[..., List[Any]],
    is_of_model: bool = False,
) -> StepSpec:
    """The `StepSpec` of a model; a `ScopeError` if it is of no strategy, although the graph is.

    `model` is `None` if a script builds updates itself, and `is_of_model` says whether Keras builds
    them for the function that trains a model.
    """
    scope = scope_of(loss.graph)
    job: Workers = scope.job if scope else HorovodWorkers()
    strategy = scope.strategy_of(loss) if scope else None
    if scope and strategy is None and model is not None:
        strategy = scope.compiled.get(model)
        if strategy is not None:
            scope.note_loss(loss, strategy)
    if scope and scope.must_exchange and strategy is None:
        raise compiled_outside()
    adapter = adapter_of(optimizer)
    layers = loss_analysis.layers_of(variables, scope.records if scope else {})
    timing = strategy.timing if strategy and scope and scope.servers else Timing()
    sums = _sums_in(loss, model if is_of_model else None, settings, job, timing)
    parts = batch_parts(
        keras_losses.divided_in([loss, *getattr(model, 'metrics_tensors', ())]),
        settings.name,
        job.size if timing.sync else 1,
        settings.accumulate_steps,
        is_of_model,
    )
    (trained,) = loss_terms.joined([loss], [*parts.terms, *sums.terms])
    return StepSpec(
        optimizer,
        loss,
        trained,
        parts,
        sums,
        variables,
        settings._replace(tables=settings.tables._replace(layers=layers)),
        keras_updates,
        scope,
        job,
        for_variables(strategy.request, layers) if strategy else Request(),
        timing,
        adapter,
        functools.lru_cache(None)(adapter.reach),
        functools.lru_cache(None)(adapter.takes_slices),
        None if model is None else weakref.ref(model),
        # A script may build updates of another loss with the optimizer of a model.
        keras_api.run_beside(model)
        if getattr(model, 'total_loss', None) is loss
        else keras_api.RunBeside(),
        loss.graph.get_name_scope(),
    )


def _sums_in(
    loss: Tensor, model: Optional[Model], settings: OptimizerSettings, job: Workers, timing: Timing
) -> Sums:
    """The `Sums` in the loss of a model, or of a script's own step if `model` is `None`."""
    factor = (job.size if timing.sync else 1) * settings.accumulate_steps
    if factor == 1:
        return Sums()
    reduction = settings.loss_reduction
    if model is None:
        return loss_sums.sums_of_script(loss, factor, reduction)
    return loss_sums.sums_in(loss, model, factor, reduction)
