# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The session of a strategy's graph: it counts training steps and turns errors into ours."""

import contextlib
import functools
import threading
import time
import warnings
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
)

from keras_parallax.compat import jemalloc, patches, session_hooks
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session import row_fetches, variable_changes
from keras_parallax.engine.session.run_errors import translated
from keras_parallax.engine.session.scope_interface import RunInterface
from keras_parallax.engine.session.session_scope import SessionScope
from keras_parallax.engine.session.written_rows import Noting
from keras_parallax.engine.tables import row_transfer as rows_module
from keras_parallax.engine.tables.pull_data import Connection
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Config, Operation, Session


def adopt(session: Session, scope: SessionScope) -> Session:
    """Makes a session that a user has opened for a scope's graph a `ParallaxSession`.

    The session keeps what it holds. It is the scope's, or goes on with the scope's.

    Args:
        session: the `tf.Session`.
        scope: the `GraphScope`.

    Returns:
        The session.
    """
    cls = type(session)
    ours = type(cls.__name__, (ParallaxSession, cls), {'__module__': cls.__module__})
    patches.change_class('tf.Session', session, ours)
    session._belongs_to(scope)
    return session


class ParallaxSession(session_hooks.HookedSession):
    """A `tf.Session` for the graph of a `GraphScope`.

    A scope opens a new session when its graph is rewired. Whoever holds an earlier one, or one that
    Keras had before the scope, may go on with it: what it is asked, the scope's session of the time
    does. So it has a method for each thing that a session is asked, which makes them sixteen.

    Args:
        scope: the `GraphScope` whose graph it runs.
        target: what it connects to, `''` for nothing.
        config: its `tf.ConfigProto`.
    """

    def __init__(self, scope: SessionScope, target: str, config: Config) -> None:
        super().__init__(target, graph=scope.graph, config=config)
        self._belongs_to(scope)

    def _belongs_to(self, scope: SessionScope) -> None:
        self._scope, self.uses = scope, _Uses()
        self._detours = _DetoursOfThreads()
        self._connected: Dict[Any, Any] = {}
        scope.job.process_end.abandon_at_exit(self)

    def retire(self) -> None:
        """Closes the session; whoever holds it goes on with the scope's."""
        self._connected.clear()
        self.uses.when_over(self._close_for_good)

    def _close_for_good(self) -> None:
        super().close()
        self.refuse(False)

    def close(self) -> None:
        """Closes the session, but not the scope's, if that is another."""
        if self._scope.session is self:
            super().close()
        self.refuse(True)

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Runs as `tf.Session.run` does; tables that are sharded are read and set in blocks."""
        self._scope.changes.note_run(self.graph, fetches)
        run = functools.partial(
            translated, self._scope, super().run, options=options, run_metadata=run_metadata
        )
        self._scope.runs.wake(fetches)
        fetches = rows_module.replaced(fetches, self._scope.runs.redirect())
        session = self._scope.session
        order = self._scope.order_write
        return row_fetches.run(run, session, fetches, feed_dict, session._detours.here, order)

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Makes a callable as `tf.Session.make_callable` does."""
        given = fetches
        self._scope.runs.wake(given)
        fetches = rows_module.replaced(fetches, self._scope.runs.redirect())
        function = super().make_callable(fetches, feed_list, accept_options)

        def call(*args: Any, **kwargs: Any) -> Any:
            # A table may have got shards since.
            self._scope.runs.wake(given)
            self._scope.changes.note_run(self.graph, fetches)
            return translated(self._scope, function, *args, **kwargs)

        return call

    def running(self, operations: Iterable[Any]) -> ContextManager[None]:
        """Notes that the script may wait for another worker, in some operations and tensors."""
        return self._scope.job.activity.running(operations)

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        """Sets up as `tf.Session.partial_run_setup` does."""
        self._scope.runs.wake(fetches)
        # TensorFlow begins with all of it at once.
        graph = self._scope.session.graph
        elements = [graph.as_graph_element(fetch) for fetch in variable_changes.flat(fetches)]
        self._require_no_step([getattr(element, 'op', element).name for element in elements])
        return super(ParallaxSession, self._scope.session).partial_run_setup(fetches, feeds)

    def list_devices(self) -> Any:
        """Lists devices as `tf.Session.list_devices` does."""
        return super(ParallaxSession, self._scope.session).list_devices()

    @contextlib.contextmanager
    def with_detours(self, detours: row_fetches.Detours) -> Iterator[None]:
        """While open, certain rows go other ways for the thread that opened it, and no other.

        Args:
            detours: the `row_fetches.Detours`.
        """
        earlier, self._detours.here = self._detours.here, detours
        try:
            yield
        finally:
            self._detours.here = earlier

    def before_run(self) -> None:
        """Has the scope's session learn what is new in the graph."""
        self._scope.sessions.extend()

    def run_call(self, call: Any) -> Any:
        """Runs a `session_hooks.Call` in the scope's session, and what a training step needs."""
        scope = self._scope
        scope.table_initializers.before(call.operation_names)
        steps = scope.runs.steps_run_by(call.operation_names)
        targets = call.target_names
        waiting = scope.runs.gated(targets, call.fetch_names)
        if waiting != targets:
            call = call.with_targets(self.graph, waiting)
        noting = scope.written_rows.of_run(call.operation_names)
        further = noting.targets + _beside(steps)
        if further:
            call = call.with_targets(self.graph, call.target_names + further)
        if not steps:
            jemalloc.free_pages().bound()
            with noting.noted(), scope.sessions.in_use() as session:
                return session.run_here(call)
        jemalloc.free_pages().keep()
        with _counted(scope.job, steps), noting.noted(), scope.sessions.in_use() as session:
            tracer = _tracer_of(steps)
            if tracer is not None:
                run = functools.partial(tracer.run, scope, _options(call, steps), _fed_by(call))
            elif _connections(steps):
                run = functools.partial(session._run_connected, steps, call)
            else:
                run = functools.partial(session.run_here, call)
            # Before the step's end is noted, so that the other workers are told in our words, too.
            return translated(scope, run)

    def run_part(self, handle: Any, call: Any) -> Any:
        """Runs a part of what was set up, which is no training step, in the scope's session."""
        self._require_no_step(call.operation_names)
        self._scope.table_initializers.before(call.operation_names)
        noting = self._scope.written_rows.of_run(call.operation_names)
        with noting.noted(marked=False), self._scope.sessions.in_use() as session:
            return session.run_part_here(handle, call)

    def _require_no_step(self, names: Sequence[str]) -> None:
        """Raises `ScopeError` if operations of these names run a training step."""
        if self._scope.runs.steps_run_by(names):
            raise ScopeError(
                'A training step runs in one piece: run it with session.run, or by Keras, not with '
                'session.partial_run.'
            )

    def _run_connected(self, steps: Sequence[RunInterface], call: Any) -> Any:
        """Runs training steps whose pulls go through the host's leader."""
        if call.metadata is not None:
            _warn_of_trace()
        wanted = _options(call, steps)
        key = session_hooks.key_of(wanted)
        if key not in self._connected:
            self._connected[key] = session_hooks.make_callable(self, wanted)
        return self._connected[key](*_fed_by(call))

    def make_function(self, options: Any) -> '_Function':
        """Makes the function that a Keras `Function` calls, in Keras 2.2.4 and in TF 1.11."""
        return _Function(self, options)

    def function_of(self, operation: Operation) -> '_Function':
        """A function of nothing that runs an operation, in the scope's session of the time."""
        return self.make_function(session_hooks.options_of(operation))


class _DetoursOfThreads(threading.local):
    """The `row_fetches.Detours` of each thread."""

    def __init__(self) -> None:
        super().__init__()
        self.here = row_fetches.Detours()


class _Uses:
    """The runs of a session that are under way, each in a thread of its own."""

    _afterwards: Optional[Callable[[], None]]

    def __init__(self) -> None:
        self._lock, self._number, self._afterwards = threading.Lock(), 0, None

    def begin(self) -> None:
        with self._lock:
            self._number += 1

    def end(self) -> None:
        with self._lock:
            self._number -= 1
        self._finish()

    def when_over(self, act: Callable[[], None]) -> None:
        """Has a function of nothing called once, when none is under way; none begins any more."""
        self._afterwards = act
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            act = None if self._number else self._afterwards
            if act is not None:
                self._afterwards = None
        if act is not None:
            act()


class _Made(NamedTuple):
    """What a `_Function` runs, for one session.

    Attributes:
        session: the `ParallaxSession`.
        function: what runs them.
        options: its `CallableOptions`.
        steps: the `StepRuns` that it runs.
        runs: names of what is fetched and run, if that is no training step.
        noting: the `written_rows.Noting` of a run.
        noting_version: the `WrittenRows.version` that it is of.
        beside: names of what is run beside the `StepRuns`.
    """

    session: ParallaxSession
    function: Any
    options: Any
    steps: List[RunInterface]
    runs: List[str]
    noting: Noting
    noting_version: int
    beside: List[str]


class _Function:
    """A function of a graph, made from `CallableOptions`, that outlives the session it is made for.

    Args:
        session: the `ParallaxSession` that was asked for it.
        options: the `CallableOptions`.
    """

    def __init__(self, session: ParallaxSession, options: Any) -> None:
        self._asked, self._scope, self._given = session, session._scope, options
        with self._scope.lock.held():
            self._made = self._make()

    def _make(self) -> _Made:
        scope, options = self._scope, session_hooks.connected_options(self._given, [])
        scope.runs.wake([list(options.target), list(options.fetch)])
        redirected = scope.runs.redirect()
        for number, name in enumerate(options.fetch):
            if name in redirected:
                options.fetch[number] = tf.convert_to_tensor(redirected[name]).name
        names = [name.split(':')[0] for name in list(options.target) + list(options.fetch)]
        scope.table_initializers.before(names)
        # Before copies take the place of what writes beside the optimizer.
        steps = scope.runs.steps_run_by(names)
        options.target[:] = scope.runs.gated(options.target, options.fetch)
        runs = [] if steps else list(options.fetch) + list(options.target)
        names = [name.split(':')[0] for name in list(options.target) + list(options.fetch)]
        noting, version = scope.written_rows.of_run(names), scope.written_rows.version
        beside = _beside(steps)
        options.target.extend(noting.targets + beside)
        self._asked.before_run()
        # Some tensors come through the host's leader in a training step, and in nothing else: so
        # the graph stays as it is, and the step runs with other edges in their place.
        options = session_hooks.connected_options(options, _connections(steps))
        function = session_hooks.make_callable(scope.session, options)
        return _Made(scope.session, function, options, steps, runs, noting, version, beside)

    def __call__(self, *args: Any, run_metadata: Any = None) -> Any:
        scope = self._scope
        with contextlib.ExitStack() as use:
            with scope.lock.held():
                scope.sessions.see_new_operations()
                made = self._made
                is_of_now = (
                    made.session is scope.session
                    and made.noting_version == scope.written_rows.version
                    and made.beside == _beside(made.steps)
                )
                if not is_of_now:
                    made = self._made = self._make()
                use.enter_context(scope.sessions.in_use())
            if run_metadata is not None and scope.sessions.target:
                if not _connections(made.steps):
                    return self._run_traced(made, args, run_metadata)
                _warn_of_trace()
            jemalloc.free_pages().keep()
            scope.changes.note_run(scope.graph, made.runs)
            with _counted(scope.job, made.steps), made.noting.noted():
                tracer = _tracer_of(made.steps)
                if tracer is None:
                    results = translated(scope, made.function, *args, run_metadata=run_metadata)
                else:
                    run = functools.partial(tracer.run, scope, made.options, args)
                    results = translated(scope, run)
                use.close()  # Tables may move to another session after a step.
                return results

    def _run_traced(self, made: _Made, args: Sequence[Any], run_metadata: Any) -> Any:
        """Runs as `tf.Session.run` does: a server tells a function no metadata (TF 1.11)."""
        options, session, graph = made.options, made.session, self._scope.graph
        feeds = dict(zip(map(graph.get_tensor_by_name, options.feed), args))
        edges = options.tensor_connection
        if edges:
            # `run` has no such edges, but what they carry can be had first, and fed.
            carried = session.run([edge.from_tensor for edge in edges], feeds)
            places = [graph.get_tensor_by_name(edge.to_tensor) for edge in edges]
            feeds.update(zip(places, carried))
        fetches = [graph.get_tensor_by_name(name) for name in options.fetch]
        targets = [graph.get_operation_by_name(name) for name in options.target]
        fetched = session.run(fetches + targets, feeds, options.run_options, run_metadata)
        return fetched[: len(fetches)]


def _options(call: Any, steps: Sequence[RunInterface]) -> Any:
    """The `CallableOptions` of a `session_hooks.Call` that runs `StepRuns`."""
    return session_hooks.connected_options(call.callable_options(), _connections(steps))


def _fed_by(call: Any) -> List[Any]:
    """The values that a `session_hooks.Call` feeds, in the order of its `CallableOptions`."""
    return [call.feeds[feed] for feed in call.ordered_feeds]


def _tracer_of(steps: Iterable[RunInterface]) -> Any:
    """What traces `StepRuns` at the time, or `None`."""
    return next((step.tracer for step in steps if step.tracer), None)


def _beside(steps: Iterable[RunInterface]) -> List[str]:
    """Names of the operations that only look at `StepRuns` while they run."""
    return [name for step in steps for name in step.beside]


def _connections(steps: Iterable[RunInterface]) -> List[Connection]:
    """The `pull.Connection`s of `StepRuns`, each once."""
    return list(dict.fromkeys(edge for step in steps for edge in step.connections))


def _warn_of_trace() -> None:
    warnings.warn(
        "No trace is recorded of a training step whose pulls go through the host's leader; make "
        'the strategy with local_aggregation=False to see one.',
        stacklevel=2,
    )


@contextlib.contextmanager
def _counted(job: Job, steps: Sequence[RunInterface]) -> Iterator[None]:
    """While open, training steps run; afterwards they learn how long it took.

    Args:
        job: the `Job`.
        steps: the `StepRuns`, in a list; there may be none.
    """
    began = time.perf_counter()
    with contextlib.ExitStack() as ends:
        if any(step.waits for step in steps):
            ends.enter_context(job.activity.step(any(step.ends_together for step in steps)))
        yield
        for step in steps:
            step.end_batch()
    for step in steps:
        step.after_run(time.perf_counter() - began)
