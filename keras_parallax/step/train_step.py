"""Assembles a training step: gradients, exchange, updates, barrier."""

import contextlib
import functools
import itertools
import random

from keras_parallax.compat import graph_queries, keras_api, tensorflow_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError, PlanError, ScopeError
from keras_parallax.job import collectives, hosts
from keras_parallax.job.collectives import Gatherer, stored
from keras_parallax.planning import request as request_module
from keras_parallax.planning.request import SEARCH, Request
from keras_parallax.session.graph_lock import lock_of
from keras_parallax.session.graph_scope import compiled_outside, scope_of
from keras_parallax.step import (
    asynchronous,
    averaging,
    exchange,
    local_aggregation,
    queues,
    resharding,
)
from keras_parallax.step.agreement import check_agreement, model_report
from keras_parallax.step.barrier import end_of_step
from keras_parallax.step.gradients import StepGradients
from keras_parallax.step.tuning import Tuning
from keras_parallax.tables import initial_values, loss_analysis, sharding
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.updates import (
    apply,
    clipping,
    formula_graph,
    table_updates,
)
from keras_parallax.updates.optimizer_adapter import adapter_of
from keras_parallax.updates.slots import keras_order

#: Every rank builds its training steps in the same order, so the numbers agree between ranks.
_numbers = itertools.count()


class TrainStep:
    """Builds the update operations of one model's training step.

    Args:
        optimizer: the wrapped Keras optimizer.
        loss: the model's total loss.
        variables: its trainable variables.
        settings: the `Settings`.
        keras_updates: function from a list of pairs of variable and gradient to the list of update
            operations of the optimizer itself.
    """

    def __init__(self, optimizer, loss, variables, settings, keras_updates):
        self._optimizer, self._loss, self._settings = optimizer, loss, settings
        self._variables, self._keras_updates = variables, keras_updates
        self._package = keras_api.package_of(optimizer)
        self._scope = scope_of(loss.graph)
        self._job = self._scope.job if self._scope else None
        self._servers = self._scope.servers if self._scope else None
        self.rank, self.size = self._place()
        strategy = self._scope.strategy_of(loss) if self._scope else None
        if self._scope and self._scope.must_exchange and strategy is None:
            raise compiled_outside()
        self._records = self._scope.records if self._scope else {}
        #: The `request.Request` that was asked for, and the one that the step follows now.
        self.asked = self.request = strategy.request if strategy else Request()
        self._timing = strategy.timing if strategy and self._servers else request_module.Timing()
        self._first_tokens = self._gather = None
        # The formula does not change with the plan.
        self._adapter = adapter_of(optimizer)
        self._reach_of = functools.lru_cache(None)(self._adapter.reach)
        self._takes_slices = functools.lru_cache(None)(self._adapter.takes_slices)
        # Operations of broadcasts and averages that have been built, for the next time.
        self._collectives = {}
        self._lock = lock_of(loss.graph)
        #: Number of epochs that `fit` has trained.
        self.epochs = 0
        self._strategy, self._tuning = strategy, Tuning(self)
        #: The order of samples that a checkpoint had, until training goes on from it.
        self.saved_order = None
        #: The name scope in which Keras builds the step: its own slots have their names from it.
        self.name_scope = loss.graph.get_name_scope()

    def _place(self):
        """This process's rank, and the number of ranks."""
        if self._job:
            return self._job.rank, self._job.size
        try:
            return hvd.rank(), hvd.size()
        except ValueError as error:
            raise ScopeError(
                'ParallaxOptimizer needs a ParallaxStrategy, or hvd.init() before compile.'
            ) from error

    def build(self):
        """Builds the step. A collective call in a job of several ranks.

        Returns:
            A list of one operation, for Keras to run with each batch.
        """
        with self.call('the first training call of a model'), self._lock.held():
            return self._build()

    def _build(self):
        if self.request.partitions == SEARCH:
            self.request = self.request._replace(partitions=None)
        plan = self._plan = self.plan_for(self.request)
        self._sharded = any(planned.shards for planned in plan.variables)
        held, report = {}, None
        if self._scope:
            self._scope.hand_session_to_keras()
        if self._sharded:
            self._scope.use_server()
            held = sharding.set_aside(self._variables, plan, self._scope.session)
        if self._scope and self.size > 1:
            asked = [self.request, self._timing]
            report = model_report(plan, self._optimizer, self._settings, asked)
            check_agreement(self._job.gather(report))
        sources = initial_values.value_sources(held, self.rank, self._job.gather) if held else {}
        # Keras initializes what has not been set aside.
        self._package.backend.get_session()
        self._tables, fills = sharding.make_tables(
            self._loss, self._variables, plan, sources, self._scope, self.rank
        )
        # Keras keeps this operation, whatever the step is made of later.
        self._whole_step = tf.group(*self._assemble())
        self._tuning.check(self._optimizer)
        # Whether the step ends for no rank before all have begun it, and whether they need equally
        # many steps.
        self.lockstep = self.sync or any(not planned.shards for planned in plan.variables)
        self.waits = self.lockstep or self._timing.max_staleness is not None
        if self._scope:
            self._scope.note_gate(self._whole_step, self)
        if self._scope and (self.size > 1 or self._sharded):
            self._scope.note_train_step(self._whole_step, self)
            self._start(fills)
            if self._strategy.request.partitions == SEARCH:
                self._tuning.search_partitions(plan, report, self._job.cluster)
        return [self._whole_step]

    def plan_for(self, request):
        """The `Plan` of the model that follows from a `request.Request`."""
        return loss_analysis.plan_model(
            self._loss,
            self._variables,
            self._records,
            self._servers.count if self._servers else 0,
            request,
            self._scope.cluster if self._scope else None,
            self._settings.halved,
            self._reach_of,
        )

    @property
    def plan(self):
        """The `Plan` that the step follows, with the densities that it has measured."""
        shards = {table.name: table.plan.shards for table in self._tables.values()}
        return self._plan.as_followed(shards, self._tuning.density)

    def _assemble(self):
        """Builds the operations of the step, a list, from the tables as they are now."""
        self._prefix = '%s.%d' % (self._settings.name, next(_numbers))
        self._exchange = exchange.Exchange(
            self.rank,
            self.size,
            self._settings.sparse_reduction,
            self._settings.compression,
            self._settings.pull_compression,
            self._prefix,
            self._make_host(),
        )
        self._weights = None
        self._collectives = {}
        operations = self._build_operations(self._tables)
        self._queues, self._awaited = list(self._gradients.queues), []
        if self._sharded:
            tables, touched = self._tables.values(), self._gradients.touched
            operations.extend(self._tuning.measure(tables, touched))
            if self._tables:
                operations.extend(self._end_of_step(operations))
            self._interruptions = [queues.closing(self._queues)]
            if self._exchange.host:
                self._interruptions.extend(self._exchange.host.interruptions())
            # Where a process is gone this may never end: so it comes last.
            self._interruptions.append(queues.closing(self._awaited))
            self._job.process_end.interrupt_on_failure(self)
        return operations

    def _make_host(self):
        """The `HostGroup` with which this rank exchanges rows, or `None` if it goes alone."""
        wanted = self._sharded and self.request.local_aggregation
        if not wanted or not hosts.aggregation_helps(self._job.hosts):
            return None
        return local_aggregation.HostGroup(self._job.hosts, self.rank, self._prefix)

    @property
    def connections(self):
        """The `pull.Connection`s that hold in the step."""
        of_host = self._exchange.host.connections if self._exchange.host else []
        return self._gradients.connections + of_host

    @property
    def computed(self):
        """An operation that has run when this rank has all gradients of the step."""
        return self._gradients.computed

    def after_run(self, seconds):
        """Called after each run of the step.

        Args:
            seconds: how long it took.
        """
        if self._scope:
            with self.call('what follows from the first training batches'):
                self._tuning.after_run(self._scope.session, seconds)

    def replan(self, request):
        """Follows another plan from now on; weights and slots stay. A collective call.

        Args:
            request: the `request.Request`. Tables may get other shards, or none, and become dense.
                The optimizer's slots must be told apart (`Tuning.check`).
        """
        with self._lock.held():
            self._replan(request)

    def _replan(self, request):
        self.request = request
        plan, changes = self.plan_for(request), []
        self._plan, before = plan, list(self.weights)
        with self._loss.graph.as_default():
            for variable, planned in zip(self._variables, plan.variables):
                table = self._tables.get(variable)
                if table is None or table.plan.shards == planned.shards:
                    continue
                if planned.shards:
                    changes.append(resharding.MovedTable(table, planned, self.rank))
                else:
                    changes.append(resharding.ReplicatedTable(self._tables.pop(variable)))
            old_storage = self._storage
            tensorflow_api.set_control_inputs(self._whole_step, self._assemble())
            # Slots that every rank has for itself; those of shards are in the storage.
            old_storage += [
                weight
                for weight in before
                if isinstance(weight, tf.Variable) and weight not in self.weights
            ]
            release = [operation for change in changes for operation in change.release(self.rank)]
            for variable in old_storage:
                sharding.forget_variable(variable)
                release.append(tensorflow_api.memory_release(variable))
        moved = [change for change in changes if isinstance(change, resharding.MovedTable)]
        self._fill_shards([change.table for change in moved])
        for change in changes:
            change.fetch(self._scope.session)
        pairs = [change.pair for change in moved]
        if before:
            pairs += zip(before, self.weights)
        resharding.carry_over(pairs, self._scope.session, self.rank, self.size)
        self._job.barrier()
        self._scope.session.run(release)

    @property
    def sync(self):
        """Whether the gradients of all workers are applied together."""
        return self._timing.sync

    @property
    def may_move(self):
        """Whether its tables can move: their slots are known, and no other step trains them."""
        others = [step for step in self._scope.train_steps if step is not self]
        return self.state is not None and not any(map(self._shares_tables_with, others))

    def _shares_tables_with(self, other):
        return not self._tables.keys().isdisjoint(other._tables)

    def is_of(self, loss):
        """Whether it is the step of the model with this loss."""
        return loss is self._loss

    def _end_of_step(self, operations):
        """Operations that end a step with tables on servers."""
        if self._timing.sync:
            end = end_of_step(
                self._tables.values(),
                operations,
                self._gradients.pushes,
                self._synced.values(),
                self._exchange,
            )
            self._queues.extend(end.own_queues)
            self._awaited.extend(end.awaited)
            return end.operations + stored(self._gradients.totals, self.rank)
        if self._timing.max_staleness is None:
            return []
        bound = asynchronous.StalenessBound(
            self._timing.max_staleness, self.rank, self.size, self._prefix
        )
        self._queues.extend(bound.queues)
        self._first_tokens = bound.start()
        return bound.end_step(operations)

    def _build_operations(self, tables):
        """Builds gradients, exchange and updates; returns the operations of the step."""
        members = loss_analysis.members_of(self._loss, self._records)
        if self._sharded:
            for table in tables.values():
                sharding.redirect_penalties(table, members)
            members = loss_analysis.members_of(self._loss, self._records)
        slices = self._takes_slices(
            loss_analysis.described(
                loss_analysis.describe(self._loss, self._variables, self._records)
            )
        )
        if slices:
            tables = self._without_shards(tables)
        ways = {table: self.way(table) for table in tables.values()}
        dense = [variable for variable in self._variables if variable not in tables]
        if not self._timing.sync:
            asynchronous.check_clipping(self._optimizer, self._package.clip_together, dense)
        found = self._gradients = StepGradients(
            self._loss, dense, tables.values(), members, self._exchange, self._timing.sync, slices
        )
        reduced, gate = found.reduced, tensorflow_api.operation_id(tf.no_op())
        by_tensorflow = self._adapter.inner is not None
        parts = [
            table_updates.with_penalty(part, self._loss, ways[part.part.table], by_tensorflow)
            for part in found.parts
        ]
        if slices:
            clip = None
        elif self._adapter.rule is None:
            # Where a user's formula asks for clipped gradients, if it does.
            clip = functools.partial(self._clipped, dense, reduced, parts)
        else:
            by_variable, parts = self._clipped(dense, reduced, parts, self._optimizer)
            reduced = [by_variable[variable] for variable in dense]
            clip = lambda optimizer: (by_variable, parts)  # noqa: E731
        applied = self._apply(tables, dict(zip(dense, reduced)), parts, ways, clip)
        operations = found.pushes + graph_queries.as_operations(applied)
        graph_queries.write_after_reads(operations, since=gate)
        return operations

    def _without_shards(self, tables):
        """Refuses shards for a formula that takes gradients as they come; returns no tables."""
        sharded = [table.name for table in tables.values() if table.shards]
        if sharded:
            raise PlanError(
                '%s computes with the rows of gradients as they come, repeats and all, which every '
                'rank must have of all tables, but %s has shards. Have it make tensors of its '
                'gradients first (tf.convert_to_tensor), or compile this model first.'
                % (self._adapter.name, ', '.join(sharded))
            )
        return {}

    def _clipped(self, dense, reduced, parts, optimizer):
        """Gradients of dense variables, a dict, and `PartUpdate`s, as an optimizer clips them."""
        reduced, parts = clipping.clipped(
            reduced,
            parts,
            optimizer,
            self._package.clip_together,
            self._gradients.sum_over_owners,
        )
        return dict(zip(dense, reduced)), parts

    def interrupt(self):
        """Makes a step that waits for another rank fail.

        Closing the session would do it too, but waits for servers that may be gone (TF 1.11).
        """
        for closing in self._interruptions:
            self._scope.session.run_known(closing)

    def _start(self, fills):
        """Gives the shards their start values, and the ranks those of rank 0."""
        if self._sharded:
            self._fill_shards(list(fills), list(fills.values()))
        self.broadcast(0)

    def _fill_shards(self, new, fills=()):
        self._scope.open_session()
        session = self._package.backend.get_session()
        shards = [part.variable for table in new for part in table.parts_of(self.rank)]
        fresh = shards + self._storage + self._tuning.counters
        session.run([variable.initializer for variable in fresh])
        if self._first_tokens is not None:
            session.run(self._first_tokens)
        self._job.barrier()
        initial_values.run(fills, session)

    def way(self, table):
        """The `UpdateWay` of a table."""
        if not table.by_row:
            return table_updates.UpdateWay(None, 'as any dense variable')
        return table_updates.choose_way(
            self._optimizer,
            self._settings.sparse_update,
            penalized=bool(table.penalties),
            constrained=loss_analysis.reach_of_constraint(table.constraint, len(table.plan.shape)),
        )

    def _apply(self, tables, dense, parts, ways, clip):
        """Builds the updates of everything that this rank updates."""
        since = tensorflow_api.operation_id(tf.no_op())
        applied = apply.build_updates(
            self._optimizer,
            self._keras_updates,
            self._variables,
            dense,
            apply.TablesOfRank(
                tables, ways, parts, self._prefix, self.rank, self.size, self._timing.sync
            ),
            self._loss,
            clip,
        )
        self._agree_on_draws(formula_graph.draws(applied.own, since))
        self._synced, self._storage = applied.synced, applied.storage
        self.state = applied.state
        return applied.operations

    def _agree_on_draws(self, draws):
        """Has a formula's random numbers the same on every rank, so that replicas stay equal."""
        if self.size == 1 or not draws:
            return
        seeds = [[draw.get_attr('seed'), draw.get_attr('seed2')] for draw in draws]
        # Without any, an operation would draw other numbers in each process.
        seeds = [pair if any(pair) else [0, random.randrange(1, 2**31)] for pair in seeds]
        for draw, pair in zip(draws, self.gather(seeds)[0]):
            tensorflow_api.set_seeds(draw, pair)

    @property
    def weights(self):
        """The optimizer's weights in Keras's order."""
        if self._weights is None:
            self._weights = keras_order(self._optimizer, self.state, self._variables)
        return self._weights

    @property
    def named_slots(self):
        """The slots of one of TensorFlow's optimizers, a dict from `'slot/variable'` to weights."""
        names = itertools.product(self.state.names, self._variables)
        slots = self.weights[len(self.state.counters) :]
        return {'%s/%s' % (name, of.op.name): slot for (name, of), slot in zip(names, slots)}

    @property
    def has_shards(self):
        """Whether a table of the model is sharded."""
        return any(isinstance(variable, ShardedVariable) for variable in self._variables)

    def call(self, name):
        """A context manager for a call that all ranks make, as `Job.call`."""
        return self._job.call(name) if self._job else contextlib.ExitStack()

    def gather(self, value):
        """Gathers a JSON-able value from every rank. A collective call."""
        if self._gather is None:
            self._gather = self._job.gather if self._job else Gatherer(self._prefix)
        return self._gather(value)

    @property
    def backend(self):
        """The backend of the optimizer's Keras package."""
        return self._package.backend

    @property
    def acts_in_fit(self):
        """Whether the ranks tell each other something at the epochs of `fit`."""
        return bool(self._scope) and self.size > 1 and self.waits

    @property
    def replicas(self):
        """The dense variables that it trains, which every rank holds, a list."""
        return [variable for variable in self._variables if variable not in self._tables]

    def broadcast(self, root_rank, own=()):
        """Gives every rank the values that one rank has. A collective call.

        Args:
            root_rank: the rank whose values count. Those of sharded tables are the job's already.
            own: variables of which every rank keeps its own values.
        """
        # The table of another model, built since, is no longer each rank's own.
        variables = {
            name: variable
            for name, variable in self._synced.items()
            if variable not in own and not isinstance(variable, ShardedVariable)
        }

        def build():
            return collectives.broadcast(variables, root_rank, self.gather, self._prefix)

        self._run_collective(('broadcast', root_rank, frozenset(variables)), build)

    def average(self, variables):
        """Gives variables their mean over the ranks. A collective call.

        Args:
            variables: a list of variables, the same on every rank.
        """

        def build():
            return averaging.averaging(variables, self.size, self._prefix)

        self._run_collective(('average', frozenset(variables)), build)

    def _run_collective(self, key, build):
        with self._lock.held():
            if key not in self._collectives:
                with self._loss.graph.as_default():
                    self._collectives[key] = build()
            session, collective = self._package.backend.get_session(), self._collectives[key]

            def run(call):
                # Maybe in a thread of its own, which acts for this one.
                with self._lock.lent():
                    session.run(collective)

            if self._job:
                self._job.collective(run)
            else:
                run(None)


def step_of(model):
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
