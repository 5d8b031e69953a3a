"""The exchange of the gradients of a training step between the ranks."""

from typing import Any, List, NamedTuple, Sequence

from keras_parallax.compat import loss_scaling
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.job import devices
from keras_parallax.step import asynchronous, backward, pull_order
from keras_parallax.step.accumulation import OneBatch
from keras_parallax.step.exchange import (
    MEAN,
    Pushed,
    RowGradients,
    allgather,
    merged,
    push_rows,
    push_whole,
    sum_by_row,
)
from keras_parallax.step.pulls import connected_pulls
from keras_parallax.step.table_groups import (
    SameIdsGroup,
    SmallTablesGroup,
    are_pulled_at_once,
    is_small,
    may_be_grouped,
    same_ids_groups,
    small_groups,
)
from keras_parallax.tables import loss_analysis, sharding


class Travel(NamedTuple):
    """What travels of a table, or of a group of tables, in a step of this rank.

    Attributes:
        table: the `Exchanged`.
        arrived: the rows that this rank has pulled, a list of tensors; empty if it has them all.
        pulled: for each pull of this rank's from the servers the numbers of rows, a tensor `[n_k]`
            for each shard.
        pushed: numbers of the rows whose gradients this rank sends, the same; a single tensor of a
            table without shards.
        pushes: the operations that push these gradients.
    """

    table: Any
    arrived: List[tf.Tensor]
    pulled: List[List[tf.Tensor]]
    pushed: Sequence[tf.Tensor]
    pushes: Sequence[tf.Operation] = ()


class StepGradients:
    """The gradients of one step, and what comes of their exchange.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every rank holds.
        tables: the `Table`s.
        members: the set of operations that the loss depends on.
        exchange: the `exchange.Exchange`.
        sync: whether the gradients of all ranks are applied together.
        slices: whether `IndexedSlices` of `dense` stay as they come.
        bounds: the `clipping.Bounds` of an optimizer that clips rows before repeats are summed, or
            `None`.
        loss_scale: the `loss_scaling.LossScale` of the optimizer, or `None`.
        batches: the `accumulation.OneBatch` or `Accumulated` of the batches of an exchange.

    Attributes:
        loss: as given.
        reduced: the gradients of `dense`, means over the ranks.
        parts: the `PartGradient`s that this rank applies.
        pushes: the operations that push.
        queues: the queues on this rank's servers in which pushes wait.
        connections: the `pull.Connection`s of sparse tables.
        touched: dict from names of tables to numbers of different rows in this rank's batch.
        computed: an operation that has run when this rank has all its gradients.
        travels: a `Travel` of each table, or group of tables, whose rows travel.
        sums: what has come of the sums over the ranks of dense gradients, a list of tensors.
        totals: sums over the ranks that every rank must have computed by the end of the step.
        finite: a scalar that is not finite if a gradient of any rank is not, or `None` if that does
            not matter.
    """

    def __init__(
        self,
        loss,
        dense,
        tables,
        members,
        exchange,
        sync,
        slices,
        bounds=None,
        loss_scale=None,
        batches=None,
    ):
        self.loss, self._members, self._exchange, self._sync = loss, members, exchange, sync
        self._batches = batches or OneBatch(loss)
        self._tables = list(tables)
        self._sharded = any(table.shards for table in self._tables)
        self.parts, self.pushes, self.queues, self.connections = [], [], [], []
        self.touched, self.totals, self._squares, self._factors = {}, [], None, {}
        self.travels: List[Travel] = []
        parts = (exchange.size if sync else 1) * self._batches.steps
        computed = backward.gradients_of(loss, dense, self._tables, members, loss_scale, parts)
        gradients, of_outputs, of_rows = computed
        finite = None
        if loss_scale is not None and loss_scale.is_dynamic:
            finite = loss_scaling.not_finite_if_any(gradients + list(of_outputs.values()))
        # Of a batch of its own, a rank's gradients are as many times those of the joined batch.
        self._joined = exchange.size if sync and exchange.reduction == MEAN else 1
        if bounds is not None and bounds.clips:
            self._require_rows_alone(zip(dense, gradients))
        if bounds is not None and bounds.clipvalue is not None:
            bound = bounds.clipvalue * self._joined * self._batches.steps
            gradients = [
                _bounded(gradient, bound) if isinstance(gradient, tf.IndexedSlices) else gradient
                for gradient in gradients
            ]
            for outputs in of_rows.values():
                of_outputs.update(
                    (output, _bounded(of_outputs[output], bound)) for output in outputs
                )
        raw = {
            table: [of_outputs[output] for output in outputs] for table, outputs in of_rows.items()
        }
        for variable, gradient in zip(dense, gradients):
            if isinstance(gradient, tf.IndexedSlices):
                raw[variable] = [gradient.values]
        if not slices:
            gradients = list(map(tf.convert_to_tensor, gradients))
        with tf.control_dependencies([loss] + gradients + list(of_outputs.values())):
            self.computed = tf.no_op()
        self._batches.begin(self.computed)
        self.finite = None
        if finite is not None:
            self.finite = self._batches.mean(finite, 'finite')
            if exchange.size > 1:
                self.finite = exchange.allreduce(self.finite, 'finite')
        self._raw_squares = {}
        if bounds is not None and bounds.clips:
            self._raw_squares = {key: self._square_of(key, of_key) for key, of_key in raw.items()}
        reduced = [
            self._average(gradient, variable) for gradient, variable in zip(gradients, dense)
        ]
        self.sums = list(map(_values, reduced))
        for pushed in self._exchange_all(of_outputs):
            self.parts.extend(pushed.parts)
            self.pushes.extend(pushed.operations)
            self.queues.extend(pushed.queues)
        self.reduced = self._gate(reduced)

    def sum_over_owners(self, squares):
        """Sums the squared norms of the tables' parts over the ranks that own them, by table.

        Those of this rank's parts are asked for once; an optimizer within another gets the same.
        """
        if not self._sharded or not self._sync:
            return squares
        if self._squares is not None:
            return self._squares
        nothing = self._batches.zero
        of_rank = tf.stack([squares.get(table, nothing) for table in self._tables])
        total = self._exchange.allreduce(of_rank, 'squared_norms')
        self.totals.append(total)
        self._squares = {table: total[number] for number, table in enumerate(self._tables)}
        return self._squares

    def row_squares(self, squares):
        """Sums squared norms of rows over the ranks, before those that repeat are summed.

        Args:
            squares: dict from some tables to scalars, further squares of this rank's parts.

        Returns:
            A dict from tables, and from dense variables with gradients of rows, to scalars.
        """
        of_rank = dict(self._raw_squares)
        for table, square in squares.items():
            if not table.shards:
                # Every rank has the whole of it.
                square = square / float(self._exchange.size)
            of_rank[table] = of_rank[table] + square if table in of_rank else square
        if self._exchange.size == 1 or not self._sync:
            return of_rank
        # In an order that all ranks have in common; of some tables this rank has no part.
        nothing, keys = self._batches.zero, list(self._raw_squares)
        keys += [table for table in self._tables if table not in self._raw_squares]
        total = self._exchange.allreduce(
            tf.stack([of_rank.get(key, nothing) for key in keys]), 'squared_norms'
        )
        if self._sharded:
            self.totals.append(total)
        return {key: total[number] for number, key in enumerate(keys)}

    def _square_of(self, key, of_key):
        """The squared norm of this rank's rows of a gradient, as they are in the joined batch."""
        square = tf.add_n([tf.reduce_sum(tf.square(values)) for values in of_key])
        square = self._batches.mean(square, 'square_of_' + loss_analysis.name_of(key))
        square /= float(self._joined) ** 2
        # Of the sum over the batches, but their gradients are divided by their number.
        return square / tf.cast(self._batches.batches, square.dtype)

    def penalty_factor(self, table):
        """The factor that a table's penalty has in the loss, a scalar; `None` if it has none."""
        if table not in self._factors:
            terms = table.penalty_terms
            gradients = tf.gradients(self.loss, terms) if terms else []
            factors = [gradient for gradient in gradients if gradient is not None]
            name = 'factor_of_' + table.name
            self._factors[table] = self._batches.mean(tf.add_n(factors), name) if factors else None
        return self._factors[table]

    def _require_rows_alone(self, pairs):
        """Raises `PlanError` if each rank would count rows of a gradient that is clipped."""
        for variable, gradient in pairs if self._exchange.size > 1 else ():
            if isinstance(gradient, tf.IndexedSlices) and _has_whole_table(gradient):
                raise PlanError(
                    'The optimizer clips the rows of gradients as they come, and in that of %s '
                    'there is one of the whole table, as of a regularizer, which each worker would '
                    'count. Have the table sharded (architecture="hybrid"), or take the bound or '
                    'the regularizer away, or train with one worker.'
                    % loss_analysis.name_of(variable)
                )

    def _average(self, gradient, variable):
        name, shape = loss_analysis.name_of(variable), variable.shape.as_list()
        if not isinstance(gradient, tf.IndexedSlices):
            return self._exchange.average(self._batches.mean(gradient, name, shape), name)
        if self._exchange.size > 1 and _has_whole_table(gradient):
            raise PlanError(
                'The optimizer computes with the rows of gradients as they come, repeats and all, '
                'and in that of %s there is one of the whole table, as of a regularizer, which '
                'each worker would count. Have the optimizer make tensors of its gradients first '
                '(tf.convert_to_tensor), or take the regularizer away, or train with one worker.'
                % name
            )
        return self._exchange.average_slices(self._batches.slices(gradient, name), name)

    def _exchange_all(self, gradients):
        """Sums the gradients of all tables over the ranks; returns a list of `Pushed`."""
        pulls = {
            table: sharding.pulls_in(table, self._members)
            for table in self._tables
            if table.by_row and table.shards
        }
        of_all = [pull for of_table in pulls.values() for pull in of_table]
        for members in same_ids_groups(pulls):
            group = SameIdsGroup(members)
            pulls[group] = self._pulls_of(group, pulls)
        alike = [table for table in pulls if may_be_grouped(pulls[table], of_all)]
        groups = list(map(SmallTablesGroup, small_groups(alike)))
        of_groups = {group: self._pulls_of(group, pulls) for group in groups}
        first = pull_order.needed_first(pulls, self._members, list(filter(is_small, pulls)))
        first.update((group, []) for group in groups)
        pulls.update(of_groups)
        shared = {table for table in pulls if are_pulled_at_once(pulls[table], of_all)}
        with self._on_worker():
            connected, self._asked = connected_pulls(pulls, first, shared, self._exchange)
        for table, of_step in connected.items():
            for pull, own in zip(pulls[table], of_step):
                self.connections += table.connections(pull, own.rows)
        pulls.update(connected)
        pushed = []
        for table in self._tables:
            if not table.by_row:
                pushed.append(self._exchange_whole(table, gradients))
            elif not table.shards:
                pushed.append(self._allgather(table, gradients))
        return pushed + [self._push(table, pulls[table], gradients) for table in pulls]

    def _pulls_of(self, group, pulls):
        """A list of the `Pull` of a group, whose members' are taken out of `pulls`."""
        with self._on_worker():
            return [group.pull([pulls.pop(member)[0] for member in group.members])]

    def _exchange_whole(self, table, gradients):
        """Sums the gradient of a dense variable on servers; returns `Pushed`.

        What a rank pulls whole from its own server is not a copy. So it is pushed, and then
        updated, when this rank has computed all its gradients.
        """
        if self._exchange.host:
            self._exchange.host.pull_whole(table)
        gradient = tf.convert_to_tensor(gradients[table.variable.value()])
        gradient = self._batches.mean(gradient, table.name, table.plan.shape)
        push = push_whole if self._sync else asynchronous.push_whole
        return push(table, gradient, self._exchange, self._batches.after([self.computed]))

    def _allgather(self, table, gradients):
        """Sums the gradients of a table that every rank holds; returns `Pushed`."""
        of_lookups = [
            (tf.reshape(ids, [-1]), tf.reshape(gradients[output], [-1] + table.row_shape))
            for ids, output in sharding.lookups_in(table, self._members)
            if output in gradients
        ]
        own = sum_by_row(of_lookups)
        self.touched.update(table.touched(None, own.rows))
        own, _ = self._batches.rows(own, None, table.name, table.row_shape)
        self.travels.append(Travel(table, [], [], [own.rows]))
        return Pushed([], allgather(table, own, self._exchange), [])

    def _push(self, table, pulls, gradients):
        """Sums the gradients of an `Exchanged` with shards; returns `Pushed`, by table."""
        with self._on_worker():
            by_pull = [
                (RowGradients(pull.split.ids, table.gradients(pull, gradients)), pull.split)
                for pull in pulls
                # No gradient reaches what `tf.stop_gradient` holds still.
                if not gradients.keys().isdisjoint(pull.outputs)
            ]
            of_rank, split = merged(by_pull)
            self.touched.update(table.touched(pulls[0], of_rank.rows))
            of_rank, split = self._batches.rows(of_rank, split, table.name, table.row_shape)
        after = self._batches.after(self._reads(table, pulls))
        if self._sync:
            pushed = push_rows(table, of_rank, split, self._exchange, after)
        else:
            pushed = asynchronous.push_rows(table, of_rank, split, self._exchange)
        asked = [split.rows for split in self._asked[table]]
        arrived = [pull.rows for pull in pulls]
        self.travels.append(Travel(table, arrived, asked, pushed.rows, pushed.operations))
        parts = [of_table for part in pushed.parts for of_table in table.of_tables(part)]
        return pushed._replace(parts=parts)

    def _on_worker(self):
        return tf.device(devices.shard_device(self._exchange.rank))

    def _reads(self, table, pulls):
        """The operations that read a table's shards, as far as this rank's step needs them.

        A shard may be written as soon as all pushes are there: so it is read before pushing. That
        a lookup is done tells that rows are there, wherever the step has them from.
        """
        looked_up = [
            output.op for pull in pulls for output in pull.outputs if output.op in self._members
        ]
        return looked_up + [term.op for member in table.tables for term in member.penalty_terms]

    def _gate(self, reduced):
        """Holds back every write to what this process computes with until it has all its gradients.

        Keras 2.2.4 does not, and may update a variable before the backward pass has read it (proven
        by `tests/unit/test_single_process.py`, the bit-equality test). The gradients of pulled rows
        are among those that must be there, for the pass reads dense variables on its way to them
        (`tests/parallel/test_gate.py`). A shard on a server is not computed with: only rows pulled
        from it are. What has come from the other ranks is applied while the rest is still on its
        way.

        Returns the gradients `reduced`, gated; `parts` are gated in place.
        """
        local = [number for number, part in enumerate(self.parts) if not part.part.table.shards]
        values = [self.parts[number].gradients.values for number in local]
        with tf.control_dependencies(self._batches.after([self.computed])):
            gated = [_copy(tensor) for tensor in reduced + values]
        for number, value in zip(local, gated[len(reduced) :]):
            part = self.parts[number]
            self.parts[number] = part._replace(gradients=part.gradients._replace(values=value))
        return gated[: len(reduced)]


def _has_whole_table(slices):
    """Whether TensorFlow has joined a tensor to `IndexedSlices` of lookups (TF 1.11)."""
    rows = slices.indices.op
    parts = [tensor.op for tensor in rows.inputs] if rows.type == 'ConcatV2' else [rows]
    return any(part.type == 'Range' for part in parts)


def _bounded(gradient, bound):
    """A gradient, a tensor or `IndexedSlices`, whose entries are at most so large."""
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.clip_by_value(gradient.values, -bound, bound)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.clip_by_value(gradient, -bound, bound)


def _values(gradient):
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _copy(tensor):
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(_copy(tensor.values), tensor.indices, tensor.dense_shape)
    with tf.colocate_with(tensor):
        return tf.identity(tensor)
