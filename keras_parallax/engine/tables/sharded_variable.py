# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The front of a sharded table: the model's own variable, which goes on working as one."""

from typing import Any, Callable, NamedTuple, Optional

from keras_parallax.compat import keras_api, patches, tensorflow_api
from keras_parallax.compat.tensorflow_api import ResourceVariable, tf
from keras_parallax.engine.tables.row_transfer import ShardedRows
from keras_parallax.framework_types import (
    Array,
    DType,
    Graph,
    Operation,
    Session,
    Shape,
    Tensor,
    Variable,
)


class _Binding(NamedTuple):
    """What a `ShardedVariable` has of ours.

    Attributes:
        storage: the tensor of its former storage.
        table: the `Table`.
        pull: function from an ids tensor to rows.
        rows: the `ShardedRows`, or `None` of a scalar.
        former: the class that it had.
    """

    storage: tf.Tensor
    table: Any
    pull: Callable[[tf.Tensor], tf.Tensor]
    rows: Optional[ShardedRows]
    former: type


class ShardedVariable(ResourceVariable):
    """A variable of a Keras model whose rows live in shards on servers.

    The model's own variable object becomes one when its table is sharded, so that every layer,
    callback and saver that holds the variable goes on working with it: `tf.gather` and
    `tf.nn.embedding_lookup` pull rows, and a read of the whole brings the shards together. All
    other operations on it are those of a `ResourceVariable`, built on `handle`: as `former` has it,
    they write to the shards, or are refused when they are run.

    It derives from `ResourceVariable` because TensorFlow 1.11's `embedding_lookup` asks only
    those for rows, and reads every other variable whole; the storage of the original variable is
    not used any more. It has more methods than other classes of ours because TensorFlow and Keras
    may ask a variable for each of them.
    """

    _cached_value = None
    _in_graph_mode = True

    @classmethod
    def adopt(cls, variable: Variable, table: Any, pull: Callable[[Tensor], Tensor]) -> None:
        """Turns a variable of either kind into the front of a table's shards.

        The `Table` has its shards and `FormerStorage` made; `pull` makes rows of the table of a
        tensor of ids.
        """
        storage = tensorflow_api.storage(variable)
        former = type(variable)
        patches.change_class('tf.Variable', variable, cls)
        keras_api.mark_initialized(variable)
        _bind(variable, storage, table, pull, former)

    @staticmethod
    def rebind(table: Any) -> None:
        """Makes the front of a table whose shards are others now that of the new ones."""
        bound = table.variable._parallax
        _bind(table.variable, bound.storage, table, bound.pull, bound.former)

    @staticmethod
    def give_back(variable: Variable) -> None:
        """Makes the front of a table the ordinary variable again that it was."""
        patches.change_class('tf.Variable', variable, variable._parallax.former)
        del variable._parallax
        keras_api.forget_assignment(variable)

    @property
    def table(self) -> Any:
        """The `Table` whose front this variable is."""
        return self._parallax.table

    @property
    def sharded_rows(self) -> ShardedRows:
        """The `ShardedRows` of the table, by which it is read and set in blocks.

        Raises:
            AttributeError: it is a scalar.
        """
        if self._parallax.rows is None:
            raise AttributeError('A scalar has no rows.')
        return self._parallax.rows

    @property
    def op(self) -> Operation:
        """The operation of the variable's former storage, which has its name."""
        return self._parallax.storage.op

    @property
    def handle(self) -> Tensor:
        """What TensorFlow's operations on resource variables take; they then go to the shards."""
        return self.table.handle

    _handle = handle

    @property
    def name(self) -> str:
        """The variable's name, as ever."""
        return self.op.name + ':0'

    @property
    def graph(self) -> Graph:
        """The graph that it is in."""
        return self.op.graph

    @property
    def device(self) -> str:
        """The device of its former storage."""
        return self.op.device

    @property
    def dtype(self) -> DType:
        """The dtype of the rows."""
        return self.table.dtype

    _dtype = dtype

    @property
    def shape(self) -> Shape:
        """The shape of the whole table."""
        return tf.TensorShape(self.table.plan.shape)

    _shape = shape

    @property
    def _graph_element(self) -> Tensor:
        # What a `tf.train.Saver` takes for the variable, to tell its name and kind.
        return tensorflow_api.read_of(self._parallax.storage, self.dtype)

    def get_shape(self) -> Shape:
        """The shape of the whole table."""
        return self.shape

    @property
    def constraint(self) -> Any:
        """The constraint that Keras gave the variable."""
        return self.table.constraint

    def value(self) -> Tensor:
        """The whole table, brought together from its shards."""
        return self.table.former.whole

    initialized_value = value

    def _AsTensor(self) -> Tensor:
        return self.value()

    def _as_graph_element(self) -> Tensor:
        return self.value()

    def _dense_var_to_tensor(
        self, dtype: Optional[DType] = None, name: Optional[str] = None, as_ref: bool = False
    ) -> Tensor:
        del name, as_ref
        value = self.value()
        return value if dtype is None else tf.cast(value, dtype)

    def eval(self, session: Optional[Session] = None) -> Array:
        """The whole table as an array, read block by block by a `ParallaxSession`."""
        return (session or tf.get_default_session()).run(self)

    def load(self, value: Array, session: Optional[Session] = None) -> None:
        """Sets the whole table to an array, for the whole job."""
        session = session or tf.get_default_session()
        if self._parallax.rows is None:
            session.run(self.assign(value, read_value=False))
        else:
            assignment = self._parallax.rows.assignment
            session.run(assignment, {assignment.placeholder: value})

    def sparse_read(self, indices: Tensor, name: Optional[str] = None) -> Tensor:
        """Pulls rows; `tf.gather` and `tf.nn.embedding_lookup` call it."""
        del name
        return self._parallax.pull(indices)

    def _lazy_read(self, op: Operation) -> Tensor:
        # What an assignment returns; the read waits for it, and gives what is on the shards then.
        with tf.control_dependencies([op]):
            return self._read_variable_op()

    def __repr__(self) -> str:
        return '<ShardedVariable %s shape=%s shards=%d>' % (
            self.name,
            self.shape,
            len(self.table.shards),
        )


def _bind(
    variable: Variable, storage: Tensor, table: Any, pull: Callable[[Tensor], Tensor], former: type
) -> None:
    rows = None
    # What Keras has cached writes to the old storage.
    keras_api.forget_assignment(variable)
    if table.plan.shape:
        name = storage.op.name + ':0'
        rows = ShardedRows(name, table.shards, table.plan.shape, table, table.dtype)
        keras_api.assign_by(variable, rows.assignment)
    variable._parallax = _Binding(storage, table, pull, rows, former)
