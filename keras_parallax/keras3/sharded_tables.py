# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The tables of Keras 3 models: the engine, in a TensorFlow graph of its own, fed with arrays."""

import itertools
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_scope import GraphScope, WeightRecord, scope_of
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.row_transfer import ShardedRows, row_blocks
from keras_parallax.errors import IdOutOfRangeError, ParallaxError, PlanError
from keras_parallax.framework_types import DType, Tensor
from keras_parallax.keras3.joint_pulls import JointPull
from keras_parallax.keras3.start_values import StartValues
from keras_parallax.keras3.stored_rows import StoredRows, engine_backend

_numbers = itertools.count()

#: At most this many ids out of range are told.
_TOLD_IDS = 3


class Table(StoredRows):
    """A table whose rows the engine keeps.

    Args:
        graph: the engine's `tf.Graph`.
        name: its name, that of the layer and of the weight: `'words/embeddings'`.
        start: the `StartValues`. Those of rank 0 count.

    Attributes:
        name: as given.
        shape: `(rows, width)`.
        variable: the variable of the engine's graph.
        number: grows with every table that this process makes.
        lookup: the ids that the last training step is fed, and the rows that it looks up by them;
            `None` before the first.
    """

    def __init__(self, graph: Any, name: str, start: StartValues) -> None:
        super().__init__(graph, name, start.shape, lambda: rows_of(self.variable, self.shape))
        self._start: Optional[StartValues] = start
        self._step: Optional[TrainStep] = None
        self.lookup: Optional[Tuple[Tensor, Tensor]] = None
        self.number = next(_numbers)
        self._joint_pulls: Dict[Tuple[Table, ...], JointPull] = {}
        self._why_dense: Optional[str] = None
        self._all_make_start = False
        with graph.as_default(), tf.device(None):
            # `Fill` is made block by block, too.
            zeros = tf.fill(list(self.shape), 0.0)
            self.variable = engine_backend().variable(zeros, name=name)
            # Options of a strategy name layers, whichever number TensorFlow adds to the variable.
            record = WeightRecord('tf.keras', name.split('/')[0], None, [])
            scope_of_graph(graph).records[self.variable] = record

    @property
    def id_dtype(self) -> DType:
        """The type of ids that are fed: `tf.int32` if that suffices."""
        return tf.int32 if self.shape[0] <= np.iinfo(np.int32).max else tf.int64

    @property
    def step(self) -> TrainStep:
        """The engine's `TrainStep` that has taken it last.

        Raises:
            ParallaxError: none has.
        """
        if self._step is None:
            raise ParallaxError('No training step has taken table %s.' % self.name)
        return self._step

    @property
    def engine_table(self) -> Any:
        """The engine's `Table`; raises as `step` does."""
        return self.step.tables[self.variable]

    @property
    def is_trained(self) -> bool:
        """Whether a training step has taken the table, so that the engine holds its values."""
        return self._step is not None

    @property
    def rows(self) -> Optional[ShardedRows]:
        """As `StoredRows.rows`."""
        return super().rows if self.is_trained else None

    def given_up(self, reason: str) -> None:
        """Takes note that a variable of Keras has the table from now on, and why, in words."""
        self._why_dense = reason

    @property
    def start(self) -> StartValues:
        """The values until a training step takes the table.

        Raises:
            ParallaxError: one has taken it.
        """
        if self._start is None:
            raise ParallaxError('The start values of table %s are not there.' % self.name)
        return self._start

    def pull(self, ids: np.ndarray) -> np.ndarray:
        """The rows of some ids: float32 of shape `[n, width]` for integers of shape `[n]`.

        Raises:
            IdOutOfRangeError, PlanError: as of `check`.
        """
        self.check(ids)
        if not self.is_trained:
            return self.start.at(ids)
        return self.joint_pull((self,)).pull([ids])[0]

    def check(self, ids: np.ndarray) -> None:
        """Checks that ids can be looked up, or their rows be updated.

        Raises:
            IdOutOfRangeError: an id has no row.
            PlanError: each worker holds the table by now.
        """
        if self._why_dense is not None:
            raise PlanError(
                'Table %s was sharded when a function that uses it was traced, and now each worker '
                'holds it, because %s. Compile the model again with a new optimizer, trace your '
                'own functions again, or keep the table from being sharded: '
                "ParallaxStrategy(overrides={%r: 'dense'})."
                % (self.name, self._why_dense, self.name.split('/')[0])
            )
        if not ids.size or (ids.min() >= 0 and ids.max() < self.shape[0]):
            return
        outside = np.unique(ids[(ids < 0) | (ids >= self.shape[0])])
        raise IdOutOfRangeError(
            'The layer of table %s has rows for ids from 0 to %d, but it looked up %s.'
            % (self.name, self.shape[0] - 1, ', '.join(map(str, outside[:_TOLD_IDS])))
        )

    def joint_pull(self, tables: Tuple['Table', ...]) -> JointPull:
        """The `JointPull` of some tables, of which this is the first."""
        if tables not in self._joint_pulls:
            self._joint_pulls[tables] = JointPull(tables)
        return self._joint_pulls[tables]

    def copy_to(self, target: Any) -> None:
        """Copies the table to an array or an HDF5 dataset, block by block."""
        if not self.is_trained:
            for first, last in row_blocks(self.shape[0], 4 * self.shape[1]):
                target[first:last] = self.start[first:last]
            return
        super().copy_to(target)

    def write(self, values: Any, share: Tuple[int, int] = (0, 1)) -> None:
        """Sets the whole table, block by block.

        Args:
            values: an array or an HDF5 dataset.
            share: as of `StoredRows.write`.

        Raises:
            ValueError: the values are not of its shape.
        """
        if not self.is_trained and tuple(values.shape) == self.shape:
            self.start.fill(values)
            return
        super().write(values, share)

    def make_moves(self) -> None:
        """Makes the operations by which the table is read and written, if there are none yet."""
        rows = rows_of(self.variable, self.shape)
        rows.make_reader()
        rows.make_writer()

    def start_from(self, draws: Optional[Sequence[Any]]) -> None:
        """Takes note of what rank 0 makes the start values of, `None` if it holds them."""
        self._all_make_start = draws is not None
        if draws is not None:
            self.start.take(draws)

    def taken_by(self, step: Any, lookup: Tuple[Tensor, Tensor]) -> None:
        """Takes note of a training step, and of its lookup: the ids that are fed, and the rows."""
        self._step, self.lookup = step, lookup

    def write_start(self) -> None:
        """Gives the start values to the training step that has taken the table first."""
        if self._start is None:
            return
        start, self._start = self.start, None
        job = self.step.job
        if self._all_make_start:
            self.write(start, share=(job.rank, job.size))
        elif job.rank == 0:
            self.write(start)


def rows_of(variable: Any, shape: Tuple[int, int]) -> ShardedRows:
    """The rows of a variable of the engine's, which may have shards.

    Args:
        variable: the variable.
        shape: its shape, as a tuple.
    """
    rows: Any = getattr(variable, 'sharded_rows', None)
    if rows is None:
        if not hasattr(variable, '_parallax_rows'):
            # Kept, because it adds operations to the graph.
            variable._parallax_rows = ShardedRows(variable.name, [variable], shape)
        rows = variable._parallax_rows
    found: ShardedRows = rows
    return found


def scope_of_graph(graph: Any) -> GraphScope:
    """The `GraphScope` of the engine's graph.

    Raises:
        ParallaxError: no strategy's scope was opened on it.
    """
    scope = scope_of(graph)
    if scope is None:
        raise ParallaxError('No scope of a strategy was opened on the graph of the engine.')
    return scope
