"""The exchange of the gradients of a training step between the workers."""

from typing import (
    AbstractSet,
    Any,
    ContextManager,
    Dict,
    Iterable,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from keras_parallax.compat import loss_scaling
from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.step import asynchronous, backward, indexed_slices, whole_reads
from keras_parallax.engine.step.accumulation import Batches, OneBatch
from keras_parallax.engine.step.exchange import (
    MEAN,
    Exchange,
    Pushed,
    RowGradients,
    allgather,
    merged,
    push_rows,
    push_whole,
    sum_by_row,
)
from keras_parallax.engine.step.indexed_slices import RowMask
from keras_parallax.engine.step.step_pulls import connected_pulls, needed_first
from keras_parallax.engine.step.table_groups import (
    SameIdsGroup,
    SmallTablesGroup,
    are_pulled_at_once,
    is_small,
    may_be_grouped,
    same_ids_groups,
    small_groups,
)
from keras_parallax.engine.step.table_traffic import TableTraffic
from keras_parallax.engine.tables import loss_analysis, sharding
from keras_parallax.engine.tables.exchanged import Exchanged, PartGradient
from keras_parallax.engine.tables.pull_data import Connection, Pull, SplitIds
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Gradient, Operation, Queue, Slices, Tensor, Variable


class StepGradients:
    """The gradients of one step, and what comes of their exchange.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every worker holds.
        tables: the `Table`s.
        members: the set of operations that the loss depends on.
        exchange: the `exchange.Exchange`.
        sync: whether the gradients of all workers are applied together.
        as_they_come: whether `IndexedSlices` of `dense` stay as they come.
        bounds: the `clipping.Bounds` of an optimizer that clips rows before repeats are summed, or
            `None`.
        loss_scale: the `loss_scaling.LossScale` of the optimizer, or `None`.
        batches: the `accumulation.OneBatch` or `Accumulated` of the batches of an exchange.
        needs_touched_rows: as of the `OptimizerAdapter`.
        other_reads: operations that run in the step and read what it writes: nothing is written
            before they have run.

    Attributes:
        loss: as given.
        reduced: the gradients of `dense`, means over the workers: tensors, and `IndexedSlices` if
            they stay as they come, or if the optimizer needs the touched rows.
        looked_up: the variables of `dense`, and the tables that are exchanged whole, whose
            gradients on this worker are `IndexedSlices`.
        parts: the `PartGradient`s that this worker applies.
        pushes: the operations that push.
        queues: the queues on this worker's servers in which pushes wait.
        connections: the `pull.Connection`s of sparse tables.
        touched: dict from names of tables to numbers of different rows in this worker's batch.
        computed: an operation that has run when this worker has all its gradients.
        table_traffic: a `TableTraffic` of each table, or group of tables, whose rows travel.
        sums: what has come of the sums over the workers of dense gradients, a list of tensors.
        totals: sums over the workers that every worker must have computed by the end of the step.
        finite: a scalar that is not finite if a gradient of any worker is not, or `None` if that
            does not matter.
    """

    parts: List[PartGradient]
    pushes: List[Operation]
    queues: List[Queue]
    connections: List[Connection]
    touched: Dict[str, Tensor]
    totals: List[Tensor]
    finite: Optional[Tensor]
    _squares: Optional[Dict[Any, Tensor]]
    _factors: Dict[Table, Optional[Tensor]]
    _masks: Dict[Any, RowMask]
    _raw_squares: Dict[Any, Tensor]
    _splits: Dict[Exchanged, List[SplitIds]]

    def __init__(
        self,
        loss: Tensor,
        dense: List[Variable],
        tables: Iterable[Table],
        members: AbstractSet[Operation],
        exchange: Exchange,
        sync: bool,
        as_they_come: bool,
        bounds: Optional[Bounds] = None,
        loss_scale: Optional[LossScale] = None,
        batches: Optional[Batches] = None,
        needs_touched_rows: bool = False,
        other_reads: Iterable[Operation] = (),
    ) -> None:
        self._other_reads = list(other_reads)
        self.loss, self._members, self._exchange, self._sync = loss, members, exchange, sync
        self._batches = batches or OneBatch(loss)
        self._tables = list(tables)
        self._sharded = any(table.shards for table in self._tables)
        self.parts, self.pushes, self.queues, self.connections = [], [], [], []
        self.touched, self.totals, self._squares, self._factors = {}, [], None, {}
        self.table_traffic: List[TableTraffic] = []
        parts = (exchange.size if sync else 1) * self._batches.steps
        computed = backward.gradients_of(loss, dense, self._tables, members, loss_scale, parts)
        gradients, of_outputs, of_rows = computed
        finite = None
        if loss_scale is not None and loss_scale.is_dynamic:
            finite = loss_scaling.not_finite_if_any(gradients + list(of_outputs.values()))
        # Of a batch of its own, a worker's gradients are as many times those of the joined batch.
        self._joined = exchange.size if sync and exchange.reduction == MEAN else 1
        self._wholes = whole_reads.whole_reads(self._tables, members)
        if bounds is not None and bounds.clips:
            whole_reads.require_no_bounds(self._wholes, of_outputs, exchange.size)
        if bounds is not None and bounds.clipvalue is not None:
            bound = bounds.clipvalue * self._joined * self._batches.steps
            gradients = [indexed_slices.bounded(gradient, bound) for gradient in gradients]
            for output, gradient in of_outputs.items():
                of_outputs[output] = indexed_slices.bounded(gradient, bound)
            for outputs in of_rows.values():
                of_outputs.update(
                    (output, tf.clip_by_value(of_outputs[output], -bound, bound))
                    for output in outputs
                    if not isinstance(of_outputs[output], tf.IndexedSlices)
                )
        raw = {
            table: [indexed_slices.values_of(of_outputs[output]) for output in outputs]
            for table, outputs in of_rows.items()
        }
        whole = [table for table in self._tables if not table.by_row]
        of_whole = [of_outputs[table.variable.value()] for table in whole]
        looked_up = indexed_slices.looked_up(dense + whole, gradients + of_whole)
        if bounds is not None and bounds.clips:
            self._require_rows_alone(looked_up)
        raw.update((key, [gradient.values]) for key, gradient in looked_up.items())
        self.looked_up, self._masks = frozenset(looked_up), {}
        if not as_they_come:
            if needs_touched_rows:
                self._masks = {
                    key: indexed_slices.row_mask_of(gradient, _rows_in(key))
                    for key, gradient in looked_up.items()
                }
            gradients = list(map(tf.convert_to_tensor, gradients))
        of_rank = [loss] + gradients + list(of_outputs.values()) + self._other_reads
        with tf.control_dependencies(of_rank):
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
        self.sums = list(map(indexed_slices.values_of, reduced))
        for pushed in self._exchange_all(of_outputs):
            self.parts.extend(pushed.parts)
            self.pushes.extend(pushed.operations)
            self.queues.extend(pushed.queues)
        self.reduced = self._gate(reduced)

    def sum_over_owners(self, squares: Dict[Any, Tensor]) -> Dict[Any, Tensor]:
        """Sums the squared norms of the tables' parts over the workers that own them, by table.

        Those of this worker's parts are asked for once; an optimizer within another gets the same.
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

    def row_squares(self, squares: Dict[Any, Tensor]) -> Dict[Any, Tensor]:
        """Sums squared norms of rows over the workers, before those that repeat are summed.

        Args:
            squares: dict from some tables to scalars, further squares of this worker's parts.

        Returns:
            A dict from tables, and from dense variables with gradients of rows, to scalars.
        """
        of_rank = dict(self._raw_squares)
        for table, square in squares.items():
            if not table.shards:
                # Every worker has the whole of it.
                square = square / float(self._exchange.size)
            of_rank[table] = of_rank[table] + square if table in of_rank else square
        if self._exchange.size == 1 or not self._sync:
            return of_rank
        # In an order that all workers have in common; of some tables this worker has no part.
        nothing, keys = self._batches.zero, list(self._raw_squares)
        keys += [table for table in self._tables if table not in self._raw_squares]
        total = self._exchange.allreduce(
            tf.stack([of_rank.get(key, nothing) for key in keys]), 'squared_norms'
        )
        if self._sharded:
            self.totals.append(total)
        return {key: total[number] for number, key in enumerate(keys)}

    def _square_of(self, key: Any, of_key: Sequence[Tensor]) -> Tensor:
        """The squared norm of this worker's rows of a gradient, as they are in the joined batch."""
        square = tf.add_n([tf.reduce_sum(tf.square(values)) for values in of_key])
        square = self._batches.mean(square, 'square_of_' + loss_analysis.name_of(key))
        square /= float(self._joined) ** 2
        # Of the sum over the batches, but their gradients are divided by their number.
        return square / tf.cast(self._batches.batches, square.dtype)

    def penalty_factor(self, table: Table) -> Optional[Tensor]:
        """The factor that a table's penalty has in the loss, a scalar; `None` if it has none."""
        if table not in self._factors:
            terms = table.penalty_terms
            gradients = tf.gradients(self.loss, terms) if terms else []
            factors = [gradient for gradient in gradients if gradient is not None]
            name = 'factor_of_' + table.name
            self._factors[table] = self._batches.mean(tf.add_n(factors), name) if factors else None
        return self._factors[table]

    def _require_rows_alone(self, looked_up: Dict[Any, Slices]) -> None:
        """Raises `PlanError` if each worker would count rows of a gradient that is clipped."""
        for variable, gradient in looked_up.items() if self._exchange.size > 1 else ():
            if indexed_slices.may_have_whole_table(gradient):
                raise PlanError(
                    'The optimizer clips the rows of gradients as they come, and in that of %s '
                    'there is one of the whole table, as of a regularizer, which each worker would '
                    'count. Have the table sharded (architecture="hybrid"), or take the bound or '
                    'the regularizer away, or train with one worker.'
                    % loss_analysis.name_of(variable)
                )

    def _average(self, gradient: Gradient, variable: Variable) -> Gradient:
        name, shape = loss_analysis.name_of(variable), variable.shape.as_list()
        if not isinstance(gradient, tf.IndexedSlices):
            mean = self._exchange.average(self._batches.mean(gradient, name, shape), name)
            mask = self._mask_over_batches(variable)
            if mask is None:
                return mean
            return self._exchange.total_mask(mask, name + '.touched').rows_of(mean)
        if self._exchange.size > 1 and indexed_slices.may_have_whole_table(gradient):
            raise PlanError(
                'The optimizer computes with the rows of gradients as they come, repeats and all, '
                'and in that of %s there is one of the whole table, as of a regularizer, which '
                'each worker would count. Have the optimizer make tensors of its gradients first '
                '(tf.convert_to_tensor), or take the regularizer away, or train with one worker.'
                % name
            )
        return self._exchange.average_slices(self._batches.slices(gradient, name), name)

    def _mask_over_batches(self, key: Any) -> Optional[indexed_slices.RowMask]:
        """The `RowMask` of this worker's gradient of a whole variable, or `None` if unused."""
        if key not in self._masks:
            return None
        name, rows = loss_analysis.name_of(key) + '/touched', _rows_in(key)
        return self._masks[key].mapped(lambda numbers: self._batches.mean(numbers, name, [rows]))

    def _exchange_all(self, gradients: Dict[Tensor, Gradient]) -> List[Pushed]:
        """Sums the gradients of all tables over the workers; returns a list of `Pushed`."""
        pulls: Dict[Exchanged, List[Pull]] = {
            table: sharding.pulls_in(table, self._members)
            for table in self._tables
            if table.by_row and table.shards
        }
        of_all = [pull for of_table in pulls.values() for pull in of_table]
        # A table that is read whole is in no group, and maybe not looked up.
        alone: Dict[Exchanged, List[Pull]] = {table: pulls.pop(table) for table in self._wholes}
        for members in same_ids_groups(pulls):
            group = SameIdsGroup(members)
            pulls[group] = self._pulls_of(group, pulls)
        alike = [table for table in pulls if may_be_grouped(pulls[table], of_all)]
        groups = list(map(SmallTablesGroup, small_groups(alike)))
        of_groups: Dict[Exchanged, List[Pull]] = {
            group: self._pulls_of(group, pulls) for group in groups
        }
        pulls.update((table, of_table) for table, of_table in alone.items() if of_table)
        first = needed_first(pulls, self._members, list(filter(is_small, pulls)))
        first.update((group, []) for group in groups)
        pulls.update(of_groups)
        shared = {table for table in pulls if are_pulled_at_once(pulls[table], of_all)}
        with self._on_worker():
            connected, self._splits = connected_pulls(pulls, first, shared, self._exchange)
        for table, of_step in connected.items():
            for pull, own in zip(pulls[table], of_step):
                self.connections += table.connections(pull, own.rows)
        pulls = {**alone, **pulls, **connected}
        pushed = []
        for table in self._tables:
            if not table.by_row:
                pushed.append(self._exchange_whole(table, gradients))
            elif not table.shards:
                pushed.append(self._allgather(table, gradients))
        return pushed + [self._push(table, pulls[table], gradients) for table in pulls]

    def _pulls_of(
        self, group: Union[SameIdsGroup, SmallTablesGroup], pulls: Dict[Exchanged, List[Pull]]
    ) -> List[Pull]:
        """A list of the `Pull` of a group, whose members' are taken out of `pulls`."""
        with self._on_worker():
            return [group.pull([pulls.pop(member)[0] for member in group.members])]

    def _exchange_whole(self, table: Table, gradients: Dict[Tensor, Gradient]) -> Pushed:
        """Sums the gradient of a dense variable on servers; returns `Pushed`.

        What a worker pulls whole from its own server is not a copy. So it is pushed, and then
        updated, when this worker has computed all its gradients.
        """
        if self._exchange.host:
            self._exchange.host.pull_whole(table)
        gradient = tf.convert_to_tensor(gradients[table.variable.value()])
        gradient = self._batches.mean(gradient, table.name, table.plan.shape)
        push = push_whole if self._sync else asynchronous.push_whole
        mask = self._mask_over_batches(table)
        return push(table, gradient, self._exchange, self._batches.after([self.computed]), mask)

    def _allgather(self, table: Table, gradients: Dict[Tensor, Gradient]) -> Pushed:
        """Sums the gradients of a table that every worker holds; returns `Pushed`."""
        of_lookups = [
            (tf.reshape(ids, [-1]), tf.reshape(gradients[output], [-1] + table.row_shape))
            for ids, output in sharding.lookups_in(table, self._members)
            if output in gradients
        ]
        own = sum_by_row(of_lookups)
        self.touched.update(table.touched(None, own.rows))
        own, _ = self._batches.rows(own, None, table.name, table.row_shape)
        self.table_traffic.append(TableTraffic(table, [], [], [own.rows]))
        return Pushed([], allgather(table, own, self._exchange), [])

    def _push(
        self, table: Exchanged, pulls: List[Pull], gradients: Dict[Tensor, Gradient]
    ) -> Pushed:
        """Sums the gradients of an `Exchanged` with shards; returns `Pushed`, by table."""
        with self._on_worker():
            by_pull: List[Tuple[RowGradients, Optional[SplitIds]]] = [
                (RowGradients(pull.split.ids, table.gradients(pull, gradients)), pull.split)
                for pull in pulls
                # No gradient reaches what `tf.stop_gradient` holds still.
                if not gradients.keys().isdisjoint(pull.outputs)
            ]
            wholes = self._wholes.get(table, [])
            if wholes:
                of_rows = [of_pull for of_pull, _ in by_pull]
                whole = whole_reads.joined(table, wholes, of_rows, gradients, self.computed)
                by_pull = [(whole, None)]
            of_rank, split = merged(by_pull)
            self.touched.update(table.touched(pulls[0] if pulls else None, of_rank.rows))
            of_rank, split = self._batches.rows(of_rank, split, table.name, table.row_shape)
            arrived, pulled_rows = whole_reads.pulled(table, wholes, self._exchange.host)
        after = self._batches.after(self._reads(table, pulls))
        if self._sync:
            pushed = push_rows(table, of_rank, split, self._exchange, after)
        else:
            pushed = asynchronous.push_rows(table, of_rank, split, self._exchange)
        pulled_rows += [split.rows for split in self._splits.get(table, [])]
        arrived += [pull.rows for pull in pulls]
        self.table_traffic.append(
            TableTraffic(table, arrived, pulled_rows, pushed.rows, pushed.operations)
        )
        parts = [of_table for part in pushed.parts for of_table in table.of_tables(part)]
        return pushed._replace(parts=parts)

    def _on_worker(self) -> ContextManager[Any]:
        return tf.device(devices.shard_device(self._exchange.rank))

    def _reads(self, table: Exchanged, pulls: Sequence[Pull]) -> List[Operation]:
        """The operations that read a table's shards, as far as this worker's step needs them.

        A shard may be written as soon as all pushes are there: so it is read before pushing. That
        a lookup is done tells that rows are there, wherever the step has them from.
        """
        looked_up = [
            output.op for pull in pulls for output in pull.outputs if output.op in self._members
        ]
        terms = [term.op for member in table.tables for term in member.penalty_terms]
        penalties = [term for term in terms if term in self._members]
        return looked_up + penalties + self._other_reads

    def _gate(self, reduced: List[Gradient]) -> List[Gradient]:
        """Holds back every write to what this process computes with until it has all its gradients.

        Keras 2.2.4 does not, and may update a variable before the backward pass has read it (proven
        by `tests/unit/test_single_process.py`, the bit-equality test). The gradients of pulled rows
        are among those that must be there, for the pass reads dense variables on its way to them
        (`tests/parallel/test_gate.py`). A shard on a server is not computed with: only rows pulled
        from it are. What has come from the other workers is applied while the rest is still on its
        way.

        Returns the gradients `reduced`, gated; `parts` are gated in place.
        """
        local = [number for number, part in enumerate(self.parts) if not part.part.table.shards]
        values = [self.parts[number].gradients.values for number in local]
        with tf.control_dependencies(self._batches.after([self.computed])):
            gated = [indexed_slices.copy_of(tensor) for tensor in reduced + values]
        for number, value in zip(local, gated[len(reduced) :]):
            part = self.parts[number]
            self.parts[number] = part._replace(gradients=part.gradients._replace(values=value))
        return gated[: len(reduced)]


def _rows_in(key: Any) -> int:
    """The number of rows of a variable, or of a `Table`."""
    return getattr(key, 'variable', key).shape.as_list()[0]
