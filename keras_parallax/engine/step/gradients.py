# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The gradients of a training step, and what comes of their exchange between the workers."""

from typing import AbstractSet, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step import indexed_slices
from keras_parallax.engine.step.accumulation import Batches, OneBatch
from keras_parallax.engine.step.exchange import MEAN, Exchange, Pushed
from keras_parallax.engine.step.own_gradients import OwnGradients, Treatment, own_gradients
from keras_parallax.engine.step.table_exchange import TableExchange, mask_over_batches
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.tables.exchanged import PartGradient
from keras_parallax.engine.tables.table import Table
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Gradient, Operation, Tensor, Variable


class _Workers(NamedTuple):
    """Whose gradients are exchanged, and of which batches.

    Attributes:
        exchange: the exchange.
        sync: whether the gradients of all workers are applied together.
        batches: those of an exchange.
    """

    exchange: Exchange
    sync: bool
    batches: Batches

    @property
    def joined(self) -> int:
        """How many times the gradients of the joined batch those of a worker's batch are."""
        return self.exchange.size if self.sync and self.exchange.reduction == MEAN else 1


def build_gradients(
    loss: Tensor,
    dense: List[Variable],
    tables: Iterable[Table],
    members: AbstractSet[Operation],
    exchange: Exchange,
    sync: bool,
    treatment: Optional[Treatment] = None,
    batches: Optional[Batches] = None,
    other_reads: Iterable[Operation] = (),
) -> 'StepGradients':
    """Builds the gradients of one step, and their exchange.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every worker holds.
        tables: the tables.
        members: the set of operations that the loss depends on.
        exchange: the exchange.
        sync: whether the gradients of all workers are applied together.
        treatment: what the optimizer asks of gradients.
        batches: the `accumulation.OneBatch` or `Accumulated` of the batches of an exchange.
        other_reads: operations that run in the step and read what it writes: nothing is written
            before they have run.

    Raises:
        PlanError: the optimizer computes with what each of several workers would count.
    """
    tables, other_reads = list(tables), list(other_reads)
    workers = _Workers(exchange, sync, batches or OneBatch(loss))
    treatment = treatment or Treatment()
    own = own_gradients(
        loss,
        dense,
        tables,
        members,
        treatment,
        exchange.size,
        workers.joined,
        workers.batches.steps,
        sync,
    )
    with tf.control_dependencies([loss, *own.of_dense, *own.of_outputs.values(), *other_reads]):
        computed = tf.no_op()
    workers.batches.begin(computed)
    finite = _finite(own, workers)
    raw_squares = {}
    if treatment.clips:
        raw_squares = {key: _square_of(key, of_key, workers) for key, of_key in own.rows.items()}
    reduced = [_average(*pair, own, workers) for pair in zip(own.of_dense, dense)]
    of_tables = TableExchange(
        tables, members, exchange, sync, workers.batches, own, computed, other_reads
    )
    pushed = of_tables.build()
    sums = list(map(indexed_slices.values_of, reduced))
    parts = [part for of_table in pushed for part in of_table.parts]
    reduced, parts = _gated(reduced, parts, workers.batches.after([computed]))
    found = _Reduced(reduced, parts, pushed, sums, raw_squares, finite)
    return StepGradients(loss, tables, workers, own, computed, of_tables, found)


class _Reduced(NamedTuple):
    """What comes of the gradients of all workers.

    Attributes:
        of_dense: the gradients of dense variables, means over the workers.
        parts: those of tables that this worker applies.
        pushed: what is pushed, and the queues in which it waits.
        sums: what has come of the sums over the workers of dense gradients.
        raw_squares: dict from tables and dense variables to the squared norms of this worker's
            rows, before those that repeat are summed, if the optimizer clips by them.
        finite: as of `StepGradients`.
    """

    of_dense: List[Gradient]
    parts: List[PartGradient]
    pushed: List[Pushed]
    sums: List[Tensor]
    raw_squares: Dict[Any, Tensor]
    finite: Optional[Tensor]


class StepGradients:
    """The gradients of one step, as `build_gradients` builds them.

    Attributes:
        loss: the model's total loss.
        reduced: the gradients of dense variables, means over the workers: tensors, and
            `IndexedSlices` if they stay as they come, or if the optimizer needs the touched rows.
        looked_up: the dense variables, and the tables that are exchanged whole, whose gradients on
            this worker are `IndexedSlices`.
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

    totals: List[Tensor]
    _squares: Optional[Dict[Any, Tensor]]
    _factors: Dict[Table, Optional[Tensor]]

    def __init__(
        self,
        loss: Tensor,
        tables: List[Table],
        workers: _Workers,
        own: OwnGradients,
        computed: Operation,
        of_tables: TableExchange,
        found: _Reduced,
    ) -> None:
        self.loss, self._tables, self._batches = loss, tables, workers.batches
        self._exchange, self._sync = workers.exchange, workers.sync
        self._sharded = any(table.shards for table in tables)
        self.looked_up, self.computed = own.looked_up, computed
        self.connections, self.touched = of_tables.connections, of_tables.touched
        self.table_traffic = of_tables.table_traffic
        self.reduced, self.parts, self.sums = found.of_dense, found.parts, found.sums
        self.pushes = [one for pushed in found.pushed for one in pushed.operations]
        self.queues = [queue for pushed in found.pushed for queue in pushed.queues]
        self._raw_squares, self.finite = found.raw_squares, found.finite
        self.totals, self._squares, self._factors = [], None, {}

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

    def penalty_factor(self, table: Table) -> Optional[Tensor]:
        """The factor that a table's penalty has in the loss, a scalar; `None` if it has none."""
        if table not in self._factors:
            terms = table.penalty_terms
            gradients = tf.gradients(self.loss, terms) if terms else []
            factors = [gradient for gradient in gradients if gradient is not None]
            name = 'factor_of_' + table.name
            self._factors[table] = self._batches.mean(tf.add_n(factors), name) if factors else None
        return self._factors[table]


def _finite(own: OwnGradients, workers: _Workers) -> Optional[Tensor]:
    """A scalar that is not finite if a gradient of any worker is not."""
    if own.finite is None:
        return None
    finite = workers.batches.mean(own.finite, 'finite')
    return workers.exchange.allreduce(finite, 'finite') if workers.exchange.size > 1 else finite


def _square_of(key: Any, of_key: Sequence[Tensor], workers: _Workers) -> Tensor:
    """The squared norm of this worker's rows of a gradient, as they are in the joined batch."""
    square = tf.add_n([tf.reduce_sum(tf.square(values)) for values in of_key])
    square = workers.batches.mean(square, 'square_of_' + loss_analysis.name_of(key))
    square /= float(workers.joined) ** 2
    # Of the sum over the batches, but their gradients are divided by their number.
    return square / tf.cast(workers.batches.batches, square.dtype)


def _average(
    gradient: Gradient, variable: Variable, own: OwnGradients, workers: _Workers
) -> Gradient:
    """The mean over the workers of the gradient of a dense variable."""
    exchange, batches = workers.exchange, workers.batches
    name, shape = loss_analysis.name_of(variable), variable.shape.as_list()
    if not isinstance(gradient, tf.IndexedSlices):
        mean = exchange.average(batches.mean(gradient, name, shape), name)
        mask = mask_over_batches(own, variable, batches)
        if mask is None:
            return mean
        return exchange.total_mask(mask, name + '.touched').rows_of(mean)
    if exchange.size > 1 and indexed_slices.may_have_whole_table(gradient):
        raise PlanError(
            'The optimizer computes with the rows of gradients as they come, repeats and all, '
            'and in that of %s there is one of the whole table, as of a regularizer, which '
            'each worker would count. Have the optimizer make tensors of its gradients first '
            '(tf.convert_to_tensor), or take the regularizer away, or train with one worker.' % name
        )
    return exchange.average_slices(batches.slices(gradient, name), name)


def _gated(
    reduced: List[Gradient], parts: List[PartGradient], after: Sequence[Operation]
) -> Tuple[List[Gradient], List[PartGradient]]:
    """Holds back every write to what this process computes with until it has all its gradients.

    Keras 2.2.4 does not, and may update a variable before the backward pass has read it (proven by
    `tests/unit/test_single_process.py`, the bit-equality test). The gradients of pulled rows are
    among those that must be there, for the pass reads dense variables on its way to them
    (`tests/parallel/test_gate.py`). A shard on a server is not computed with: only rows pulled from
    it are. What has come from the other workers is applied while the rest is still on its way.

    Args:
        reduced: the gradients of dense variables.
        parts: those of tables that this worker applies.
        after: what must have run.

    Returns:
        The same, gated.
    """
    local = [number for number, part in enumerate(parts) if not part.part.table.shards]
    values = [parts[number].gradients.values for number in local]
    with tf.control_dependencies(after):
        gated = [indexed_slices.copy_of(tensor) for tensor in reduced + values]
    parts = list(parts)
    for number, value in zip(local, gated[len(reduced) :]):
        part = parts[number]
        parts[number] = part._replace(gradients=part.gradients._replace(values=value))
    return gated[: len(reduced)], parts
