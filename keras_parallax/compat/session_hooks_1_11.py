# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A session whose inner methods, which TensorFlow 1.11 and Keras call, have names to override.

`session_hooks` chooses it from TensorFlow 1.11 on.
"""

import contextlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence

from keras_parallax.compat import asking_session
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Graph, Operation, Session

# isort: split
from tensorflow.core.protobuf import config_pb2 as _config_pb2

_c_api = generation.c_api


class Call(NamedTuple):
    """What a session resolves a run to: handles of TensorFlow's C library.

    Attributes:
        options: a buffer that holds `RunOptions`, or `None`.
        feeds: a dict from `TF_Output`s to values.
        fetches: a list of `TF_Output`s.
        targets: a list of `TF_Operation`s.
        metadata: a buffer for `RunMetadata`, or `None`.
    """

    options: Any
    feeds: Dict[Any, Any]
    fetches: List[Any]
    targets: List[Any]
    metadata: Any

    @property
    def fetch_names(self) -> List[str]:
        """The names of the tensors that are fetched."""
        return list(map(_name_of_output, self.fetches))

    @property
    def target_names(self) -> List[str]:
        """The names of the operations that are run for nothing but their effect."""
        return list(map(_c_api.TF_OperationName, self.targets))

    @property
    def operation_names(self) -> List[str]:
        """The names of all operations that are asked for."""
        fetched = [_c_api.TF_OperationName(output.oper) for output in self.fetches]
        return fetched + self.target_names

    def with_targets(self, graph: Graph, names: Iterable[str]) -> 'Call':
        """The call that runs other operations of a graph, given their names."""
        handles = [graph.get_operation_by_name(name)._c_op for name in names]
        return self._replace(targets=handles)

    @property
    def ordered_feeds(self) -> List[Any]:
        """The handles of what is fed, in the order in which a callable takes their values."""
        return sorted(self.feeds, key=_name_of_output)

    def callable_options(self) -> Any:
        """The `CallableOptions` that do the same."""
        options = _config_pb2.CallableOptions(
            feed=map(_name_of_output, self.ordered_feeds),
            fetch=self.fetch_names,
            target=self.target_names,
        )
        if self.options is not None:
            options.run_options.ParseFromString(_c_api.TF_GetBuffer(self.options))
        return options


def _name_of_output(output: Any) -> str:
    return '%s:%d' % (_c_api.TF_OperationName(output.oper), output.index)


class HookedSession(asking_session.AskingSession):
    """A `tf.Session` that asks itself before it does what it is asked; its subclass overrides this.

    TF 1.11 and Keras 2.2.4 call the methods that begin with an underscore; proven by
    `tests/parallel/test_sessions.py`.
    """

    def extend(self) -> None:
        """Makes what is new in the graph known to this session."""
        super()._extend_graph()

    def run_here(self, call: Call) -> Any:
        """Runs a `Call` in this session, as TensorFlow does."""
        return super()._call_tf_sessionrun(*call)

    def run_part_here(self, handle: Any, call: Call) -> Any:
        """Runs a `Call` of `partial_run` in this session, as TensorFlow does."""
        return super()._call_tf_sessionprun(handle, call.feeds, call.fetches)

    def run_known(self, operation: Operation) -> None:
        """Runs an operation that this session knows, whatever another thread does to the graph."""
        self.run_here(Call(None, {}, [], [operation._c_op], None))

    def _do_run(
        self, handle: Any, target_list: List[Any], fetch_list: List[Any], *arguments: Any
    ) -> Any:
        with self.running(fetch_list + target_list):
            return super()._do_run(handle, target_list, fetch_list, *arguments)

    def _extend_graph(self) -> None:
        self.before_run()

    def _call_tf_sessionrun(self, *arguments: Any) -> Any:
        return self.run_call(Call(*arguments))

    def _call_tf_sessionprun(
        self, handle: Any, feed_dict: Dict[Any, Any], fetch_list: List[Any]
    ) -> Any:
        return self.run_part(handle, Call(None, feed_dict, fetch_list, [], None))

    def _make_callable_from_options(self, callable_options: Any) -> Callable[..., Any]:
        return self.make_function(callable_options)


class _Callable(tf.Session._Callable):
    """A function of a session that may have been closed by the time it goes."""

    def __del__(self) -> None:
        # A closed session has let go of it already, and TF 1.11 prints a traceback about that
        # (`test_every_job_ends_well`).
        with contextlib.suppress(tf.errors.CancelledError):
            super().__del__()


def make_callable(session: Session, options: Any) -> Callable[..., Any]:
    """The function that does what `CallableOptions` say, in a session that knows all of it."""
    return _Callable(session, options)


def options_of(operation: Operation) -> Any:
    """The `CallableOptions` that run an operation."""
    return _config_pb2.CallableOptions(target=[operation.name])


def connected_options(options: Any, connections: Sequence[Any]) -> Any:
    """`CallableOptions` with further edges.

    Args:
        options: the `CallableOptions`, which stay as they are.
        connections: a list of `pull.Connection`s.
    """
    connected = _config_pb2.CallableOptions()
    connected.CopyFrom(options)
    for connection in connections:
        edge = connected.tensor_connection.add()
        edge.from_tensor = connection.replacement.name
        edge.to_tensor = connection.replaced.name
    return connected


def key_of(options: Any) -> Any:
    """What two `CallableOptions` have in common that say the same."""
    return options.SerializeToString()
