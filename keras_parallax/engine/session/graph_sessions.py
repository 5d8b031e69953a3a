# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The session of a graph: adopted from the script, opened anew, or moved to a server."""

import contextlib
import itertools
import socket
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set

from keras_parallax.compat import graph_queries, keras_api, session_config, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.session import session_contents
from keras_parallax.engine.session.session import ParallaxSession, adopt
from keras_parallax.engine.session.session_scope import SessionScope
from keras_parallax.engine.tables.initial_values import COPY_BYTES
from keras_parallax.engine.tables.row_transfer import ShardedRows
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Array, Config, Operation, Session, Variable

#: Every worker attaches its graphs in the same order, so the numbers agree between workers.
_numbers = itertools.count()


class GraphSessions:
    """The session of a scope's graph, which is another from time to time.

    Without servers it is the one that Keras has already, if it has one. In a job with servers it is
    an ordinary one of this process, until there is something that may lie on a server or must
    outlive a session (`use_server`): a session that goes through a server costs threads and memory.

    From then on every operation of the graph that names no task belongs on this worker's own: a
    session with several tasks would put it on task 0, another machine. The pin stays on after the
    scope is left, because Keras goes on building the graph in `fit`.

    Args:
        scope: the `GraphScope`.

    Attributes:
        session: the `ParallaxSession` that Keras uses for the graph.
        on_server: whether it goes through this process's server.
    """

    session: Session
    on_server: bool
    _last_seen: int
    _seen_version: Optional[int]
    _moved: Set[Operation]
    _lost: Dict[str, Operation]
    _read_from: List[Session]

    def __init__(self, scope: SessionScope) -> None:
        self._scope, self._graph, self._job = scope, scope.graph, scope.job
        self._server, self._lock = scope.server, scope.lock
        self.session, self.on_server = None, False
        #: How many operations sessions may know, the id of the last one, the graph's version then.
        self._seen, self._last_seen, self._seen_version = 0, 0, None
        self._moved, self._lost = set(), {}
        #: Sessions whose values are being read, before they are adopted.
        self._read_from = []

    def begin(self) -> None:
        """Makes the session that Keras has for the graph its own, or another with what it holds."""
        others = [
            session for session in keras_api.open_sessions(self._graph) if _may_adopt(session)
        ]
        if self._server is None and others and self._follows(others[0]):
            self.session = adopt(others.pop(0), self._scope)
        values: Dict[Variable, Array] = {}
        contents: List[session_contents.Contents] = []
        for session in reversed(others):
            values.update(_initialized_values(session))
            contents.append(session_contents.Contents(session))
            self._moved.update(contents[-1].iterators)
        if self._server:
            self._pin()
        tensorflow_api.allow_threads(self._graph)
        if self.session is None:
            self.open()
        _load(values, self.session)
        self.see_new_operations()
        for content in contents:
            content.load(self.session, self.target)
            self._lost.update((iterator.name, iterator) for iterator in content.lost)

    def _pin(self) -> None:
        """Puts operations of the graph on this worker once its session goes through a server."""
        # Whoever is inside a `with tf.device` when the session moves must come out unharmed.
        self._pinned = contextlib.ExitStack()
        self._pinned.enter_context(self._graph.device(self._device_of))
        # A server keeps variables for as long as it lives: without a container of its own, a
        # graph built after `clear_session` would find the old graph's values under its names.
        self._container = 'parallax.%d' % next(_numbers)
        self._pinned.enter_context(self._graph.container(self._container))
        for operation in self._graph.get_operations():
            tensorflow_api.keep_variable_in(operation, self._container)

    def _follows(self, session: Session) -> bool:
        """Whether a session has the configuration that the strategy was given."""
        config = tensorflow_api.config_of(session)
        dropped = session_config.dropped(self._job.given_config, config)
        return session_config.is_fit(config) and not dropped

    @property
    def target(self) -> str:
        """What a session of the graph connects to: nothing, or this process's server."""
        return self._server.target if self.on_server else ''

    def _device_of(self, operation: Operation) -> str:
        """The device of an operation of the graph, given the one that it names so far, if any."""
        if not self.on_server:
            return operation.device
        spec = tf.DeviceSpec.from_string(devices.worker_device(self._job.rank))
        spec.merge_from(tf.DeviceSpec.from_string(operation.device))
        return spec.to_string()

    @property
    def _config(self) -> Config:
        """The `tf.ConfigProto` of a session of the graph."""
        config = self._job.config
        if self.on_server:
            keeps_optimizer = bool(self._graph.get_collection(session_config.OPTIMIZED))
            if not keeps_optimizer:
                keeps_optimizer = graph_queries.has_loops(self._graph.get_operations())
            return session_config.of_server(config, keeps_optimizer)
        return session_config.of_local(config) if self._job.size > 1 else config

    def open(self) -> None:
        """Opens a session that sees all changes of the graph, and gives it to Keras.

        On a server, what a session holds outlives it.
        """
        with self._lock.held():
            earlier = self.session
            try:
                self.session = ParallaxSession(self._scope, self.target, self._config)
            except tf.errors.InvalidArgumentError as error:
                rank, host = self._job.rank, socket.gethostname()
                problem = devices.card_error(self._config, error, rank, host)
                if problem is None:
                    raise
                raise PlanError(problem) from error
            if earlier is not None:
                earlier.retire()
            self.hand_to_keras()

    def extend(self) -> None:
        """Makes what is new in the graph known to the session, with tables redirected in it.

        What a session knows must not change any more, and other threads may go on building.
        """
        runs = self._scope.runs
        with self._lock.held():
            while True:
                self.see_new_operations()
                runs.redirect()
                with tensorflow_api.no_new_operations(self._graph):
                    if runs.is_redirected:
                        self.session.extend()
                        return

    @contextlib.contextmanager
    def in_use(self) -> Iterator[Any]:
        """Gives the session, which knows the whole graph; while open, it is not closed."""
        with self._lock.held():
            self.extend()
            session = self.session
            session.uses.begin()
        try:
            yield session
        finally:
            session.uses.end()

    def see_new_operations(self) -> None:
        """Has what new operations stand for outlive a session; called before one knows them.

        An iterator that was made and initialized in a local session could not move to the server:
        so the session moves before it makes the first one.
        """
        if self._server is None or self._seen_version == self._graph.version:
            return
        with self._lock.held():
            version, new = self._graph.version, self._graph.get_operations()[self._seen :]
            self._seen += len(new)
            if new:
                self._last_seen = tensorflow_api.operation_id(new[-1])
            holders = session_contents.holders_among(new)
            made = {holder: session_contents.keep(holder, self._container) for holder in holders}
            # Where an iterator is put whose place in the data is known, there must be none yet.
            makers = [
                maker
                for holder, maker in made.items()
                if maker is not None and holder not in self._moved
            ]
            session_contents.redirect_readers(new)
            if holders:
                self.use_server()
            if makers:
                self.session.run(makers)
            self._seen_version = version

    def has_seen(self, operation: Operation) -> bool:
        """Whether a session may have run an operation; `False` only if none knows it yet."""
        return self._server is None or tensorflow_api.operation_id(operation) <= self._last_seen

    def use_server(self) -> None:
        """From now on the graph runs through this process's server; variables keep their values."""
        with self._lock.held():
            if self.on_server:
                return
            with self._graph.as_default():
                values = _initialized_values(self.session)
            self.on_server = True
            for operation in self._graph.get_operations():
                tensorflow_api.set_device(operation, self._device_of(operation))
            self.open()
            _load(values, self.session)

    def hand_to_keras(self) -> None:
        """Makes this scope's session that of `tf.keras`, and of `keras` if it is imported.

        A session that a user has set or entered since goes on with this scope's.
        """
        self._adopt(self._to_adopt())
        for package in keras_api.loaded_keras_packages():
            keras_api.set_session(package, self.session)

    def take_over(self, session: Session) -> None:
        """Adopts a session of the script's own before it runs, if Keras would train in it.

        The values of its variables are kept while the graph has no server. Once the graph has one,
        a local session cannot place its operations, so its values cannot be read: a script that
        needs them must enter the session, or give it to Keras, before the scope.

        Args:
            session: a session of the graph. It stays as it is unless it is the default session or
                one that Keras has.
        """
        if isinstance(session, ParallaxSession) or session in self._read_from:
            return
        with self._lock.held(), self._graph.as_default():
            if session not in self._to_adopt():
                return
            values: Dict[Variable, Array] = {}
            if not self.on_server:
                self._read_from.append(session)
                values = _initialized_values(session)
                self._read_from.remove(session)
            self._adopt([session])
            _load(values, self.session)

    def _to_adopt(self) -> List[Session]:
        """The open sessions of the script's own in which Keras would train, a list."""
        return [
            session
            for session in keras_api.open_sessions(self._graph)
            if _may_adopt(session) and not isinstance(session, ParallaxSession)
        ]

    def _adopt(self, sessions: Iterable[Session]) -> None:
        """Has sessions of the script's own go on with the scope's."""
        _warn_of_dropped(sessions, self._job.config)
        for session in sessions:
            adopt(session, self._scope)

    def lost_iterator(self, reader: str) -> Optional[Operation]:
        """The iterator of before the scope that could not be moved, if an operation reads one.

        Args:
            reader: the name of the operation.

        Returns:
            The iterator's operation, or `None`.
        """
        if not self._lost:
            return None
        sources = [read.op.name for read in self._graph.get_operation_by_name(reader).inputs]
        return next((self._lost[name] for name in sources if name in self._lost), None)


def _load(values: Dict[Variable, Array], session: Session) -> None:
    """Gives variables values in a session: large ones in blocks, for a message has 2 GB."""
    with session.graph.as_default():
        while values:
            variable, value = values.popitem()
            if value.nbytes <= COPY_BYTES:
                variable.load(value, session)
                continue
            with tf.device(variable.device):
                empty = tensorflow_api.zeros(list(value.shape), variable.dtype.base_dtype)
            session.run(variable.assign(empty).op)
            ShardedRows(variable.name, [variable], value.shape).fill(value, session)


def _warn_of_dropped(sessions: Iterable[Session], config: Config) -> None:
    for session in sessions:
        if tensorflow_api.has_usual_config(session):
            continue
        dropped = session_config.dropped(tensorflow_api.config_of(session), config)
        if dropped:
            warnings.warn(
                "The session that Keras has goes on with the strategy's, which has another "
                '%s; give the configuration to ParallaxStrategy(config=...), or set the '
                'session before the strategy is made.' % ' and '.join(dropped),
                stacklevel=4,
            )


def _may_adopt(session: Session) -> bool:
    """Whether a session of a user's is one of TensorFlow's own, and not, say, a debugger's."""
    return isinstance(
        session, (tf.Session, tf.InteractiveSession)
    ) and not tensorflow_api.is_closed(session)


def _initialized_values(session: Session) -> Dict[Variable, Array]:
    """The values of the variables of a session's graph that are initialized in it, a dict."""
    known = [
        variable
        for variable in keras_api.variables_in(session.graph)
        if not isinstance(variable, ShardedVariable)
    ]
    if not known:
        # TF 1.11 runs nothing at all in a graph without operations (`test_example.py`, ps).
        return {}
    present = session.run([tf.is_variable_initialized(variable) for variable in known])
    known = [variable for variable, there in zip(known, present) if there]
    return dict(zip(known, session.run(known)))
