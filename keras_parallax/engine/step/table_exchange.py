# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The exchange of the gradients of tables between the workers of a step."""

from typing import (
    AbstractSet,
    Any,
    ContextManager,
    Dict,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.step import asynchronous, whole_reads
from keras_parallax.engine.step.accumulation import Batches
from keras_parallax.engine.step.exchange import (
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
from keras_parallax.engine.step.own_gradients import OwnGradients, rows_in
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
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull_data import Connection, Pull, SplitIds
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Gradient, Operation, Tensor


class TableExchange:
    """Exchanges the gradients of all tables; `build` does, once.

    Args:
        tables: the tables.
        members: the set of operations that the loss depends on.
        exchange: the exchange.
        sync: whether the gradients of all workers are applied together.
        batches: those of an exchange.
        own: the gradients of this worker.
        computed: an operation that has run when this worker has all its gradients.
        other_reads: operations that run in the step and read what it writes.

    Attributes:
        connections: the `Connection`s of sparse tables.
        touched: dict from names of tables to numbers of different rows in this worker's batch.
        table_traffic: a `TableTraffic` of each table, or group of tables, whose rows travel.
    """

    connections: List[Connection]
    touched: Dict[str, Tensor]
    table_traffic: List[TableTraffic]
    _splits: Dict[Exchanged, List[SplitIds]]

    def __init__(
        self,
        tables: Sequence[Table],
        members: AbstractSet[Operation],
        exchange: Exchange,
        sync: bool,
        batches: Batches,
        own: OwnGradients,
        computed: Operation,
        other_reads: Sequence[Operation],
    ) -> None:
        self._tables, self._members, self._exchange, self._sync = tables, members, exchange, sync
        self._batches, self._own, self._computed = batches, own, computed
        self._other_reads = list(other_reads)
        self.connections, self.touched, self.table_traffic, self._splits = [], {}, [], {}

    def build(self) -> List[Pushed]:
        """Sums the gradients of all tables over the workers; returns a list of `Pushed`."""
        gradients = self._own.of_outputs
        pulls: Dict[Exchanged, List[Pull]] = {
            table: sharding.pulls_in(table, self._members)
            for table in self._tables
            if table.by_row and table.shards
        }
        of_all = [pull for of_table in pulls.values() for pull in of_table]
        # A table that is read whole is in no group, and maybe not looked up.
        alone: Dict[Exchanged, List[Pull]] = {table: pulls.pop(table) for table in self._own.wholes}
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
            # What reads the rows of a group's members is on the CPU, where they have been pulled.
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
        mask = mask_over_batches(self._own, table, self._batches)
        return push(table, gradient, self._exchange, self._batches.after([self._computed]), mask)

    def _allgather(self, table: Table, gradients: Dict[Tensor, Gradient]) -> Pushed:
        """Sums the gradients of a table that every worker holds; returns `Pushed`."""
        of_lookups = [
            (tf.reshape(ids, [-1]), tf.reshape(gradients[output], [-1] + table.row_shape))
            for ids, output in sharding.lookups_in(table, self._members)
            if output in gradients
        ]
        own = sum_by_row(of_lookups, on_card=tensorflow_api.has_card())
        self.touched.update(table.touched(None, own.rows))
        own, _ = self._batches.rows(own, None, table.name, table.row_shape)
        self.table_traffic.append(TableTraffic(table, [], [], [own.rows]))
        return Pushed([], allgather(table, own, self._exchange), [])

    def _push(
        self, table: Exchanged, pulls: List[Pull], gradients: Dict[Tensor, Gradient]
    ) -> Pushed:
        """Sums the gradients of an `Exchanged` with shards; returns `Pushed`, by table."""
        # Repeated rows are summed on the card, if there is one.
        with tf.device(devices.worker_device(self._exchange.rank)):
            by_pull: List[Tuple[RowGradients, Optional[SplitIds]]] = [
                (RowGradients(pull.split.ids, table.gradients(pull, gradients)), pull.split)
                for pull in pulls
                # No gradient reaches what `tf.stop_gradient` holds still.
                if not gradients.keys().isdisjoint(pull.outputs)
            ]
        with self._on_worker():
            wholes = self._own.wholes.get(table, [])
            if wholes:
                of_rows = [of_pull for of_pull, _ in by_pull]
                whole = whole_reads.joined(table, wholes, of_rows, gradients, self._computed)
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


def mask_over_batches(own: OwnGradients, key: Any, batches: Batches) -> Optional[RowMask]:
    """The rows that this worker's gradient of a whole variable touches, or `None` if unused.

    Args:
        own: the gradients of this worker.
        key: a dense variable or a table.
        batches: those of an exchange.
    """
    if key not in own.masks:
        return None
    name, rows = loss_analysis.name_of(key) + '/touched', rows_in(key)
    return own.masks[key].mapped(lambda numbers: batches.mean(numbers, name, [rows]))
