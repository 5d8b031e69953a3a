"""The tables of Keras 3 models: the engine, in a TensorFlow graph of its own, fed with arrays."""

import collections
import functools
from typing import Any, Dict, List, Optional, Sequence, Tuple, cast

import numpy as np

from keras_parallax.compat.fed_optimizers import FedHyperparameters, FedRows
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_scope import GraphScope, WeightRecord, scope_of
from keras_parallax.engine.step.joint_pulls import joint_pulls
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.row_transfer import ShardedRows, row_blocks
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.keras_slots import weight_of
from keras_parallax.engine.updates.optimizers import RowsOfKeras3, RowsOfV2
from keras_parallax.errors import IdOutOfRangeError, ParallaxError, PlanError
from keras_parallax.framework_types import DType, Tensor
from keras_parallax.keras3.start_values import StartValues
from keras_parallax.keras3.stored_rows import StoredRows, engine_backend
from keras_parallax.optimizer import ParallaxOptimizer

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
    """

    def __init__(self, graph: Any, name: str, start: StartValues) -> None:
        super().__init__(graph, name, start.shape, lambda: rows_of(self.variable, self.shape))
        self._start: Optional[StartValues] = start
        self._step: Optional[TrainStep] = None
        #: From tables, of which this is the first, to their `JointPull`.
        self.joint_pulls: Dict[Tuple[Table, ...], JointPull] = {}
        self._why_dense: Optional[str] = None
        self._all_make_start = False
        with graph.as_default(), tf.device(None):
            # `Fill` is made block by block, too.
            zeros = tf.fill(list(self.shape), 0.0)
            self.variable = engine_backend().variable(zeros, name=name)
            # Options of a strategy name layers, whichever number TensorFlow adds to the variable.
            record = WeightRecord('tf.keras', name.split('/')[0], None, [])
            scope_of_graph(graph).records[self.variable] = record
            self._ids = tf.placeholder(self.id_dtype, [None])
            self._rows = tf.gather(self.variable, self._ids)

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
        with self._graph.as_default():
            rows: np.ndarray = self._pull([ids])[0]
        return rows

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

    @functools.cached_property
    def _pull(self) -> Any:
        return engine_backend().function([self._ids], [self._rows])

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

    def start_from(self, draws: Optional[Sequence[Any]]) -> None:
        """Takes note of what rank 0 makes the start values of, `None` if it holds them."""
        self._all_make_start = draws is not None
        if draws is not None:
            self.start.take(draws)

    def taken_by(self, step: Any) -> None:
        """Takes note of a training step, which is given the start values."""
        is_first, self._step = not self.is_trained, step
        if is_first:
            start, self._start = self.start, None
            if self._all_make_start:
                self.write(start, share=(step.job.rank, step.job.size))
            elif step.job.rank == 0:
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


class JointPull:
    """Pulls rows of several lookups at once.

    Args:
        tables: the `Table` of each lookup.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = list(tables)
        self._functions: Dict[Tuple[int, ...], Any] = {}
        self._operations: List[Any] = []

    def __call__(self, ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The rows of each lookup, float32 of shape `[n, width]`.

        Args:
            ids: those of each lookup, integers of shape `[n]`; the same array if they are the same.

        Raises:
            IdOutOfRangeError: there is no such row.
        """
        if not all(table.is_trained for table in self.tables):
            return [table.pull(of_one) for table, of_one in zip(self.tables, ids)]
        for table, of_one in zip(self.tables, ids):
            table.check(of_one)
        distinct = {id(of_one): of_one for of_one in ids}
        places = tuple(list(distinct).index(id(of_one)) for of_one in ids)
        graph = self.tables[0].variable.graph
        with graph.as_default():
            self._forget_moved()
            if places not in self._functions:
                self._functions[places] = self._built(places)
            rows: List[np.ndarray] = self._functions[places](list(distinct.values()))
        return rows

    def _forget_moved(self) -> None:
        """Forgets functions of shards that are there no more."""
        operations = [table.step.operations for table in self.tables]
        if any(now is not former for now, former in zip(operations, self._operations)):
            self._functions = {}
        self._operations = operations

    def _built(self, places: Tuple[int, ...]) -> Any:
        with tf.device(None):
            ids = [
                tf.placeholder(self.tables[places.index(place)].id_dtype, [None])
                for place in range(len(set(places)))
            ]
            outputs = []
            pulls: Dict[Any, List[Any]] = collections.OrderedDict()
            for table, place in zip(self.tables, places):
                outputs.append(tf.gather(table.variable, ids[place]))
                of_engine = table.engine_table
                if of_engine.shards:
                    pulls.setdefault(of_engine, []).append(of_engine.pulls[-1])
            joint = {one.replaced.name: one.replacement for one in joint_pulls(pulls)}
            of_outputs = {
                output.name: tf.gather(joint[pull.rows.name], pull.inverses[0])
                for of_table in pulls.values()
                for pull in of_table
                for output in pull.outputs
                if pull.rows.name in joint
            }
        rows = [of_outputs.get(output.name, output) for output in outputs]
        return engine_backend().function(ids, rows)


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
            self._operations: Any = None
            self._run: Any = None
            for table in tables:
                table.taken_by(self.step)

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
            of_engine, ids = table.engine_table, self._ids[number].name
            if of_engine.shards:
                pulled = next(
                    pull.rows for pull in of_engine.pulls if ids in [one.name for one in pull.ids]
                )
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


def scope_of_graph(graph: Any) -> GraphScope:
    """The `GraphScope` of the engine's graph.

    Raises:
        ParallaxError: no strategy's scope was opened on it.
    """
    scope = scope_of(graph)
    if scope is None:
        raise ParallaxError('No scope of a strategy was opened on the graph of the engine.')
    return scope
