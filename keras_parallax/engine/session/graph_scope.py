# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a strategy keeps of a graph: its sessions, and the weights and tables made in its scope."""

import contextlib
import functools
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import loaded_keras3, session_hooks, tensorflow_api
from keras_parallax.compat.graph_queries import reads
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.session import frozen_graphs, variable_changes
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.session.graph_sessions import GraphSessions
from keras_parallax.engine.session.scope_interface import StrategyInterface
from keras_parallax.engine.session.session_runs import SessionRuns
from keras_parallax.engine.session.table_initializers import TableInitializers
from keras_parallax.engine.session.written_rows import WrittenRows
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Graph, Server, Session, Tensor, Variable
from keras_parallax.planning.costs import Cluster

_open_scopes: List['GraphScope'] = []


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
    def regularizer(self) -> Optional[Any]:
        """The regularizer; `None` if its penalty does not depend on the weight, as of `l2(0.)`."""
        return self.given_regularizer if self.penalties else None


class GraphScope:
    """A graph that a strategy has been entered on.

    Attributes:
        graph, job: the graph and the `Job`.
        server: the `tf.train.Server` of this process, or `None`.
        servers: the `Servers` that hold shards, or `None`.
        lock: the `GraphLock` of the graph.
        runs: the `SessionRuns` of its sessions.
        sessions: the `GraphSessions`.
        written_rows: the `WrittenRows` of its sessions.
        table_initializers: the `TableInitializers` of its lookup tables.
        increments: dict from paths to what a checkpoint there is to be an increment of.
        kept_slots: what `kept_slots.kept_slots_of` keeps of the optimizers of the graph's steps.
        tables_by_name: dict from names of tables to `Table`s, of every model built on the graph.
        records: dict from variables to their `WeightRecord`s, of all weights that layers have made
            on the graph since the strategy was entered.
    """

    tables_by_name: Dict[str, Table]
    records: Dict[Variable, WeightRecord]
    increments: Dict[str, Any]
    kept_slots: Dict[int, Any]
    unbuilt: 'weakref.WeakKeyDictionary[Any, Any]'
    compiled: 'weakref.WeakKeyDictionary[Any, StrategyInterface]'
    _built: List[Tuple[StrategyInterface, int, int]]
    _opened_at: Optional[int]
    _open: Optional[StrategyInterface]

    def __init__(self, graph: Graph, job: Job, server: Server, servers: Optional[Servers]) -> None:
        self.graph, self.job = graph, job
        self.server, self.servers = server, servers
        self.lock = lock_of(graph)
        self.tables_by_name = {}
        self.records, self.increments, self.kept_slots = {}, {}, {}
        self.written_rows = WrittenRows(self)
        self.changes = variable_changes.Changes(job)
        self.table_initializers = TableInitializers(self)
        #: Models that are compiled in a scope and built later, to the strategy of that scope.
        self.unbuilt = weakref.WeakKeyDictionary()
        #: Models, to the strategy in whose scope they were compiled.
        self.compiled = weakref.WeakKeyDictionary()
        self._built, self._open, self._opened_at = [], None, None
        self.runs, self.sessions = SessionRuns(self), GraphSessions(self)
        with self.lock.held():
            self.sessions.begin()

    @property
    def session(self) -> Session:
        """The `ParallaxSession` that Keras uses for the graph."""
        return self.sessions.session

    @property
    def cluster(self) -> Cluster:
        """The `costs.Cluster` of the job's hosts."""
        dedicated = bool(self.servers and self.servers.addresses)
        return self.job.cluster._replace(dedicated_servers=dedicated)

    def expect_tables(self) -> None:
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
    def opened_by(self, strategy: StrategyInterface) -> Iterator[None]:
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
    def open_strategy(self) -> Optional[StrategyInterface]:
        """The strategy whose scope is open on the graph, or `None`."""
        return self._open

    def strategy_of(self, tensor: Tensor) -> Optional[StrategyInterface]:
        """The strategy in whose scope a tensor was built, or `None`."""
        number = tensorflow_api.operation_id(tensor.op)
        for strategy, first, last in self._built:
            if first <= number <= last:
                return strategy
        if self._open is None or self._opened_at is None or number < self._opened_at:
            return None
        return self._open

    def note_loss(self, loss: Tensor, strategy: StrategyInterface) -> None:
        """Notes that a loss belongs to a strategy, although it was built outside its scope.

        Keras 2.15 builds a loss anew in the first training call if a model has several outputs or
        sample weights (`tests/parallel/test_equality.py`, the case `two_outputs`).
        """
        number = tensorflow_api.operation_id(loss.op)
        self._built.append((strategy, number, number))

    @property
    def must_exchange(self) -> bool:
        """Whether a model that is not of a strategy may not train on the graph.

        Each of several workers would train it alone, and on servers there may be its tables.
        """
        return self.job.size > 1 or self.servers is not None

    @property
    def is_synchronous(self) -> bool:
        """Whether workers that have made equally many steps have the same tables."""
        return all(step.synchronization.sync for step in self.runs.train_steps)

    def order_write(
        self, names: Sequence[str], write: Callable[[], None], skip: Callable[[], None]
    ) -> None:
        """Writes what a script gives to sharded tables, as `WriteOrder` does.

        Where workers train each at its own pace, writes have no order.
        """
        with self.changes.noted():
            if self.is_synchronous:
                self.job.write_order(names, write, skip)
            else:
                write()

    def weight_named(self, name: str) -> Optional[Variable]:
        """The variable of a name without `:0`, sharded or not; `None` if there is none."""
        if name in self.tables_by_name:
            return self.tables_by_name[name].variable
        named = (variable for variable in self._variables() if variable.op.name == name)
        return next(named, None)

    def weight_read_by(self, name: str) -> Optional[Variable]:
        """The variable that the lookup called `name` reads, or `None`."""
        for variable in self._variables():
            if isinstance(variable, ShardedVariable):
                continue  # Its lookups check their ids themselves.
            if any(lookup.name == name for lookup in reads(variable).lookups):
                return variable
        return None

    def _variables(self) -> List[Variable]:
        """The weights made in the scope; not every layer makes its own with `add_weight`."""
        others = self.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
        return list(self.records) + [other for other in others if other not in self.records]


def adopt_when_run(session: Session) -> None:
    """Has a session of the script's own go on with that of its graph's scope, before it runs."""
    scope = scope_of(session.graph)
    if scope is not None:
        scope.sessions.take_over(session)


def scope_is_open() -> bool:
    """Whether a strategy's scope is open on any graph."""
    return bool(_open_scopes)


def scope_of(graph: Graph) -> Optional[GraphScope]:
    """The `GraphScope` of a graph, or `None`."""
    return getattr(graph, '_parallax_scope', None)


def attach(graph: Graph, job: Job, server: Server, servers: Optional[Servers]) -> GraphScope:
    """The `GraphScope` of a graph, made if there is none yet.

    Args:
        graph: the graph.
        job: the `Job`.
        server: the `tf.train.Server` of this process, or `None`.
        servers: the `Servers` that hold shards, or `None`.

    Raises:
        ScopeError: a strategy of another kind has been entered on the graph.
    """
    session_hooks.notice_runs(adopt_when_run)
    session_hooks.freeze_graphs_by(functools.partial(frozen_graphs.freezing, scope_of))
    scope = scope_of(graph)
    if scope is None:
        scope = graph._parallax_scope = GraphScope(graph, job, server, servers)
    if scope.server is not server or scope.servers != servers:
        raise ScopeError(
            "Strategies with other servers, or without (architecture='allreduce'), cannot share a "
            'graph; call keras.backend.clear_session() between them.'
        )
    return scope


def require_graph() -> None:
    """Refuses eager execution, in which Keras builds no training step.

    Raises:
        ScopeError: TensorFlow executes eagerly.
    """
    if tf.executing_eagerly():
        raise ScopeError(
            'TensorFlow executes eagerly, so that Keras builds no training step whose gradients '
            'could be exchanged; %s%s' % (generation.FOR_GRAPHS, loaded_keras3.hint())
        )


def compiled_outside() -> ScopeError:
    """The `ScopeError` about a model that is not of a strategy, where it must be."""
    return ScopeError(
        'model.compile() ran outside the scope of its ParallaxStrategy; build and compile the '
        'model inside `with strategy:`.'
    )
