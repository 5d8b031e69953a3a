"""What a strategy keeps of a graph: its sessions, and the weights and tables made in its scope."""

import contextlib
import weakref
from typing import Any, List, NamedTuple

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.graph_queries import reads
from keras_parallax.compat.stack import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ScopeError
from keras_parallax.session import variable_changes
from keras_parallax.session.graph_lock import lock_of
from keras_parallax.session.graph_sessions import GraphSessions
from keras_parallax.session.runs import Runs
from keras_parallax.session.written_rows import WrittenRows
from keras_parallax.tables.sharded_variable import ShardedVariable

_open_scopes = []


class WeightRecord(NamedTuple):
    """What a layer said when it made a weight.

    Attributes:
        package: name of the layer's Keras package.
        layer_name: the layer's name.
        given_regularizer: the regularizer, or `None`.
        penalties: the scalar tensors that the regularizer returned and that depend on the weight.
    """

    package: str
    layer_name: str
    given_regularizer: Any
    penalties: List[tf.Tensor]

    @property
    def regularizer(self):
        """The regularizer; `None` if its penalty does not depend on the weight, as of `l2(0.)`."""
        return self.given_regularizer if self.penalties else None


class GraphScope:
    """A graph that a strategy has been entered on.

    Attributes:
        graph, job: the graph and the `Job`.
        server: the `tf.train.Server` of this process, or `None`.
        servers: the `Servers` that hold shards, or `None`.
        lock: the `GraphLock` of the graph.
        runs: the `Runs` of its sessions.
        sessions: the `GraphSessions`.
        written_rows: the `WrittenRows` of its sessions.
        increments: dict from paths to what a checkpoint there is to be an increment of.
        tables_by_name: dict from names of tables to `Table`s, of every model built on the graph.
        records: dict from variables to their `WeightRecord`s, of all weights that layers have made
            on the graph since the strategy was entered.
    """

    def __init__(self, graph, job, server, servers):
        self.graph, self.job = graph, job
        self.server, self.servers = server, servers
        self.lock = lock_of(graph)
        self.tables_by_name = {}
        self.records, self.increments = {}, {}
        self.written_rows = WrittenRows(self)
        self.changes = variable_changes.Changes(job)
        #: Models that are compiled in a scope and built later, to the strategy of that scope.
        self.unbuilt = weakref.WeakKeyDictionary()
        #: Models, to the strategy in whose scope they were compiled.
        self.compiled = weakref.WeakKeyDictionary()
        self._built, self._open, self._opened_at = [], None, None
        self.runs, self.sessions = Runs(self), GraphSessions(self)
        with self.lock.held():
            self.sessions.begin()

    @property
    def session(self):
        """The `ParallaxSession` that Keras uses for the graph."""
        return self.sessions.session

    @property
    def cluster(self):
        """The `costs.Cluster` of the job's hosts."""
        dedicated = bool(self.servers and self.servers.addresses)
        return self.job.cluster._replace(dedicated_servers=dedicated)

    def expect_tables(self):
        """Uses the server if a weight of the scope is looked up by rows, and so may be sparse.

        Only the loss tells whether it is. But to move the session later costs a copy of what the
        variables hold by then.
        """
        looked_up = (
            weight.dtype.is_floating and reads(weight).lookups
            for weight in self._variables()
            if not isinstance(weight, ShardedVariable)
        )
        if self.server and not self.sessions.on_server and any(looked_up):
            self.sessions.use_server()

    @contextlib.contextmanager
    def opened_by(self, strategy):
        """While open, notes that what is built belongs to a strategy."""
        outer = self._open, self._opened_at
        self._open, self._opened_at = strategy, tensorflow_api.operation_id(tf.no_op())
        _open_scopes.append(self)
        try:
            yield
        finally:
            _open_scopes.remove(self)
            self._built.append((strategy, self._opened_at, tensorflow_api.operation_id(tf.no_op())))
            self._open, self._opened_at = outer

    @property
    def open_strategy(self):
        """The strategy whose scope is open on the graph, or `None`."""
        return self._open

    def strategy_of(self, tensor):
        """The strategy in whose scope a tensor was built, or `None`."""
        number = tensorflow_api.operation_id(tensor.op)
        for strategy, first, last in self._built:
            if first <= number <= last:
                return strategy
        return self._open if self._open is not None and number >= self._opened_at else None

    def note_loss(self, loss, strategy):
        """Notes that a loss belongs to a strategy, although it was built outside its scope.

        Keras 2.15 builds a loss anew in the first training call if a model has several outputs or
        sample weights (`tests/parallel/test_equality.py`, the case `two_outputs`).
        """
        number = tensorflow_api.operation_id(loss.op)
        self._built.append((strategy, number, number))

    @property
    def must_exchange(self):
        """Whether a model that is not of a strategy may not train on the graph.

        Each of several ranks would train it alone, and on servers there may be its tables.
        """
        return self.job.size > 1 or self.servers is not None

    @property
    def is_synchronous(self):
        """Whether ranks that have made equally many steps have the same tables."""
        return all(step.sync for step in self.runs.train_steps)

    def order_write(self, names, write, skip):
        """Writes what a script gives to sharded tables, as `WriteOrder` does.

        Where ranks train each at its own pace, writes have no order.
        """
        with self.changes.noted():
            if self.is_synchronous:
                self.job.write_order(names, write, skip)
            else:
                write()

    def weight_named(self, name):
        """The variable of a name without `:0`, sharded or not; `None` if there is none."""
        if name in self.tables_by_name:
            return self.tables_by_name[name].variable
        named = (variable for variable in self._variables() if variable.op.name == name)
        return next(named, None)

    def weight_read_by(self, name):
        """The variable that the lookup called `name` reads, or `None`."""
        for variable in self._variables():
            if isinstance(variable, ShardedVariable):
                continue  # Its lookups check their ids themselves.
            if any(lookup.name == name for lookup in reads(variable).lookups):
                return variable
        return None

    def _variables(self):
        """The weights made in the scope; not every layer makes its own with `add_weight`."""
        others = self.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
        return list(self.records) + [other for other in others if other not in self.records]


def scope_is_open():
    """Whether a strategy's scope is open on any graph."""
    return bool(_open_scopes)


def scope_of(graph):
    """The `GraphScope` of a graph, or `None`."""
    return getattr(graph, '_parallax_scope', None)


def attach(graph, job, server, servers):
    """The `GraphScope` of a graph, made if there is none yet.

    Args:
        graph: the graph.
        job: the `Job`.
        server: the `tf.train.Server` of this process, or `None`.
        servers: the `Servers` that hold shards, or `None`.

    Raises:
        ScopeError: a strategy of another kind has been entered on the graph.
    """
    if scope_of(graph) is None:
        graph._parallax_scope = GraphScope(graph, job, server, servers)
    scope = scope_of(graph)
    if scope.server is not server or scope.servers != servers:
        raise ScopeError(
            "Strategies with other servers, or without (architecture='allreduce'), cannot share a "
            'graph; call keras.backend.clear_session() between them.'
        )
    return scope


def require_graph():
    """Refuses eager execution, in which Keras builds no training step.

    Raises:
        ScopeError: TensorFlow executes eagerly.
    """
    if tf.executing_eagerly():
        raise ScopeError(
            'TensorFlow executes eagerly, so that Keras builds no training step whose gradients '
            'could be exchanged; %s' % generation.FOR_GRAPHS
        )


def compiled_outside():
    """The `ScopeError` about a model that is not of a strategy, where it must be."""
    return ScopeError(
        'model.compile() ran outside the scope of its ParallaxStrategy; build and compile the '
        'model inside `with strategy:`.'
    )
