"""A variable that is exchanged by rows or lives on servers, and the shards that hold its rows."""

import numpy as np

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.segment_sums import segment_sum
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.planning.classify import SPARSE
from keras_parallax.tables.exchanged import Exchanged, OwnedShard
from keras_parallax.tables.pull import Connection
from keras_parallax.tables.sharded_variable import ShardedVariable


def as_indices(rows):
    """Row numbers as TensorFlow's gathers and sums take them."""
    return rows if rows.dtype == tf.int64 else tf.cast(rows, tf.int32)


class Table(Exchanged):
    """A sparse variable, or a dense one on servers, and all that training needs to know of it.

    Attributes:
        variable: the Keras model's own variable.
        name, rows, row_shape, widths, dtype, stored_dtype, tables, planned_shards, servers: as
            `Exchanged` has them; the name is the variable's without `:0`, and a scalar has one row.
        by_row: whether it is sparse; if not, all of it is pulled, and its whole gradient pushed.
        regularizer: a callable, or `None`.
        constraint: a callable, or `None`.
        penalties: the scalar tensors that the regularizer returned when the layer was built.
        penalty_terms: the scalar tensors through which the regularizer enters the loss now.
        shards: the shard variables, in order; empty if every rank holds the whole table.
        pulls: the `Pull`s of its rows, in every model; if every rank holds a table that had shards,
            they have rows of the rank's own, and else there are none.
        plan: the `PlannedVariable`.
        rank, size: this process's rank, and the number of ranks.
        handle: with shards, a resource handle that stands for the table where TensorFlow asks for
            one: as what gradients are with respect to.
        former: with shards, the `former_storage.FormerStorage` of the variable.
    """

    def __init__(self, variable, plan, record=None, servers=None, rank=0, size=1):
        self.variable, self.plan, self.servers = variable, plan, servers
        self.rank, self.size = rank, size
        self.handle = self.former = None
        self.name, self.tables = plan.name, [self]
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

    def follow(self, planned):
        """Follows another `PlannedVariable`; its shards are yet to be made."""
        self.plan, self.shards = planned, []

    def gather(self, number, rows):
        """As `Exchanged.gather`."""
        return tf.gather(self.shards[number], as_indices(rows))

    def connections(self, pull, rows):
        """As `Exchanged.connections`."""
        return [Connection(pull.rows, rows)]

    def gradients(self, pull, gradients):
        """As `Exchanged.gradients`."""
        used = [
            (inverse, tf.reshape(gradients[output], [-1] + self.row_shape))
            for output, inverse in zip(pull.outputs, pull.inverses)
            if output in gradients
        ]
        inverses, values = [tf.concat(column, 0) for column in zip(*used)]
        return segment_sum(values, inverses, tf.size(pull.split.ids))

    def of_tables(self, part_gradient):
        """As `Exchanged.of_tables`."""
        return [part_gradient]

    def parts_of(self, rank):
        """As `Exchanged.parts_of`; without shards, each rank's is the whole table."""
        return super().parts_of(rank) if self.shards else [OwnedShard(self, self.variable, 0)]

    @property
    def planned_shards(self):
        """The `placement.Shard`s of the plan."""
        return self.plan.shards

    @property
    def stored_dtype(self):
        """As `Exchanged` has it."""
        return tf.as_dtype(self.plan.stored_dtype)

    @property
    def is_narrow(self):
        """Whether shards hold rows in fewer bits than the model has them."""
        return self.stored_dtype != self.dtype

    def shape_of(self, shard):
        """The shape of the variable that holds a `plan.Shard`, a list."""
        return [shard.rows] + self.row_shape if self.plan.shape else []

    @property
    def is_sharded(self):
        """Whether the variable is the front of shards."""
        return isinstance(self.variable, ShardedVariable)

    def linked(self, values, ids=None):
        """Values of the table, such that gradients flow from them to its `handle`.

        They are rows `[n] + row_shape` that were pulled, with their ids `[n]`, or the whole table.
        """
        data = [self.handle] + ([] if ids is None else [ids])
        return tensorflow_api.linked(values, data, _GRADIENT)

    def make_shards(self):
        """Makes the shard variables, each on its server.

        Every rank names them alike, so that all mean the same storage. They stay out of
        `tf.global_variables()`: Keras would initialize them, and Horovod broadcast them.
        """
        for number, shard in enumerate(self.plan.shards):
            name = '%s/shard_%d' % (self.name, number)
            shape = self.shape_of(shard)
            self.shards.append(make_storage(name, self.device_of(shard), shape, self.stored_dtype))
        if self.handle is None:
            with tf.name_scope(None):
                name = STORAGE + self.name + '/handle'
                self.handle = tensorflow_api.resource_handle(
                    name, list(self.plan.shape), self.dtype
                )


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


def make_storage(name, device, shape, dtype, kind=tensorflow_api.UsualVariable):
    """Makes a variable of zeros on a device, in no collection: a shard, or a slot of one.

    Every rank gives the same name. Storage that another rank has made must be of the same kind.
    """
    with tf.name_scope(None), tf.device(device):
        variable = kind(
            tensorflow_api.zeros(shape, dtype), trainable=False, collections=[], name=STORAGE + name
        )
    return keras_api.with_shape(variable, shape)


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

    If `fresh`, they are read only when what the caller has this wait for is done.
    """
    parts = [shard.read_value() if fresh else shard.value() for shard in table.shards]
    if len(parts) == 1:
        return tf.cast(tf.identity(parts[0]), table.dtype)
    whole = tf.dynamic_stitch(_rows_of_shards(table), parts)
    whole.set_shape([table.rows] + table.row_shape)
    return tf.cast(whole, table.dtype)
