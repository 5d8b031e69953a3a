"""Assembles the operations of a training step: gradients, exchange, updates, barrier."""

import functools
import itertools
import random

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.job import collectives, hosts
from keras_parallax.job.collectives import stored
from keras_parallax.step import asynchronous, exchange, local_aggregation, queues
from keras_parallax.step.accumulation import Accumulated, OneBatch
from keras_parallax.step.barrier import End, end_of_step
from keras_parallax.step.density import meter_of
from keras_parallax.step.dynamic_tables import turned_over
from keras_parallax.step.gradients import StepGradients
from keras_parallax.tables import initial_values, loss_analysis, sharding
from keras_parallax.tables.sharded_variable import ShardedVariable
from keras_parallax.updates import apply, clipping, formula_graph, table_updates
from keras_parallax.updates.slots import keras_order

#: Every rank builds its training steps in the same order, so the numbers agree between ranks.
_numbers = itertools.count()


class StepOperations:
    """The operations of a step, for as long as it follows one plan.

    Args:
        spec: the `StepSpec`.
        request: the `request.Request` that is followed.
        tables: dict from variables to `Table`s, which have the shards of the plan.

    Attributes:
        prefix: starts the names of its collectives and queues, the same on every rank.
        gradients: the `StepGradients`.
        operations: what a step runs, a list.
        update: what is run after a step, if gradients of several are exchanged together, or `None`.
        forget: the operation that empties `sums`, or `None`.
        connections: the `pull.Connection`s that hold in it.
        computed: an operation that has run when this rank has all gradients of the step.
        interruptions: operations that, run in turn, make a step fail that waits for another rank.
        meter: the `DensityMeter` of tables whose density is not known, or `None`.
        state: the optimizer's `OptimizerState`, or `None`.
        storage: the variables on this rank's server that belong to this plan.
        span: the ids of the first and of the last of all operations that were built for it.
        sums: those in which this rank adds up gradients.
    """

    def __init__(self, spec, request, tables):
        first = tensorflow_api.operation_id(tf.no_op())
        self._spec, self._collectives, self._weights = spec, {}, None
        self.prefix = '%s.%d' % (spec.settings.name, next(_numbers))
        sharded = any(table.shards for table in tables.values())
        self._exchange = exchange.Exchange(
            spec.job.rank,
            spec.job.size,
            spec.settings.sparse_reduction,
            spec.settings.compression,
            spec.settings.pull_compression,
            self.prefix,
            self._make_host() if sharded and request.local_aggregation else None,
        )
        members = loss_analysis.members_of(spec.loss, spec.records)
        if sharded:
            for table in tables.values():
                sharding.redirect_penalties(table, members)
            members = loss_analysis.members_of(spec.loss, spec.records)
        slices = spec.takes_slices(
            loss_analysis.described(loss_analysis.describe(spec.loss, spec.variables, spec.records))
        )
        if slices:
            if spec.settings.tables.all():
                raise PlanError(
                    'tables and per_table go with formulas that take gradients as tensors, but %s '
                    'takes the rows of gradients as they come.' % spec.adapter.name
                )
            for table in tables.values():
                self._way(table)  # It may be refused.
            tables = self._without_shards(tables)
        dense = [variable for variable in spec.variables if variable not in tables]
        if not spec.timing.sync:
            asynchronous.check_clipping(spec.optimizer, spec.package.clip_together, dense)
            asynchronous.check_loss_scale(spec.adapter.loss_scale)
        steps = spec.settings.accumulate_steps
        batches = Accumulated(spec.loss, steps, self.prefix) if steps > 1 else OneBatch(spec.loss)
        self._bounds = spec.adapter.bounds
        if self._bounds is not None and self._bounds.clips:
            _require_no_penalties(tables.values(), spec.adapter.name)
        self.gradients = StepGradients(
            spec.loss,
            dense,
            tables.values(),
            members,
            self._exchange,
            spec.timing.sync,
            slices,
            self._bounds,
            spec.adapter.loss_scale,
            batches,
        )
        applied, self.operations = self._update(tables, dense, slices)
        self._synced, self.state, self.storage = applied.synced, applied.state, applied.storage
        self.operations += turned_over(tables.values(), spec, self.state, self.operations)
        self.connections, self.computed = self.gradients.connections, self.gradients.computed
        self.meter, self.interruptions, self._first_tokens = None, [], None
        if sharded:
            self.meter = meter_of(
                tables.values(), request.density or {}, self.gradients.touched, spec.job.rank
            )
            if self.meter is not None and steps == 1:
                self.operations.append(self.meter.operation)
            end, self._first_tokens = self._end(tables.values())
            self.operations.extend(end.operations)
            self.interruptions.append(queues.closing(self.gradients.queues + end.own_queues))
            if self._exchange.host:
                self.connections = self.connections + self._exchange.host.connections
                self.interruptions.extend(self._exchange.host.interruptions())
            # Where a process is gone this may never end: so it comes last.
            self.interruptions.append(queues.closing(end.awaited))
        self.update, self.forget, self.sums = None, None, list(batches.storage)
        if steps > 1:
            self.forget = tf.group(*batches.resets)
            self.update = tf.group(*self.operations, self.forget)
            batches.require_no_batch(self.update, spec.adapter.name)
            self.operations = batches.additions + ([self.meter.operation] if self.meter else [])
        self.span = first, tensorflow_api.operation_id(tf.no_op())

    def _make_host(self):
        """The `HostGroup` with which this rank exchanges rows, or `None` if it goes alone."""
        ranks = self._spec.job.hosts
        if not hosts.aggregation_helps(ranks):
            return None
        return local_aggregation.HostGroup(ranks, self._spec.job.rank, self.prefix)

    def _without_shards(self, tables):
        """Refuses shards for a formula that takes gradients as they come; returns no tables."""
        sharded = [table.name for table in tables.values() if table.shards]
        if sharded:
            raise PlanError(
                '%s computes with the rows of gradients as they come, repeats and all, which every '
                'rank must have of all tables, but %s has shards. Have it make tensors of its '
                'gradients first (tf.convert_to_tensor), or compile this model first.'
                % (self._spec.adapter.name, ', '.join(sharded))
            )
        return {}

    def _update(self, tables, dense, slices):
        """Builds the updates of everything that this rank updates.

        Returns the `Applied`, and a list of operations that push gradients and apply them.
        """
        spec, gradients = self._spec, self.gradients
        ways = {table: self._way(table) for table in tables.values()}
        self._of_tables = {
            table.variable: way.optimizer for table, way in ways.items() if way.optimizer
        }
        reduced, gate = gradients.reduced, tensorflow_api.operation_id(tf.no_op())
        parts = [
            table_updates.with_penalty(
                part,
                gradients.penalty_factor(part.part.table),
                ways[part.part.table],
                spec.adapter.takes_rows,
                self._bounds and self._bounds.clipvalue,
            )
            for part in gradients.parts
        ]
        if slices:
            clip = None
        elif self._bounds is not None:
            by_variable, parts = clipping.clipped_as_they_come(
                dict(zip(dense, reduced)), parts, self._bounds, gradients.row_squares
            )
            reduced = [by_variable[variable] for variable in dense]
            clip = lambda optimizer: (by_variable, parts)  # noqa: E731
        elif spec.adapter.rule is None:
            # Where a user's formula asks for clipped gradients, if it does.
            clip = functools.partial(self._clipped, dense, reduced, parts)
        else:
            by_variable, parts = self._clipped(dense, reduced, parts, spec.optimizer)
            reduced = [by_variable[variable] for variable in dense]
            clip = lambda optimizer: (by_variable, parts)  # noqa: E731
        since = tensorflow_api.operation_id(tf.no_op())
        rank, size = spec.job.rank, spec.job.size
        applied = apply.build_updates(
            spec.optimizer,
            spec.keras_updates,
            spec.variables,
            dict(zip(dense, reduced)),
            apply.TablesOfRank(tables, ways, parts, self.prefix, rank, size, spec.timing.sync),
            spec.loss,
            clip,
            gradients.finite,
        )
        self._agree_on_draws(formula_graph.draws(applied.own, since))
        operations = gradients.pushes + graph_queries.as_operations(applied.operations)
        graph_queries.write_after_reads(operations, since=gate)
        return applied, operations

    def _way(self, table):
        """The `UpdateWay` of a table."""
        if not table.by_row:
            return table_updates.UpdateWay(None, 'as any dense variable')
        return table_updates.way_of_table(
            self._spec.optimizer,
            self._spec.settings.tables,
            self._spec.settings.sparse_update,
            table.name,
            penalized=bool(table.penalties),
            constrained=loss_analysis.reach_of_constraint(table.constraint, len(table.plan.shape)),
        )

    def _clipped(self, dense, reduced, parts, optimizer):
        """Gradients of dense variables, a dict, and `PartUpdate`s, as an optimizer clips them."""
        reduced, parts = clipping.clipped(
            reduced,
            parts,
            optimizer,
            self._spec.package.clip_together,
            self.gradients.sum_over_owners,
        )
        return dict(zip(dense, reduced)), parts

    def _agree_on_draws(self, draws):
        """Has a formula's random numbers the same on every rank, so that replicas stay equal."""
        if self._spec.job.size == 1 or not draws:
            return
        seeds = [[draw.get_attr('seed'), draw.get_attr('seed2')] for draw in draws]
        # Without any, an operation would draw other numbers in each process.
        seeds = [pair if any(pair) else [0, random.randrange(1, 2**31)] for pair in seeds]
        for draw, pair in zip(draws, self._spec.job.gather(seeds)[0]):
            tensorflow_api.set_seeds(draw, pair)

    def _end(self, tables):
        """The `End` of a step with servers, and what to run before the first one, or `None`."""
        timing, job = self._spec.timing, self._spec.job
        if timing.sync:
            pushes, replicas = self.gradients.pushes, self._synced.values()
            end = end_of_step(tables, self.operations, pushes, replicas, self._exchange)
            totals = stored(self.gradients.totals, job.rank)
            return end._replace(operations=end.operations + totals), None
        if timing.max_staleness is None:
            return End([], [], []), None
        bound = asynchronous.StalenessBound(timing.max_staleness, job.rank, job.size, self.prefix)
        first_tokens = bound.start()
        return End(bound.end_step(self.operations), bound.queues, []), first_tokens

    def initialize(self, tables, fills=()):
        """Initializes what is on this rank's server, and new shards of tables. Collective.

        Their `FillPlan`s are empty if rows are copied to them.
        """
        spec = self._spec
        spec.scope.sessions.open()
        session = spec.package.backend.get_session()
        new = [part.variable for table in tables for part in table.parts_of(spec.job.rank)]
        new += self.storage + self.sums
        if self.meter is not None:
            new.append(self.meter.variable)
        session.run([variable.initializer for variable in new])
        if self._first_tokens is not None:
            session.run(self._first_tokens)
        spec.job.barrier()
        initial_values.run(fills, session)

    @property
    def weights(self):
        """The optimizer's weights in Keras's order."""
        if self._weights is None:
            self._weights = keras_order(
                self._spec.optimizer, self.state, self._spec.variables, self._of_tables
            )
        return self._weights

    def broadcast(self, root_rank, own):
        """What gives every rank the values of one, as `TrainStep.broadcast` says."""
        # The table of another model, built since, is no longer each rank's own.
        variables = {
            name: variable
            for name, variable in self._synced.items()
            if variable not in own and not isinstance(variable, ShardedVariable)
        }
        gather, key = self._spec.job.gather, ('broadcast', root_rank, frozenset(variables))
        build = functools.partial(collectives.broadcast, variables, root_rank, gather, self.prefix)
        return self._collective(key, build)

    def average(self, variables):
        """What gives variables their mean over the ranks, as `TrainStep.average` says."""
        size, key = self._spec.job.size, ('average', frozenset(variables))
        build = functools.partial(collectives.average, variables, size, self.prefix)
        return self._collective(key, build)

    def _collective(self, key, build):
        """What `build` returns; the next time, what it has returned."""
        if key not in self._collectives:
            with self._spec.loss.graph.as_default():
                self._collectives[key] = build()
        return self._collectives[key]


def _require_no_penalties(tables, name):
    """Refuses a bound of gradients of rows to which a regularizer adds.

    Keras bounds the parts of such a gradient one by one, as often as the regularizer reads the
    table (2.15 and 2.21; `tests/unit/compat/test_keras_optimizers.py`).
    """
    penalized = [table.name for table in tables if table.by_row and table.penalties]
    if penalized:
        raise PlanError(
            '%s has a bound (clipnorm, clipvalue or global_clipnorm), and %s a regularizer. With '
            'TensorFlow 2 the two are not there together yet; take one of them away.'
            % (name, ', '.join(penalized))
        )
