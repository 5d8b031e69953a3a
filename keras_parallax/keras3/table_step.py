# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The training step of the tables of Keras 3 models, which the engine runs."""

from typing import Any, Dict, List, Sequence, Tuple, cast

import numpy as np

from keras_parallax.compat.fed_optimizers import FedHyperparameters, FedRows
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.row_transfer import ShardedRows
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.keras_slots import weight_of
from keras_parallax.engine.updates.optimizers import RowsOfKeras3, RowsOfV2
from keras_parallax.framework_types import Tensor
from keras_parallax.keras3.joint_pulls import pull_of
from keras_parallax.keras3.sharded_tables import Table, rows_of
from keras_parallax.keras3.stored_rows import StoredRows, engine_backend
from keras_parallax.optimizer import ParallaxOptimizer


class TableStep:
    """A training step of some tables: applies the gradients of their rows on all workers together.

    Args:
        graph: the engine's `tf.Graph`.
        tables: the `Table`s.
        rows: the `RowsOfKeras3` of the optimizer.
        options: arguments of `ParallaxOptimizer`.
        looked_up_with: for each table the number of the ids that it is looked up with. Tables of
            the same number are mostly looked up with the same ids.
    """

    def __init__(
        self,
        graph: Any,
        tables: Sequence[Table],
        rows: RowsOfKeras3,
        options: Dict[str, Any],
        looked_up_with: Sequence[int],
    ) -> None:
        self.tables, self._rows, self._graph = list(tables), rows, graph
        self._looked_up_with = list(looked_up_with)
        self._slots: Dict[Any, Any] = {}
        with graph.as_default(), tf.device(None):
            self._fed = FedHyperparameters(rows.hyperparameters(1.0, 1))
            self._ids: Dict[int, Tensor] = {}
            for table, number in zip(tables, looked_up_with):
                if number not in self._ids:
                    self._ids[number] = tf.placeholder(table.id_dtype, [None])
            self._gradients = [
                tf.placeholder(tf.float32, [None, table.shape[1]]) for table in tables
            ]
            lookups = [
                tf.gather(table.variable, self._ids[number])
                for table, number in zip(tables, looked_up_with)
            ]
            self._nothing = tf.zeros([])
            loss = _loss_with_gradients(lookups, self._gradients)
            self.optimizer = ParallaxOptimizer(FedRows(rows, self._fed, RowsOfV2), **options)
            self._updates = self.optimizer.get_updates(loss, [table.variable for table in tables])
            for table, number, looked_up in zip(tables, looked_up_with, lookups):
                table.taken_by(self.step, (self._ids[number], looked_up))
            self._operations: Any = self.step.operations
            self._run = self._built()
            self._build_pull()
            # A session learns of all new operations at its next run, which takes longer the larger
            # the graph is. So the operations that nearly every model needs are made before that.
            for table in tables:
                table.make_moves()

    @property
    def step(self) -> TrainStep:
        """The engine's `TrainStep`."""
        return self.optimizer._parallax_step

    def __call__(
        self, ids: Sequence[np.ndarray], gradients: Sequence[np.ndarray], rate: float, number: int
    ) -> None:
        """Pushes gradients of rows, and applies those of all workers.

        Args:
            ids: for each table the ids of a batch's rows, integers of shape `[n]`.
            gradients: for each table the gradients, float32 of shape `[n, width]`. Those of an id
                that repeats are summed.
            rate: the learning rate.
            number: the number of the step, from 1.
        """
        for table, of_table in zip(self.tables, ids):
            table.check(of_table)
        of_numbers, gradients = self._joined(ids, gradients)
        fed = self._fed.values(self._rows.hyperparameters(rate, number))
        with self._graph.as_default():
            if self._operations is not self.step.operations:
                self._operations = self.step.operations
                self._run = self._built()
            self._run([*of_numbers, *gradients, fed])

    def write_start(self) -> None:
        """Gives tables that no step has taken before their start values."""
        for table in self.tables:
            table.write_start()

    def _build_pull(self) -> None:
        """Builds the pull of all tables together, as a functional model looks them up."""
        of_tables = dict(zip(self.tables, self._looked_up_with))
        tables = tuple(sorted(self.tables, key=lambda table: table.number))
        numbers = [of_tables[table] for table in tables]
        different = list(dict.fromkeys(numbers))
        tables[0].joint_pull(tables).build(tuple(map(different.index, numbers)))

    def slot(self, table: Table, name: str) -> StoredRows:
        """A slot of one of its tables, by its name in Keras."""
        return StoredRows(
            self._graph,
            'The slot %s of table %s' % (name, table.name),
            table.shape,
            lambda: self._rows_of_slot(table, name),
        )

    def _rows_of_slot(self, table: Table, name: str) -> ShardedRows:
        # That of an optimizer of which all is known.
        state = cast(OptimizerState, self.step.operations.state)
        slot = state.slots[table.variable][state.names.index(name)]
        if not isinstance(slot, list):
            return rows_of(slot, table.shape)
        if self._slots.get((table, name), (None, None))[0] is not slot:
            # Kept until the slot has other shards, because it adds operations to the graph.
            self._slots[table, name] = slot, weight_of(table.variable, name, slot, list)
        rows: ShardedRows = self._slots[table, name][1]
        return rows

    def _built(self) -> Any:
        """The function that runs the step, fed with the rows that it would pull.

        It computes nothing with them, not even the loss, so none are fed.
        """
        read = {one.replaced.name: one.replacement for one in self.step.operations.connections}
        rows = []
        for table, number in zip(self.tables, self._looked_up_with):
            of_engine = table.engine_table
            if of_engine.shards:
                pulled = pull_of(of_engine, self._ids[number]).rows
                rows.append(read.get(pulled.name, pulled))
        no_rows = [np.zeros((0, of_table.shape[1]), np.float32) for of_table in rows]
        fed = [*self._ids.values(), *self._gradients, self._fed.placeholder, *rows]
        # Keras must have some output, and this one is there at once.
        run = engine_backend().function(fed, [self._nothing], updates=self._updates)
        return lambda values: run([*values, *no_rows])

    def _joined(
        self, ids: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
    ) -> Tuple[List[np.ndarray], List[np.ndarray]]:
        """Ids by number, and gradients for all of them: of ids that a table was not asked, zeros.

        With each formula a row whose gradient is zero moves as one that is not looked up, if
        updates are exact.
        """
        by_number: Dict[int, np.ndarray] = {}
        joined: List[Any] = [None for _ in ids]
        for number in self._ids:
            members = [n for n, of_table in enumerate(self._looked_up_with) if of_table == number]
            first = ids[members[0]]
            if all(np.array_equal(first, ids[member]) for member in members[1:]):
                by_number[number] = first
                for member in members:
                    joined[member] = gradients[member]
                continue
            by_number[number] = np.concatenate([ids[member] for member in members])
            ends = np.cumsum([len(ids[member]) for member in members])
            for member, end in zip(members, ends):
                of_all = np.zeros((ends[-1], gradients[member].shape[1]), np.float32)
                of_all[end - len(ids[member]) : end] = gradients[member]
                joined[member] = of_all
        return list(by_number.values()), joined


def _loss_with_gradients(rows: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """A loss that is zero, and has given gradients by rows."""

    def loss(*rows: Tensor) -> Any:
        del rows
        # The step differentiates the loss itself, so that nothing else scales the gradients.
        return tf.zeros([]), lambda one: list(gradients)

    return tf.custom_gradient(loss)(*rows)
