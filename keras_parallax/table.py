"""A variable that is exchanged by rows or lives on servers, and the shards that hold its rows."""

from typing import Any, NamedTuple

import numpy as np

from keras_parallax import compat, graph
from keras_parallax.blocks import ShardedRows
from keras_parallax.classify import SPARSE
from keras_parallax.compat import ResourceVariable, tf


def as_indices(rows):
    """Row numbers as TensorFlow's gathers and sums take them."""
    return rows if rows.dtype == tf.int64 else tf.cast(rows, tf.int32)


class Part(NamedTuple):
    """What one rank updates of a table: its own shard, or the whole table.

    Attributes:
        table: the `Table`.
        variable: the variable that holds the rows.
        shard: number of the shard.
    """

    table: Any
    variable: tf.Variable
    shard: int


class Table:
    """A sparse variable, or a dense one on servers, and all that training needs to know of it.

    Attributes:
        variable: the Keras model's own variable.
        name: its name without `:0`.
        by_row: whether it is sparse; if not, all of it is pulled, and its whole gradient pushed.
        rows, row_shape: its length, and the shape of a row. A scalar has one row.
        widths: the width of a row, as `halves.compress` takes it.
        dtype: its dtype.
        regularizer: a callable, or `None`.
        constraint: a callable, or `None`.
        penalties: the scalar tensors that the regularizer returned when the layer was built.
        penalty_terms: the scalar tensors through which the regularizer enters the loss now.
        shards: the shard variables, in order; empty if every rank holds the whole table.
        pulls: the `Pull`s of its rows, in every model; empty without shards.
        plan: the `PlannedVariable`.
        servers: the `Servers` that hold shards, or `None`.
        rank, size: this process's rank, and the number of ranks.
        handle: with shards, a resource handle that stands for the table where TensorFlow asks for
            one: as what gradients are with respect to.
        former: with shards, the `former.FormerStorage` of the variable.
    """

    def __init__(self, variable, plan, record=None, servers=None, rank=0, size=1):
        self.variable, self.plan, self.servers = variable, plan, servers
        self.rank, self.size = rank, size
        self.handle = self.former = None
        self.name = plan.name
        self.by_row = plan.kind == SPARSE
        self.rows, self.row_shape = plan.rows, list(plan.shape[1:])
        self.widths = [int(np.prod(self.row_shape))]
        self.dtype = variable.dtype.base_dtype
        # The penalty of a variable that is read whole is part of the loss, as any other read.
        self.regularizer = record.regularizer if record and self.by_row else None
        self.penalties = list(record.penalties) if record and self.by_row else []
        self.constraint = getattr(variable, 'constraint', None)
        self.penalty_terms = self.penalties
        self.shards = []
        self.pulls = []

    def gathers(self):
        """The gathers that look the table up, in every model, as operations."""
        return graph.reads(self.variable).lookups

    def gather(self, number, rows):
        """Gathers rows `[n]` of the shard of a number, as they are numbered there."""
        return tf.gather(self.shards[number], as_indices(rows))

    def parts_of(self, rank):
        """The `Part`s that a rank updates."""
        if not self.shards:
            return [Part(self, self.variable, 0)]
        return [
            Part(self, self.shards[number], number)
            for number, shard in enumerate(self.plan.shards)
            if self.owner_of(shard) == rank
        ]

    def owner_of(self, shard):
        """The rank that owns a `plan.Shard`: it alone initializes it and its slots."""
        return self.servers.owners[shard.server]

    def device_of(self, shard):
        """The device on which a `plan.Shard` and its slots lie."""
        return self.servers.devices[shard.server]

    def shape_of(self, shard):
        """The shape of the variable that holds a `plan.Shard`, a list."""
        return [shard.rows] + self.row_shape if self.plan.shape else []

    @property
    def is_sharded(self):
        """Whether the variable is the front of shards."""
        return isinstance(self.variable, ShardedVariable)

    def linked(self, values, ids=None):
        """Values of the table, such that gradients flow from them to its `handle`.

        Args:
            values: rows `[n] + row_shape` that were pulled, or the whole table.
            ids: `[n]`, the numbers of the rows, or `None` for the whole table.

        Returns:
            The same values.
        """
        data = [self.handle] + ([] if ids is None else [ids])
        return compat.linked(values, data, _GRADIENT)

    def make_shards(self):
        """Makes the shard variables, each on its server.

        Every rank names them alike, so that all mean the same storage. They stay out of
        `tf.global_variables()`: Keras would initialize them, and Horovod broadcast them.
        """
        for number, shard in enumerate(self.plan.shards):
            name = '%s/shard_%d' % (self.name, number)
            storage = make_storage(name, self.device_of(shard), self.shape_of(shard), self.dtype)
            self.shards.append(storage)
        if self.handle is None:
            with tf.name_scope(None):
                name = STORAGE + self.name + '/handle'
                self.handle = compat.resource_handle(name, list(self.plan.shape), self.dtype)


_GRADIENT = 'ParallaxTable'


@tf.RegisterGradient(_GRADIENT)
def _gradient_of_table(operation, gradient, *_):
    """The gradient of what `Table.linked` returns, with respect to its inputs."""
    if len(operation.inputs) == 2:
        return gradient, gradient
    rows, ids = gradient, operation.inputs[2]
    if isinstance(gradient, tf.IndexedSlices):
        rows, ids = gradient.values, tf.gather(ids, gradient.indices)
    # As `ResourceGather` has it, for whoever wants the gradient as a tensor.
    shape = [size.size for size in operation.inputs[1].op.get_attr('shape').dim]
    return gradient, tf.IndexedSlices(rows, ids, tf.constant(shape, ids.dtype)), None


#: Starts the names of what lies on the servers.
STORAGE = 'parallax/'


def make_storage(name, device, shape, dtype, kind=tf.Variable):
    """Makes a variable of zeros on a device: a shard, or a slot of one.

    Args:
        name: the variable's name, the same on every rank.
        device: the device string.
        shape: the variable's shape, a list.
        dtype: the dtype.
        kind: class of the variable; storage that another rank has made must be of the same kind.

    Returns:
        A variable that is in no collection.
    """
    with tf.name_scope(None), tf.device(device):
        variable = kind(
            compat.zeros(shape, dtype), trainable=False, collections=[], name=STORAGE + name
        )
    # Keras reads the shape of a variable from here.
    variable._keras_shape = tuple(shape)
    return variable


class ShardedVariable(ResourceVariable):
    """A variable of a Keras model whose rows live in shards on servers.

    The model's own variable object becomes one when its table is sharded, so that every layer,
    callback and saver that holds the variable goes on working with it: `tf.gather` and
    `tf.nn.embedding_lookup` pull rows, and a read of the whole brings the shards together. All
    other operations on it are those of a `ResourceVariable`, built on `handle`: as `former` has it,
    they write to the shards, or are refused when they are run.

    It derives from `ResourceVariable` because TensorFlow 1.11's `embedding_lookup` asks only
    those for rows, and reads every other variable whole; the storage of the original variable is
    not used any more.
    """

    _cached_value = None
    _in_graph_mode = True

    @classmethod
    def adopt(cls, variable, table, pull):
        """Turns a variable into the front of a table's shards.

        Args:
            variable: a `tf.Variable` of either kind.
            table: the `Table`, with its shards and `FormerStorage` made.
            pull: function from an ids tensor to the rows of the table.
        """
        storage = compat.storage(variable)
        variable._parallax_class = type(variable)
        variable.__class__ = cls
        variable._keras_initialized = True
        cls._bind(variable, storage, table, pull)

    @classmethod
    def rebind(cls, table):
        """Makes the front of a table whose shards are others now that of the new ones.

        Args:
            table: the `Table`, with its new shards made.
        """
        storage, _, pull, _ = table.variable._parallax
        cls._bind(table.variable, storage, table, pull)

    @staticmethod
    def give_back(variable):
        """Makes the front of a table the ordinary variable again that it was."""
        variable.__class__ = variable._parallax_class
        for name in ('_parallax', '_parallax_class', '_assign_placeholder', '_assign_op'):
            variable.__dict__.pop(name, None)

    @staticmethod
    def _bind(variable, storage, table, pull):
        rows = None
        # Keras caches the operations of `set_value` here; those of old write to the old storage.
        for cached in ('_assign_placeholder', '_assign_op'):
            variable.__dict__.pop(cached, None)
        if table.plan.shape:
            rows = ShardedRows(storage.op.name + ':0', table.shards, table.plan.shape, table)
            variable._assign_placeholder = rows._assign_placeholder
            variable._assign_op = rows._assign_op
        variable._parallax = (storage, table, pull, rows)

    @property
    def table(self):
        """The `Table` whose front this variable is."""
        return self._parallax[1]

    @property
    def sharded_rows(self):
        """The `ShardedRows` of the table, by which it is read and set in blocks.

        Raises:
            AttributeError: it is a scalar.
        """
        if self._parallax[3] is None:
            raise AttributeError('A scalar has no rows.')
        return self._parallax[3]

    @property
    def op(self):
        """The operation of the variable's former storage, which has its name."""
        return self._parallax[0].op

    @property
    def handle(self):
        """What TensorFlow's operations on resource variables take; they then go to the shards."""
        return self.table.handle

    _handle = handle

    @property
    def name(self):
        """The variable's name, as ever."""
        return self.op.name + ':0'

    @property
    def graph(self):
        """The graph that it is in."""
        return self.op.graph

    @property
    def device(self):
        """The device of its former storage."""
        return self.op.device

    @property
    def dtype(self):
        """The dtype of the rows."""
        return self.table.dtype

    _dtype = dtype

    @property
    def shape(self):
        """The shape of the whole table."""
        return tf.TensorShape(self.table.plan.shape)

    _shape = shape

    @property
    def _graph_element(self):
        # What a `tf.train.Saver` takes for the variable, to tell its name and kind.
        return compat.read_of(self._parallax[0], self.dtype)

    def get_shape(self):
        """The shape of the whole table."""
        return self.shape

    @property
    def constraint(self):
        """The constraint that Keras gave the variable."""
        return self.table.constraint

    def value(self):
        """The whole table, brought together from its shards."""
        return self.table.former.whole

    initialized_value = value

    def _AsTensor(self):
        return self.value()

    def _as_graph_element(self):
        return self.value()

    def _dense_var_to_tensor(self, dtype=None, name=None, as_ref=False):
        del name, as_ref
        value = self.value()
        return value if dtype is None else tf.cast(value, dtype)

    def eval(self, session=None):
        """The whole table as an array, read block by block by a `ParallaxSession`."""
        return (session or tf.get_default_session()).run(self)

    def load(self, value, session=None):
        """Sets the whole table to an array, for the whole job."""
        session = session or tf.get_default_session()
        if self._parallax[3] is None:
            session.run(self.assign(value, read_value=False))
        else:
            session.run(self._assign_op, {self._assign_placeholder: value})

    def sparse_read(self, indices, name=None):
        """Pulls rows; `tf.gather` and `tf.nn.embedding_lookup` call it."""
        del name
        return self._parallax[2](indices)

    def _lazy_read(self, op):
        # What an assignment returns; the read waits for it, and gives what is on the shards then.
        with tf.control_dependencies([op]):
            return self._read_variable_op()

    def __repr__(self):
        return '<ShardedVariable %s shape=%s shards=%d>' % (
            self.name,
            self.shape,
            len(self.table.shards),
        )


def _rows_of_shards(table):
    shards = len(table.plan.shards)
    return [np.arange(number, table.rows, shards, dtype=np.int32) for number in range(shards)]


def split_rows(whole, table):
    """Splits a tensor of a table's shape into the rows of each shard, a list."""
    if len(table.plan.shards) == 1:
        return [whole]
    return [tf.gather(whole, rows) for rows in _rows_of_shards(table)]


def whole_of(table, fresh=False):
    """Builds a pull of a whole table: its shards, brought together.

    Args:
        table: the `Table`.
        fresh: whether the shards are read only when what the caller has this wait for is done.
    """
    parts = [shard.read_value() if fresh else shard.value() for shard in table.shards]
    if len(parts) == 1:
        return tf.identity(parts[0])
    whole = tf.dynamic_stitch(_rows_of_shards(table), parts)
    whole.set_shape([table.rows] + table.row_shape)
    return whole
