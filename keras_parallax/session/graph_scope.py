"""What a strategy keeps of a graph: its devices, its session, and the weights made in its scope."""

import contextlib
import itertools
import warnings
import weakref
from typing import Any, List, NamedTuple

from keras_parallax.compat import keras_api, session_config, tensorflow_api
from keras_parallax.compat.graph_queries import ancestors, descendants, reads
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError, ScopeError
from keras_parallax.job import devices
from keras_parallax.session import own_steps, resources, variable_changes
from keras_parallax.session.graph_lock import lock_of
from keras_parallax.session.session import ParallaxSession, adopt
from keras_parallax.session.state_updates import gated, leaves_of
from keras_parallax.tables import former_storage
from keras_parallax.tables.initial_values import COPY_BYTES
from keras_parallax.tables.rows import ShardedRows
from keras_parallax.tables.sharded_variable import ShardedVariable

#: Every rank attaches its graphs in the same order, so the numbers agree between ranks.
_numbers = itertools.count()


_open_scopes = []


class WeightRecord(NamedTuple):
    """What a layer said when it made a weight.

    Attributes:
        package: name of the layer's Keras package.
        layer_name: the layer's name.
        regularizer: the regularizer, or `None`, also if its penalty does not depend on the weight.
        penalties: the scalar tensors that the regularizer returned.
    """

    package: str
    layer_name: str
    regularizer: Any
    penalties: List[tf.Tensor]


class GraphScope:
    """A graph that a strategy has been entered on.

    Without servers its session is the one that Keras has already, if it has one. In a job with
    servers it is an ordinary one of this process, until there is something that may lie on a server
    or must outlive a session (`use_server`): a session that goes through a server costs threads and
    memory.

    From then on every operation of the graph that names no task belongs on this rank's own: a
    session with several tasks would put it on task 0, another machine. The pin stays on after the
    scope is left, because Keras goes on building the graph in `fit`.

    Attributes:
        graph, job: the graph and the `Job`.
        server: the `tf.train.Server` of this process, or `None`.
        servers: the `Servers` that hold shards, or `None`.
        lock: the `GraphLock` of the graph.
        session: the `ParallaxSession` that Keras uses for the graph.
        tables_by_name: dict from names of tables to `Table`s, of every model built on the graph.
        records: dict from variables to their `WeightRecord`s, of all weights that layers have made
            on the graph since the strategy was entered.
    """

    def __init__(self, graph, job, server, servers):
        self.graph, self.job = graph, job
        self.server, self.servers = server, servers
        self.session, self.lock = None, lock_of(graph)
        self.tables_by_name = {}
        self.records = {}
        self.changes = variable_changes.Changes(job)
        #: Models that are compiled in a scope and built later, to the strategy of that scope.
        self.unbuilt = weakref.WeakKeyDictionary()
        self._built, self._open, self._opened_at = [], None, None
        self._train_steps, self._gates = {}, {}
        # What is run instead of operations that were asked for, and the names of all of it.
        self._gated, self._waiting = {}, set()
        # What has been looked through for steps of the script's own, and at which graph version.
        self._runners, self._not_steps = {}, {}
        self._fetches, self._looked_through = {}, None
        self._on_server = False
        self._seen, self._seen_version = 0, None
        self._moved, self._lost = set(), {}
        with self.lock.held():
            self._adopt_sessions()

    def _adopt_sessions(self):
        """Makes the session that Keras has for the graph its own, or another with what it holds."""
        others = [session for session in keras_api.open_sessions(self.graph) if _may_adopt(session)]
        if self.server is None and others and self._follows(others[0]):
            self.session = adopt(others.pop(0), self)
        values, contents = {}, []
        for session in reversed(others):
            values.update(_initialized_values(session))
            contents.append(resources.Contents(session))
            self._moved.update(contents[-1].iterators)
        if self.server:
            # Whoever is inside a `with tf.device` when the session moves must come out unharmed.
            self._pinned = contextlib.ExitStack()
            self._pinned.enter_context(self.graph.device(self._device_of))
            # A server keeps variables for as long as it lives: without a container of its own, a
            # graph built after `clear_session` would find the old graph's values under its names.
            self._container = 'parallax.%d' % next(_numbers)
            self._pinned.enter_context(self.graph.container(self._container))
            for operation in self.graph.get_operations():
                tensorflow_api.keep_variable_in(operation, self._container)
        # What is built in one thread is not of a device, or after an operation, that another thread
        # has named for what it builds (`test_sessions.py`, the threads that read).
        self.graph.switch_to_thread_local()
        if self.session is None:
            self.open_session()
        self._load(values)
        self.see_new_operations()
        for content in contents:
            content.load(self.session, self.target)
            self._lost.update((iterator.name, iterator) for iterator in content.lost)

    def _follows(self, session):
        """Whether a session has the configuration that the strategy was given."""
        return not session_config.dropped(self.job.given_config, tensorflow_api.config_of(session))

    def _warn_of_dropped(self, sessions):
        for session in sessions:
            dropped = session_config.dropped(
                tensorflow_api.config_of(session) or tf.ConfigProto(), self.job.config
            )
            if dropped:
                warnings.warn(
                    "The session that Keras has goes on with the strategy's, which has another "
                    '%s; give the configuration to ParallaxStrategy(config=...), or set the '
                    'session before the strategy is made.' % ' and '.join(dropped),
                    stacklevel=4,
                )

    @property
    def cluster(self):
        """The `costs.Cluster` of the job's hosts."""
        dedicated = bool(self.servers and self.servers.addresses)
        return self.job.cluster._replace(dedicated_servers=dedicated)

    @property
    def target(self):
        """What a session of the graph connects to: nothing, or this process's server."""
        return self.server.target if self._on_server else ''

    def _device_of(self, operation):
        """The device of an operation of the graph, given the one that it names so far, if any."""
        if not self._on_server:
            return operation.device
        spec = tf.DeviceSpec.from_string(devices.worker_device(self.job.rank))
        spec.merge_from(tf.DeviceSpec.from_string(operation.device))
        return spec.to_string()

    @property
    def session_config(self):
        """The `tf.ConfigProto` of a session of the graph."""
        is_local = not self._on_server and self.job.size > 1
        return session_config.of_local(self.job.config) if is_local else self.job.config

    def open_session(self):
        """Opens a session that sees all changes of the graph, and gives it to Keras.

        On a server, what a session holds outlives it.
        """
        with self.lock.held():
            earlier, self.session = self.session, ParallaxSession(self)
            if earlier is not None:
                earlier.retire()
            self.hand_session_to_keras()

    def extend_session(self):
        """Makes what is new in the graph known to the session, with tables redirected in it.

        What a session knows must not change any more, and other threads may go on building.
        """
        with self.lock.held():
            while True:
                self.see_new_operations()
                self.redirect()
                with tensorflow_api.no_new_operations(self.graph):
                    if not self._has_formers or self._looked_through == self.graph.version:
                        self.session.extend()
                        return

    @property
    def _has_formers(self):
        return any(table.former for table in self.tables_by_name.values())

    @contextlib.contextmanager
    def session_in_use(self):
        """Gives the session, which knows the whole graph; while open, it is not closed."""
        with self.lock.held():
            self.extend_session()
            session = self.session
            session.uses.begin()
        try:
            yield session
        finally:
            session.uses.end()

    def see_new_operations(self):
        """Has what new operations stand for outlive a session; called before one knows them.

        An iterator that was made and initialized in a local session could not move to the server:
        so the session moves before it makes the first one.
        """
        if self.server is None or self._seen_version == self.graph.version:
            return
        with self.lock.held():
            version, new = self.graph.version, self.graph.get_operations()[self._seen :]
            self._seen += len(new)
            holders = resources.holders_among(new)
            makers = {holder: resources.keep(holder, self._container) for holder in holders}
            # Where an iterator is put whose place in the data is known, there must be none yet.
            makers = [
                maker
                for holder, maker in makers.items()
                if maker is not None and holder not in self._moved
            ]
            resources.redirect_readers(new)
            if holders:
                self.use_server()
            if makers:
                self.session.run(makers)
            self._seen_version = version

    def use_server(self):
        """From now on the graph runs through this process's server; variables keep their values."""
        with self.lock.held():
            if self._on_server:
                return
            with self.graph.as_default():
                values = _initialized_values(self.session)
            self._on_server = True
            for operation in self.graph.get_operations():
                tensorflow_api.set_device(operation, self._device_of(operation))
            self.open_session()
            self._load(values)

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
        if self.server and not self._on_server and any(looked_up):
            self.use_server()

    def _load(self, values):
        """Gives variables values in the session: large ones in blocks, for a message has 2 GB."""
        with self.graph.as_default():
            while values:
                variable, value = values.popitem()
                if value.nbytes <= COPY_BYTES:
                    variable.load(value, self.session)
                    continue
                with tf.device(variable.device):
                    empty = tensorflow_api.zeros(list(value.shape), variable.dtype.base_dtype)
                self.session.run(variable.assign(empty).op)
                ShardedRows(variable.name, [variable], value.shape).fill(value, self.session)

    def hand_session_to_keras(self):
        """Makes this scope's session that of `tf.keras`, and of `keras` if it is imported.

        A session that a user has set or entered since goes on with this scope's.
        """
        others = [
            session
            for session in keras_api.open_sessions(self.graph)
            if _may_adopt(session) and not isinstance(session, ParallaxSession)
        ]
        self._warn_of_dropped(others)
        for session in others:
            adopt(session, self)
        for package in keras_api.loaded_keras_packages():
            package.backend.set_session(self.session)

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

    @property
    def must_exchange(self):
        """Whether a model that is not of a strategy may not train on the graph.

        Each of several ranks would train it alone, and on servers there may be its tables.
        """
        return self.job.size > 1 or self.servers is not None

    def note_train_step(self, operation, step):
        """Notes an operation that a model's `TrainStep` runs every time, and nothing else does."""
        self._train_steps[operation] = step

    def note_gate(self, operation, step):
        """Notes the operation of a `TrainStep`, whose gradients other writes have to wait for."""
        self._gates[operation] = step

    @property
    def train_steps(self):
        """The `TrainStep`s of the graph, those of models compiled anew among them."""
        return list(self._train_steps.values())

    @property
    def is_synchronous(self):
        """Whether ranks that have made equally many steps have the same tables."""
        return all(step.sync for step in self._train_steps.values())

    def order_write(self, names, write, skip):
        """Writes what a script gives to sharded tables, as `WriteOrder` does.

        Where ranks train each at its own pace, writes have no order.
        """
        with self.changes.noted():
            if self.is_synchronous:
                self.job.write_order(names, write, skip)
            else:
                write()

    def steps_run_by(self, names):
        """The `TrainStep`s that running operations runs, a list.

        Args:
            names: the names of the operations.

        Raises:
            ParallaxError: an operation of the user's own writes to a table with each batch, or the
                operations are a training step of the user's own that exchanges nothing.
        """
        operations = [self.graph.get_operation_by_name(name) for name in names]
        steps = [
            step
            for first, step in self._train_steps.items()
            if any(operation in self._runners_of(first) for operation in operations)
        ]
        if steps:
            self.check_writes(names)
        elif self.job.size > 1:
            self._check_own_step(operations)
        return steps

    def _check_own_step(self, operations):
        """Refuses a step of a script's own in which each rank trains the weights alone."""
        key, version = tuple(operations), self.graph.version
        if self._not_steps.get(key) == version:
            return
        weights = {
            weight.op: weight.name.split(':')[0]
            for weight in self.records
            if not isinstance(weight, ShardedVariable)
        }
        trained = own_steps.trained_alone(operations, weights, self._writes_to_tables())
        if trained is not None:
            raise ScopeError(
                'A step of the script writes gradients of this rank to %s, and nothing exchanges '
                'them: each of the %d ranks would train its own weights. Let an optimizer do it '
                '(model.train_on_batch, or kp.ParallaxOptimizer(...).get_updates(loss, params)), '
                'or average the gradients with hvd.allreduce.' % (trained, self.job.size)
            )
        self._not_steps[key] = version

    def _runners_of(self, first):
        """The operations that run after an operation, itself among them: a set."""
        version, runners = self._runners.get(first, (None, None))
        if version != self.graph.version:
            # Nothing but what groups a step follows it, so these are few.
            runners = descendants(first)
            self._runners[first] = self.graph.version, runners
        return runners

    def lost_iterator(self, reader):
        """The iterator of before the scope that could not be moved, if an operation reads one.

        Args:
            reader: the name of the operation.

        Returns:
            The iterator's operation, or `None`.
        """
        if not self._lost:
            return None
        sources = [read.op.name for read in self.graph.get_operation_by_name(reader).inputs]
        return next((self._lost[name] for name in sources if name in self._lost), None)

    def redirect(self):
        """Has what is new in the graph use the shards of tables, before a session runs it.

        Returns:
            A dict from names of tensors to what a session is to fetch instead of them.
        """
        with self.lock.held():
            tables = [table for table in self.tables_by_name.values() if table.former]
            while tables and self._looked_through != self.graph.version:
                version = self.graph.version
                with self.graph.as_default():
                    former_storage.redirect([table for table in tables if table.is_sharded])
                    self._fetches = former_storage.fetches_of(tables)
                # Of what was built meanwhile, maybe by another thread, nothing is known.
                self._looked_through = version
            return self._fetches

    def gated(self, targets, fetches):
        """Has what layers and metrics write wait for what is fetched and for a step's gradients.

        Args:
            targets: names of the operations that are run.
            fetches: names of the tensors that are fetched.

        Returns:
            A list of names of operations to run instead.
        """
        if not targets or self._waiting.issuperset(targets):
            return list(targets)
        operations = list(map(self.graph.get_operation_by_name, targets))
        leaves = {leaf for run in operations for leaf in leaves_of(run, self._gates)}
        steps = {leaf: self._gates[leaf] for leaf in leaves if leaf in self._gates}
        tensors = list(map(self.graph.get_tensor_by_name, fetches))
        computed = [step.computed for step in steps.values()] + [tensor.op for tensor in tensors]
        if not computed:
            return list(targets)
        key = (*targets, *fetches, *(operation.name for operation in computed))
        with self.lock.held():
            if key not in self._gated:
                with self.graph.as_default():
                    self._gated[key] = [
                        gated(operation, tensors, list(steps), computed).name
                        for operation in operations
                    ]
                self._waiting.update(set(self._gated[key]) - set(targets))
        return self._gated[key]

    def check_writes(self, targets):
        """Checks that a training step writes to tables with its optimizer only.

        Args:
            targets: names of the operations that it runs.

        Raises:
            ParallaxError: an operation of the user's own writes to a table with each batch.
        """
        writes = self._writes_to_tables()
        run = ancestors(map(self.graph.get_operation_by_name, targets)) if writes else set()
        for operation in run & writes.keys():
            raise ParallaxError(
                'The training step runs %s, which writes to the sharded table %s while the '
                'optimizer updates it, in no order. Take it out of the updates of the layers, and '
                'run it between the steps, in a callback of every rank: '
                "K.function([], [], updates=[...])." % (operation.name, writes[operation])
            )

    def _writes_to_tables(self):
        """Dict from the user's operations that write to sharded tables to the tables' names."""
        return {
            operation: table.name
            for table in self.tables_by_name.values()
            if table.former
            for operation in table.former.written
        }

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


def _may_adopt(session):
    """Whether a session of a user's is one of TensorFlow's own, and not, say, a debugger's."""
    return isinstance(
        session, (tf.Session, tf.InteractiveSession)
    ) and not tensorflow_api.is_closed(session)


def _initialized_values(session):
    """The values of the variables of a session's graph that are initialized in it, a dict."""
    known = [
        variable
        for key in (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.LOCAL_VARIABLES)
        for variable in session.graph.get_collection(key)
    ]
    if not known:
        # TF 1.11 runs nothing at all in a graph without operations (`test_example.py`, ps).
        return {}
    present = session.run([tf.is_variable_initialized(variable) for variable in known])
    known = [variable for variable, there in zip(known, present) if there]
    return dict(zip(known, session.run(known)))


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
    found = scope_of(graph)
    if found.server is not server or found.servers != servers:
        raise ScopeError(
            "Strategies with other servers, or without (architecture='allreduce'), cannot share a "
            'graph; call keras.backend.clear_session() between them.'
        )
    return found


def require_graph():
    """Refuses eager execution, in which Keras builds no training step.

    Raises:
        ScopeError: TensorFlow executes eagerly.
    """
    if tf.executing_eagerly():
        raise ScopeError(
            'TensorFlow executes eagerly, so that Keras builds no training step whose gradients '
            'could be exchanged; leave tf.enable_eager_execution() out.'
        )


def compiled_outside():
    """The `ScopeError` about a model that is not of a strategy, where it must be."""
    return ScopeError(
        'model.compile() ran outside the scope of its ParallaxStrategy; build and compile the '
        'model inside `with strategy:`.'
    )
