# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A session whose inner methods, which TensorFlow 1.6 calls, have names to override.

TensorFlow 1.6 runs operations by their names, and knows no functions with edges of their own. So
what has some runs in another session at the same server, which was told the graph with these edges
in it. Variables, queues and iterators have names there, and are the same. Proven by
`tests/parallel/test_equality.py`, whose tables have shards.
"""

import contextlib
import copy
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Sequence,
    Tuple,
)

from keras_parallax.compat import asking_session
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Graph, Operation, Session

# isort: split
from tensorflow.python.framework import errors as _errors

_c_api = generation.c_api


class Call(NamedTuple):
    """What a session resolves a run to.

    Attributes:
        options: a buffer that holds `RunOptions`, or `None`.
        feeds: a dict from names of tensors to values.
        fetch_names: the names of the tensors that are fetched.
        target_names: the names of the operations that are run for nothing but their effect.
        metadata: a buffer for `RunMetadata`, or `None`.
    """

    options: Any
    feeds: Dict[str, Any]
    fetch_names: List[str]
    target_names: List[str]
    metadata: Any

    @property
    def operation_names(self) -> List[str]:
        """The names of all operations that are asked for."""
        return [name.split(':')[0] for name in self.fetch_names] + self.target_names

    def with_targets(self, graph: Graph, names: Iterable[str]) -> 'Call':
        """The call that runs other operations of a graph, given their names."""
        del graph
        return self._replace(target_names=list(names))

    @property
    def ordered_feeds(self) -> List[str]:
        """The names of what is fed, in the order in which a callable takes their values."""
        return sorted(self.feeds)

    def callable_options(self) -> 'CallableOptions':
        """The `CallableOptions` that do the same."""
        options = CallableOptions(self.ordered_feeds, self.fetch_names, self.target_names)
        if self.options is not None:
            options.run_options.ParseFromString(_c_api.TF_GetBuffer(self.options))
        return options


class Edge(NamedTuple):
    """An edge that only a function has, from a tensor to those that read another one."""

    from_tensor: str
    to_tensor: str


class CallableOptions:
    """What a function of a session does: TensorFlow 1.11's message of that name.

    Attributes:
        feed, fetch, target: lists of names.
        tensor_connection: a list of `Edge`s.
        run_options: `tf.RunOptions`.
    """

    def __init__(
        self, feed: Iterable[str] = (), fetch: Iterable[str] = (), target: Iterable[str] = ()
    ) -> None:
        self.feed, self.fetch, self.target = list(feed), list(fetch), list(target)
        self.tensor_connection: List[Edge] = []
        self.run_options = tf.RunOptions()


class HookedSession(asking_session.AskingSession):
    """A `tf.Session` that asks itself before it does what it is asked; its subclass overrides this.

    TF 1.6 calls the methods that begin with an underscore; proven by
    `tests/unit/compat/test_session_hooks.py`. Keras 2.2.4 calls `run`: a session there has no
    `_make_callable_from_options`.
    """

    #: Dict from sets of `Edge`s to the sessions that know them.
    connected: Dict[Any, tf.Session] = {}

    def extend(self) -> None:
        """Makes what is new in the graph known to this session, and to those with more edges."""
        super()._extend_graph()
        for session in list(self.connected.values()):
            session._extend_graph()

    def connected_by(self, edges: FrozenSet[Edge]) -> Any:
        """The session that knows this one's graph with further edges, a set of `Edge`s."""
        if not edges:
            return self
        if edges not in self.connected:
            session = _ConnectedSession(edges, self._target, self.graph, self._config)
            self.connected = {**self.connected, edges: session}
        self.connected[edges]._extend_graph()
        return self.connected[edges]

    def run_here(self, call: Call) -> Any:
        """Runs a `Call` in this session, as TensorFlow does."""
        return _run(self, call)

    def run_part_here(self, handle: Any, call: Call) -> Any:
        """Runs a `Call` of `partial_run` in this session, as TensorFlow does."""
        with _errors.raise_exception_on_not_ok_status() as status:
            return _c_api.TF_PRun(
                self._session, handle, _of_bytes(call.feeds), _bytes(call.fetch_names), status
            )

    def run_known(self, operation: Operation) -> None:
        """Runs an operation that this session knows, whatever another thread does to the graph."""
        self.run_here(Call(None, {}, [], [operation.name], None))

    def close(self) -> None:
        """Closes the session, and those with more edges."""
        for session in self.connected.values():
            session.close()
        super().close()

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Makes a callable as `tf.Session.make_callable` does, which calls `run`.

        The one of TF 1.6 runs its operations past all methods of the session.
        """
        feeds = list(feed_list or [])

        def call(*values: Any, **options: Any) -> Any:
            if len(values) != len(feeds) or (options and not accept_options):
                raise TypeError('The callable takes %d values to feed.' % len(feeds))
            return self.run(fetches, dict(zip(feeds, values)), **options)

        return call

    def _extend_graph(self) -> None:
        self.before_run()

    def _do_run(
        self,
        handle: Any,
        target_list: List[Any],
        fetch_list: List[Any],
        feed_dict: Dict[Any, Any],
        options: Any,
        run_metadata: Any,
    ) -> Any:
        feeds = {tensor.name: value for tensor, value in feed_dict.items()}
        fetches = [tensor.name for tensor in fetch_list]
        targets = [operation.name for operation in target_list]
        with self.running(fetch_list + target_list):
            if handle is None:
                call = Call(options, feeds, fetches, targets, run_metadata)
                return self._do_call(self._extend_and_run, call)
            if targets:
                raise RuntimeError('partial_run() requires empty target_list.')
            return self._do_call(self.run_part, handle, Call(None, feeds, fetches, [], None))

    def _extend_and_run(self, call: Call) -> Any:
        self._extend_graph()
        return self.run_call(call)


class _ConnectedSession(tf.Session):
    """A session that is told a graph with further edges.

    Args:
        edges: a set of `Edge`s.
        target, graph, config: as of `tf.Session`.
    """

    _current_version: int

    def __init__(self, edges: FrozenSet[Edge], target: str, graph: Graph, config: Any) -> None:
        super().__init__(target, graph, config)
        self._from = {edge.to_tensor: edge.from_tensor for edge in edges}

    def _extend_graph(self) -> None:
        # As TensorFlow's, but for the edges.
        with self._extend_lock:
            if self._graph.version <= self._current_version:
                return
            definition, version = self._graph._as_graph_def(
                self._current_version, add_shapes=self._add_shapes
            )
            for node in definition.node:
                for place, name in enumerate(node.input):
                    # A number of an output is left out if it is 0; `^` is what is waited for.
                    full = name if ':' in name or name.startswith('^') else name + ':0'
                    if full in self._from:
                        node.input[place] = self._from[full]
            with _errors.raise_exception_on_not_ok_status() as status:
                _c_api.TF_ExtendGraph(self._session, definition.SerializeToString(), status)
            self._current_version, self._opened = version, True


def make_callable(session: Session, options: CallableOptions) -> Callable[..., Any]:
    """The function that does what `CallableOptions` say, in a session that knows all of it."""
    edges = frozenset(options.tensor_connection)
    replacements = {edge.to_tensor: edge.from_tensor for edge in edges}
    runner = session.connected_by(edges)
    fetches = [replacements.get(name, name) for name in options.fetch]

    def call(*values: Any, run_metadata: Any = None) -> Any:
        feeds = dict(zip(options.feed, values))
        with _buffers(options.run_options, run_metadata) as (given, metadata):
            return _run(runner, Call(given, feeds, fetches, options.target, metadata))

    return call


def options_of(operation: Operation) -> CallableOptions:
    """The `CallableOptions` that run an operation."""
    return CallableOptions(target=[operation.name])


def connected_options(options: CallableOptions, connections: Sequence[Any]) -> CallableOptions:
    """`CallableOptions` with further edges.

    Args:
        options: the `CallableOptions`, which stay as they are.
        connections: a list of `pull.Connection`s.
    """
    connected = copy.deepcopy(options)
    connected.tensor_connection.extend(
        Edge(connection.replacement.name, connection.replaced.name) for connection in connections
    )
    return connected


def key_of(options: CallableOptions) -> Tuple[Any, ...]:
    """What two `CallableOptions` have in common that say the same."""
    lists = options.feed, options.fetch, options.target, options.tensor_connection
    return tuple(tuple(one) for one in lists) + (options.run_options.SerializeToString(),)


def _run(session: Any, call: Call) -> Any:
    """Runs a `Call` in a session that knows all of it, past its methods."""
    with _errors.raise_exception_on_not_ok_status() as status:
        return _c_api.TF_Run(
            session._session,
            call.options,
            _of_bytes(call.feeds),
            _bytes(call.fetch_names),
            _bytes(call.target_names),
            status,
            call.metadata,
        )


def _bytes(names: Iterable[str]) -> List[bytes]:
    return [name.encode() for name in names]


def _of_bytes(feeds: Mapping[str, Any]) -> Dict[bytes, Any]:
    return {name.encode(): value for name, value in feeds.items()}


@contextlib.contextmanager
def _buffers(run_options: Any, run_metadata: Any) -> Iterator[Tuple[Any, Any]]:
    """Buffers for `RunOptions`, and for `RunMetadata`, which are filled at the end, or `None`s."""
    given = run_options.SerializeToString()
    options = _c_api.TF_NewBufferFromString(given) if given else None
    metadata = None if run_metadata is None else _c_api.TF_NewBuffer()
    try:
        yield options, metadata
        if metadata is not None:
            run_metadata.ParseFromString(_c_api.TF_GetBuffer(metadata))
    finally:
        for buffer in (options, metadata):
            if buffer is not None:
                _c_api.TF_DeleteBuffer(buffer)
