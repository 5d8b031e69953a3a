"""What a training step is built of, whichever plan it follows."""

import contextlib
import functools
import itertools
import os
from typing import Any, Callable, List, NamedTuple, Optional

from keras_parallax.compat import keras_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ScopeError
from keras_parallax.job import rendezvous_server
from keras_parallax.job.collectives import Gatherer
from keras_parallax.planning.request import Request, Timing
from keras_parallax.session.graph_scope import GraphScope, compiled_outside, scope_of
from keras_parallax.tables import loss_analysis
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.updates.adapter_base import OptimizerAdapter
from keras_parallax.updates.optimizer_adapter import adapter_of

#: Every rank builds its training steps in the same order, so the numbers agree between ranks.
_numbers = itertools.count()


class HorovodRanks:
    """The ranks of a step without a strategy, with what a `Job` has for those of one with it.

    Attributes:
        rank, size: this rank, and the number of ranks.
    """

    def __init__(self):
        try:
            self.rank, self.size = hvd.rank(), hvd.size()
        except ValueError as error:
            raise ScopeError(
                'ParallaxOptimizer needs a ParallaxStrategy, or hvd.init() before compile.'
            ) from error
        if self.size == 1:
            rendezvous_server.check_met(os.environ)
        self._name, self._gatherer = 'step.%d' % next(_numbers), None

    def gather(self, value):
        """Gathers a JSON-able value from every rank. A collective call."""
        if self._gatherer is None:
            self._gatherer = Gatherer(self._name)
        return self._gatherer(value)

    def call(self, name):
        """A context manager for a call that all ranks make, which nobody watches."""
        return contextlib.ExitStack()

    def collective(self, act):
        """Runs a collective, as `Job.collective`."""
        return act(None)


class StepSpec(NamedTuple):
    """What a training step is built of, whichever plan it follows.

    Attributes:
        optimizer: the wrapped Keras optimizer.
        loss: the model's total loss.
        variables: its trainable variables, in order.
        settings: the optimizer's `Settings`.
        keras_updates: function from a list of pairs of variable and gradient, and whether no other
            worker updates these variables, to the list of update operations of the optimizer
            itself.
        scope: the `GraphScope`, or `None` without a strategy.
        job: the `Job`, or the `HorovodRanks`.
        asked: what the strategy was asked for, a `request.Request`.
        timing: when workers wait for each other, a `request.Timing`.
        adapter: the `OptimizerAdapter` of the optimizer.
        reach_of, takes_slices: those of the adapter; they remember, for the formula does not change
            with the plan.
    """

    optimizer: Any
    loss: tf.Tensor
    variables: List[tf.Variable]
    settings: Any
    keras_updates: Callable
    scope: Optional[GraphScope]
    job: Any
    asked: Request
    timing: Timing
    adapter: OptimizerAdapter
    reach_of: Callable
    takes_slices: Callable

    @property
    def package(self):
        """The `KerasPackage` of the optimizer."""
        return keras_api.package_of(self.optimizer)

    @property
    def records(self):
        """What layers said of the graph's weights, as `GraphScope.records`."""
        return self.scope.records if self.scope else {}

    @property
    def has_shards(self):
        """Whether a table of the model is sharded."""
        return any(isinstance(variable, ShardedVariable) for variable in self.variables)

    def forget_slots(self, variables):
        """Has the optimizers make new slots for variables that they have updated before."""
        for optimizer in [self.optimizer, *self.settings.tables.all().values()]:
            adapter_of(optimizer).forget_slots(variables)

    def plan_for(self, request):
        """The `Plan` of the model that follows from a `request.Request`."""
        halved = self.settings.halved
        return loss_analysis.plan_model(
            self.loss,
            self.variables,
            self.scope,
            request,
            halved,
            self.reach_of,
            self.settings.accumulate_steps,
        )


def spec_of(optimizer, model, loss, variables, settings, keras_updates):
    """The `StepSpec` of a model; a `ScopeError` if it is of no strategy, although the graph is.

    `model` is `None` if a script builds updates itself.
    """
    scope = scope_of(loss.graph)
    job = scope.job if scope else HorovodRanks()
    strategy = scope.strategy_of(loss) if scope else None
    if scope and strategy is None and model is not None:
        strategy = scope.compiled.get(model)
        if strategy is not None:
            scope.note_loss(loss, strategy)
    if scope and scope.must_exchange and strategy is None:
        raise compiled_outside()
    adapter = adapter_of(optimizer)
    return StepSpec(
        optimizer,
        loss,
        variables,
        settings,
        keras_updates,
        scope,
        job,
        strategy.request if strategy else Request(),
        strategy.timing if strategy and scope.servers else Timing(),
        adapter,
        functools.lru_cache(None)(adapter.reach),
        functools.lru_cache(None)(adapter.takes_slices),
    )
