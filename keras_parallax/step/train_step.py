"""A model's training step: what the rest of the package knows of it, and how it comes about."""

import itertools
import time

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError
from keras_parallax.session.graph_lock import lock_of
from keras_parallax.step import resharding
from keras_parallax.step.agreement import check_agreement, model_report
from keras_parallax.step.dynamic_tables import index_frozen, index_rows, require_shards
from keras_parallax.step.meter import StepMeter
from keras_parallax.step.operations import StepOperations
from keras_parallax.tables import initial_values, loss_analysis, sharding
from keras_parallax.updates.table_updates import require_row_rules


class TrainStep:
    """The training step of one model.

    Args:
        spec: the `StepSpec`.
        request: the `request.Request` that it follows.
        plan: the `Plan` that follows from it.
        tables: dict from variables to `Table`s.
        operations: the `StepOperations`.

    Attributes:
        spec, request, tables, operations: as given, or as they are after `replan`.
        rank, size: this process's rank, and the number of ranks.
        call, gather: those of the `Job`.
        sync: whether the gradients of all workers are applied together.
        lockstep: whether the step ends for no rank before all have begun it.
        waits: whether the ranks need equally many steps.
        acts_in_fit: whether the ranks tell each other something at the epochs of `fit`.
        whole_step: the operation that Keras runs, whatever the step is made of later.
        density: dict from names of tables to the densities that were measured.
        after_runs: functions of the seconds that a run has taken, and of whether `density` is new.
        meter: the `StepMeter` while the step is measured, else `None`.
        tracer: the `traced_runs.Tracer` while runs of the step are traced, else `None`.
        trials: the `trials.Trials` of the architectures that the job has tried, or `None`.
        tries: whether it tries architectures, or is going to.
        pending: of how many batches the gradients are added up, and not exchanged yet.
        epochs: number of epochs that `fit` has trained.
        saved_fit: what a checkpoint says of the `fit` that it was saved in, until one goes on.
        name_scope: the name scope in which Keras builds the step: its own slots have their names
            from it.
        backend: the backend of the optimizer's Keras package.
    """

    def __init__(self, spec, request, plan, tables, operations):
        self.spec, self.request, self.tables = spec, request, tables
        self._plan, self.operations = plan, operations
        self.rank, self.size = spec.job.rank, spec.job.size
        self.call, self.gather = spec.job.call, spec.job.gather
        self.sync = spec.timing.sync
        self.lockstep = self.sync or any(not planned.shards for planned in plan.variables)
        self.waits = self.lockstep or spec.timing.max_staleness is not None
        self.acts_in_fit = spec.scope is not None and self.size > 1 and self.waits
        self.whole_step = tf.group(*operations.operations)
        self.density, self.after_runs, self.meter, self.tracer = {}, [], None, None
        self.pending, self._seconds, self._has_measured, self._update = 0, 0.0, False, None
        self.epochs, self.saved_fit = 0, None
        self.trials, self.tries, self._past = None, False, []
        self.name_scope = spec.loss.graph.get_name_scope()
        self.backend = spec.package.backend

    @property
    def plan(self):
        """The `Plan` that the step follows, with the densities that it has measured."""
        shards = {table.name: table.plan.shards for table in self.tables.values()}
        return self._plan.as_followed(shards, self.density, self.trials)

    @property
    def measures_density(self):
        """Whether the densities of tables are yet to be measured."""
        return self.operations.meter is not None and not self.density

    @property
    def has_moved(self):
        """Whether it has followed another plan before."""
        return bool(self._past)

    def is_past(self, operation):
        """Whether an operation of the graph is of what the step was made of, and is no more."""
        number = tensorflow_api.operation_id(operation)
        return any(first <= number <= last for first, last in self._past)

    def replan(self, request, plan=None):
        """Follows another plan from now on; weights and slots stay. A collective call.

        Variables may get other shards, or none, or shards where they had none, if
        `resharding.may_move`. It is what follows from the request, if it is not said which plan.
        """
        with lock_of(self.spec.loss.graph).held():
            plan = plan or self.spec.plan_for(request)
            self._past.append(self.operations.span)
            self.tables, self.operations = resharding.reshard(self, request, plan)
            self.request, self._plan = request, plan
            if self.meter is not None:
                self.measure()

    def measure(self):
        """Has the runs of the step measured from now on, by a new `meter`."""
        graph = self.spec.loss.graph
        with lock_of(graph).held(), graph.as_default():
            self.meter = StepMeter(self)

    def stop_measuring(self):
        """Has the runs of the step measured no more."""
        self.meter = None

    @property
    def beside(self):
        """Names of operations to run with each step, which are no part of it."""
        return [] if self.meter is None else [self.meter.operation.name]

    @property
    def accumulate_steps(self):
        """After how many batches their gradients are exchanged."""
        return self.spec.settings.accumulate_steps

    @property
    def ends_together(self):
        """Whether the next run ends for no rank before all have begun it."""
        return self.lockstep and self.pending + 1 >= self.accumulate_steps

    def end_batch(self):
        """Called when a batch has run: exchanges the gradients that are added up, if it is time."""
        if self.accumulate_steps > 1:
            self.pending += 1
            if self.pending >= self.accumulate_steps:
                self._apply()

    def apply_rest(self):
        """Exchanges and applies what is added up of fewer batches. Ranks that wait all call it."""
        if self.pending:
            began = time.perf_counter()
            with self.spec.job.activity.step(self.lockstep, is_new=False):
                self._apply()
            if self.meter is not None:
                self.meter.note_update(time.perf_counter() - began)

    def drop_pending(self):
        """Forgets what is added up, for it is of other weights than there will be."""
        if self.pending:
            self.backend.get_session().run(self.operations.forget)
            self.pending = 0

    def _apply(self):
        update, scope = self.operations.update, self.spec.scope
        if self._update is None or self._update.operation is not update:
            self._update = Update(self, update)
            scope.runs.note_update(update, self._update)
        self._update.run()
        self.pending = 0

    def after_run(self, seconds):
        """Called after each run of the step, which took some seconds, and what it was followed by.

        If the gradients of several batches are exchanged together, tables move after the exchange.
        """
        if self.meter is not None:
            self.meter.note_run(seconds)
        self._seconds += seconds
        with self.call('what follows from the first training batches'):
            meter = self.operations.meter
            if meter is not None and meter.after_step():
                # Workers that do not wait for each other do not gather it: each knows its own.
                gather = self.gather if self.sync else lambda value: [value]
                density = meter.density(self.spec.scope.session, gather)
                self.density = dict(self.density, **density)
                self._has_measured = True
            if self.pending:
                return
            seconds, measured = self._seconds, self._has_measured
            self._seconds, self._has_measured = 0.0, False
            for notify in self.after_runs:
                notify(seconds, measured)

    def interrupt(self):
        """Makes a step that waits for another rank fail.

        Closing the session would do it too, but waits for servers that may be gone (TF 1.11).
        """
        for closing in self.operations.interruptions:
            self.spec.scope.session.run_known(closing)

    @property
    def connections(self):
        """The `pull.Connection`s that hold in the step."""
        return self.operations.connections

    @property
    def computed(self):
        """An operation that has run when this rank has all gradients of the step."""
        return self.operations.computed

    @property
    def state(self):
        """The optimizer's `OptimizerState`, or `None` if its slots are not told apart."""
        return self.operations.state

    @property
    def weights(self):
        """The optimizer's weights in Keras's order."""
        return self.operations.weights

    @property
    def named_slots(self):
        """The slots of one of TensorFlow's optimizers, a dict from `'slot/variable'` to weights."""
        names = itertools.product(self.state.names, self.spec.variables)
        slots = self.weights[len(self.state.counters) :]
        return {'%s/%s' % (name, of.op.name): slot for (name, of), slot in zip(names, slots)}

    @property
    def has_shards(self):
        """Whether a table of the model is sharded."""
        return self.spec.has_shards

    @property
    def replicas(self):
        """The dense variables that it trains, which every rank holds, a list."""
        return [variable for variable in self.spec.variables if variable not in self.tables]

    def broadcast(self, root_rank, own=()):
        """Gives every rank the values that one rank has. A collective call.

        Those of sharded tables are the job's already; each rank keeps its values of variables
        `own`.
        """
        self._run_collective(lambda: self.operations.broadcast(root_rank, own))
        index_frozen(self.spec, self.backend.get_session())

    def average(self, variables):
        """Gives variables, the same on every rank, their mean over the ranks. A collective call."""
        self._run_collective(lambda: self.operations.average(variables))

    def _run_collective(self, built):
        lock = lock_of(self.spec.loss.graph)
        with lock.held():
            collective, session = built(), self.backend.get_session()

            def run(call):
                # Maybe in a thread of its own, which acts for this one.
                with lock.lent():
                    session.run(collective)

            self.spec.job.collective(run)


class Update:
    """The exchange of gradients of several batches, which the session runs as it does a step.

    Args:
        step: the `TrainStep`.
        operation: the operation that exchanges and applies them.
    """

    #: The `TrainStep` says for both when ranks wait.
    waits = lockstep = False
    connections = ()

    def __init__(self, step, operation):
        self._step, self.operation, self._function = step, operation, None

    @property
    def tracer(self):
        """As of the `TrainStep`."""
        return self._step.tracer

    @property
    def beside(self):
        """Names of operations to run with it, which are no part of it."""
        meter = self._step.meter
        return [] if meter is None else [meter.update_operation.name]

    def run(self):
        """Exchanges and applies."""
        if self._function is None:
            self._function = self._step.spec.scope.session.function_of(self.operation)
        self._function()

    def end_batch(self):
        """There is none."""

    def after_run(self, seconds):
        """The `TrainStep` takes note of it."""


def build_step(spec, before=()):
    """The `TrainStep` of a `StepSpec`, ready to run. A collective call in a job.

    Args:
        spec: the `StepSpec`.
        before: the weights that its optimizer has had for the same variables, in Keras's order.
    """
    with spec.job.call('the first training call of a model'), lock_of(spec.loss.graph).held():
        step = _build(spec)
        if before and step.has_shards:
            _go_on(step, before)
        return step


def _go_on(step, before):
    """Has a step's optimizer go on with the weights that it has had before."""
    pairs = list(zip(before, step.weights))
    if len(pairs) == len(before) == len(step.weights) and all(
        old.shape.as_list() == new.shape.as_list() for old, new in pairs
    ):
        resharding.carry_over(pairs, step.spec.scope.session, step.rank, step.size)
        step.spec.job.barrier()


def _build(spec):
    request = spec.asked
    scope, rank, gather = spec.scope, spec.job.rank, spec.job.gather
    if scope is None:  # Otherwise `compile` has done it.
        loss_analysis.settle_functions(spec.loss, spec.variables, spec.records)
    others = scope.runs.train_steps if scope else []
    held = {variable for step in others if step.has_moved for variable in step.spec.variables}
    plan = sharding.as_they_lie(spec.plan_for(request), spec.variables, held)
    spec.settings.tables.require_tables(plan, request)
    require_shards(spec, plan)
    row_settings = spec.settings.sparse_update, spec.settings.tables
    require_row_rules(plan, spec.optimizer, row_settings, spec.variables, spec.records)
    sharded = any(planned.shards for planned in plan.variables)
    present, several = {}, scope is not None and spec.job.size > 1
    if scope:
        scope.sessions.hand_to_keras()
    if sharded:
        scope.sessions.use_server()
        present = sharding.set_aside(spec.variables, plan, scope.session)
    if several:
        asked = [request, spec.timing]
        check_agreement(gather(model_report(plan, spec.optimizer, spec.settings, asked)))
    sources = initial_values.value_sources(present, rank, gather) if present else {}
    # Keras initializes what has not been set aside.
    spec.package.backend.get_session()
    tables, fills = sharding.make_tables(spec.loss, spec.variables, plan, sources, scope, rank)
    operations = StepOperations(spec, request, tables)
    resharding.check_moves(spec, operations)
    step = TrainStep(spec, request, plan, tables, operations)
    if scope:
        scope.runs.note_gate(step.whole_step, step)
        scope.runs.note_train_step(step.whole_step, step)
    if sharded:
        spec.job.process_end.interrupt_on_failure(step)
        operations.initialize(list(fills), list(fills.values()))
        index_rows(fills, scope.session, spec.job)
    elif operations.sums:
        spec.package.backend.get_session().run([sum_.initializer for sum_ in operations.sums])
    if several or sharded:
        step.broadcast(0)
    return step


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
