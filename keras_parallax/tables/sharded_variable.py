"""The front of a sharded table: the model's own variable, which goes on working as one."""

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import ResourceVariable, tf
from keras_parallax.tables.rows import ShardedRows


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
        storage = tensorflow_api.storage(variable)
        variable._parallax_class = type(variable)
        variable.__class__ = cls
        keras_api.mark_initialized(variable)
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
        keras_api.forget_assignment(variable)
        for name in ('_parallax', '_parallax_class'):
            variable.__dict__.pop(name, None)

    @staticmethod
    def _bind(variable, storage, table, pull):
        rows = None
        # What Keras has cached writes to the old storage.
        keras_api.forget_assignment(variable)
        if table.plan.shape:
            rows = ShardedRows(storage.op.name + ':0', table.shards, table.plan.shape, table)
            keras_api.assign_by(variable, rows.assignment)
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
        return tensorflow_api.read_of(self._parallax[0], self.dtype)

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
            assignment = self._parallax[3].assignment
            session.run(assignment, {assignment.placeholder: value})

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
