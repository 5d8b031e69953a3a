"""The session of a strategy's graph: it counts training steps and turns errors into ours."""

import contextlib
import functools
import re
import threading
import time
import warnings
from typing import Any, List, NamedTuple

from keras_parallax.compat import jemalloc, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import IdOutOfRangeError, ParallaxError, ScopeError
from keras_parallax.session import row_fetches
from keras_parallax.tables import rows as rows_module
from keras_parallax.tables.pull import ID_MARK, REFUSAL_MARK

_ASSERTED = re.compile(re.escape(ID_MARK) + r'\] \[(?P<name>[^\]]*)\] \[(?P<ids>[^\]]*)\]')


_REFUSED = re.compile(re.escape(REFUSAL_MARK) + r'\] \[([^\]]*)\] \[([^\]]*)\]')


#: What TensorFlow 1.11's own gathers on the CPU say.
_GATHERED = re.compile(r'= (?P<ids>-?\d+) is not in \[0, \d+\)')


#: How they name the operation; the error itself does not know it when a `Function` was called.
_NODE = re.compile(r'\{\{node (?P<node>[^}]+)\}\}')


#: What TensorFlow says of a server that is gone, that does not know a graph any more because it was
#: started anew, or whose devices are not those of this job.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InvalidArgumentError)


#: What TensorFlow and, as an `UnknownError`, Horovod say when another rank is gone: sometimes
#: before the watch knows which one (`tests/parallel/test_failures.py`).
_BROKEN_OFF = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.UnknownError,
)


#: The operation in which a function of the user's own, in Python, has raised an error.
_USERS_OWN = re.compile(r'\}\} = (Eager)?PyFunc')


class _Callable(tf.Session._Callable):
    """A function of a session that may have been closed by the time it goes."""

    def __del__(self):
        # A closed session has let go of it already, and TF 1.11 prints a traceback about that
        # (`test_every_job_ends_well`).
        with contextlib.suppress(tf.errors.CancelledError):
            super().__del__()


def adopt(session, scope):
    """Makes a session that a user has opened for a scope's graph a `ParallaxSession`.

    The session keeps what it holds. It is the scope's, or goes on with the scope's.

    Args:
        session: the `tf.Session`.
        scope: the `GraphScope`.

    Returns:
        The session.
    """
    cls = type(session)
    session.__class__ = type(cls.__name__, (ParallaxSession, cls), {'__module__': cls.__module__})
    session._belongs_to(scope)
    return session


class ParallaxSession(tf.Session):
    """A `tf.Session` for the graph of a `GraphScope`.

    A scope opens a new session when its graph is rewired. Whoever holds an earlier one, or one that
    Keras had before the scope, may go on with it: what it is asked, the scope's session of the time
    does.

    Args:
        scope: the `GraphScope` whose graph it runs.
    """

    def __init__(self, scope):
        super().__init__(scope.target, graph=scope.graph, config=scope.session_config)
        self._belongs_to(scope)

    def _belongs_to(self, scope):
        self._scope, self.uses = scope, _Uses()
        self._detours = threading.local()
        self._connected = {}
        scope.job.abandon_at_exit(self)

    def abandon(self):
        """Gives the session up without closing it.

        TensorFlow 1.11 closes a session when Python ends, and waits for the servers of all tasks:
        for ever, if another rank was faster to end (seen in the equality tests with 4 ranks).
        """
        self._closed, self._session = True, None

    def retire(self):
        """Closes the session; whoever holds it goes on with the scope's."""
        self._connected.clear()
        self.uses.when_over(self._close_for_good)

    def _close_for_good(self):
        super().close()
        self._closed = False

    def close(self):
        """Closes the session, but not the scope's, if that is another."""
        if self._scope.session is self:
            super().close()
        self._closed = True

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs as `tf.Session.run` does; tables that are sharded are read and set in blocks."""
        self._scope.changes.note_run(self.graph, fetches)
        run = functools.partial(
            self._translated, super().run, options=options, run_metadata=run_metadata
        )
        fetches = rows_module.replaced(fetches, self._scope.redirect())
        session = self._scope.session
        order = self._scope.order_write
        return row_fetches.run(run, session, fetches, feed_dict, session._detours_here(), order)

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        """Makes a callable as `tf.Session.make_callable` does."""
        fetches = rows_module.replaced(fetches, self._scope.redirect())
        function = super().make_callable(fetches, feed_list, accept_options)

        def call(*args, **kwargs):
            self._scope.changes.note_run(self.graph, fetches)
            return self._translated(function, *args, **kwargs)

        return call

    def _do_run(self, handle, target_list, fetch_list, *arguments):
        """Runs what `run` has resolved, in which the script may wait for another rank."""
        with self._scope.job.activity.running(fetch_list + target_list):
            return super()._do_run(handle, target_list, fetch_list, *arguments)

    def partial_run_setup(self, fetches, feeds=None):
        """Sets up as `tf.Session.partial_run_setup` does."""
        return super(ParallaxSession, self._scope.session).partial_run_setup(fetches, feeds)

    def list_devices(self):
        """Lists devices as `tf.Session.list_devices` does."""
        return super(ParallaxSession, self._scope.session).list_devices()

    @contextlib.contextmanager
    def with_detours(self, detours):
        """While open, certain rows go other ways for the thread that opened it, and no other.

        Args:
            detours: the `row_fetches.Detours`.
        """
        earlier, self._detours.value = self._detours_here(), detours
        try:
            yield
        finally:
            self._detours.value = earlier

    def _detours_here(self):
        """The `row_fetches.Detours` of the calling thread."""
        return getattr(self._detours, 'value', None) or row_fetches.Detours()

    def _extend_graph(self):
        """Called before whatever may be new in the graph is run."""
        self._scope.extend_session()

    def extend(self):
        """Makes what is new in the graph known to this session."""
        super()._extend_graph()

    def _call_tf_sessionrun(self, options, feed_dict, fetch_list, target_list, run_metadata):
        """Runs what `run` and the functions of `make_callable` have resolved."""
        scope = self._scope
        steps = scope.steps_run_by(tensorflow_api.names_of_operations(fetch_list, target_list))
        target_list = self._gated(target_list, fetch_list)
        arguments = options, feed_dict, fetch_list, target_list, run_metadata
        if not steps:
            with scope.session_in_use() as session:
                return session._run_here(*arguments)
        jemalloc.free_pages().keep()
        with _counted(scope.job, steps), scope.session_in_use() as session:
            if _connections(steps):
                return session._run_connected(steps, *arguments)
            return session._run_here(*arguments)

    def _gated(self, targets, fetches):
        """The `TF_Operation`s to run instead of others, as `GraphScope.gated` has it."""
        names = tensorflow_api.names_of_operations([], targets)
        waiting = self._scope.gated(
            names, [tensorflow_api.name_of_output(fetch) for fetch in fetches]
        )
        if waiting == names:
            return targets
        return [self.graph.get_operation_by_name(name)._c_op for name in waiting]

    def run_known(self, operation):
        """Runs an operation that this session knows, whatever another thread does to the graph."""
        self._run_here(None, {}, [], [operation._c_op], None)

    def _run_here(self, *arguments):
        return super()._call_tf_sessionrun(*arguments)

    def _call_tf_sessionprun(self, handle, feed_dict, fetch_list):
        if self._scope.steps_run_by(tensorflow_api.names_of_operations(fetch_list, [])):
            raise ScopeError(
                'A training step runs in one piece: run it with session.run, or by Keras, not with '
                'session.partial_run.'
            )
        with self._scope.session_in_use() as session:
            return super(ParallaxSession, session)._call_tf_sessionprun(
                handle, feed_dict, fetch_list
            )

    def _run_connected(self, steps, options, feed_dict, fetch_list, target_list, run_metadata):
        """Runs training steps whose pulls go through the host's leader."""
        if run_metadata is not None:
            _warn_of_trace()
        feeds = sorted(feed_dict, key=tensorflow_api.name_of_output)
        wanted = tensorflow_api.callable_options(feeds, fetch_list, target_list, options)
        wanted = tensorflow_api.connected_options(wanted, _connections(steps))
        key = wanted.SerializeToString()
        if key not in self._connected:
            self._connected[key] = _Callable(self, wanted)
        return self._connected[key](*[feed_dict[feed] for feed in feeds])

    def _make_callable_from_options(self, callable_options):
        """Makes the function that a Keras `Function` calls, in Keras 2.2.4 and in TF 1.11."""
        return _Function(self, callable_options)

    def _written_problem(self, error):
        refused = _REFUSED.search(error.message or '')
        if refused is None:
            return None
        return ParallaxError(
            'The operation %s would write to %s, whose rows lie in shards on %d servers, in a way '
            'that cannot be done there. Assign the whole table (K.set_value, tf.assign), add to it '
            "(tf.assign_add) or write rows (tf.scatter_update), or use architecture='allreduce'."
            % (*refused.groups(), self._scope.servers.count)
        )

    def _translated(self, function, *args, **kwargs):
        job = self._scope.job
        if job.problem is not None:
            raise job.problem
        try:
            return function(*args, **kwargs)
        except tf.errors.OpError as error:
            if job.problem is not None:
                raise job.problem from error
            problem = (
                self._id_problem(error)
                or self._written_problem(error)
                or self._iterator_problem(error)
            )
            if problem is None and isinstance(error, _LOST):
                problem = job.lost_server()
            is_users = _USERS_OWN.search(error.message or '')
            if problem is None and isinstance(error, _BROKEN_OFF) and not is_users:
                job.await_problem()
                problem = job.problem
            if problem is None:
                raise
            raise problem from error
        except RuntimeError as error:
            # A session that the watch has closed says so with a RuntimeError.
            if job.problem is not None:
                raise job.problem from error
            raise

    def _iterator_problem(self, error):
        message = error.message or ''
        node = _NODE.search(message)
        if not isinstance(error, tf.errors.FailedPreconditionError) or not node:
            return None
        iterator = self._scope.lost_iterator(node.group('node'))
        if iterator is None:
            return None
        return ScopeError(
            'Rank %d: iterator %s was initialized before `with strategy:`, in another session, and '
            'TensorFlow cannot copy its place in the data. Run its initializer inside the scope, '
            'or after it.' % (self._scope.job.rank, iterator.name)
        )

    def _id_problem(self, error):
        message = error.message or ''
        asserted = _ASSERTED.search(message)
        gathered, node = _GATHERED.search(message), _NODE.search(message)
        if asserted:
            ids, table = asserted.group('ids'), self._scope.tables_by_name[asserted.group('name')]
            variable = table.variable
        elif gathered and node:
            # A table without shards is looked up by Keras's own operations.
            ids, variable = gathered.group('ids'), self._scope.weight_read_by(node.group('node'))
        else:
            variable = None
        if variable is None:
            return None
        rows, record = variable.shape.as_list()[0], self._scope.records.get(variable)
        # Of a weight that its layer has made without `add_weight` no layer is known.
        who = 'layer %s looked up id %s, but its' if record else 'id %s was looked up, but the'
        known = ([record.layer_name] if record else []) + [', '.join(ids.split())]
        return IdOutOfRangeError(
            'Rank %d: %s table %s has %d rows, so ids must be in [0, %d). Check the ids of this '
            'batch, or make input_dim larger.'
            % (
                self._scope.job.rank,
                who % tuple(known),
                variable.name.split(':')[0],
                rows,
                rows,
            )
        )


class _Uses:
    """The runs of a session that are under way, each in a thread of its own."""

    def __init__(self):
        self._lock, self._number, self._afterwards = threading.Lock(), 0, None

    def begin(self):
        with self._lock:
            self._number += 1

    def end(self):
        with self._lock:
            self._number -= 1
        self._finish()

    def when_over(self, act):
        """Has a function of nothing called once, when none is under way; none begins any more."""
        self._afterwards = act
        self._finish()

    def _finish(self):
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
        function: the `_Callable`.
        options: its `CallableOptions`.
        steps: the `TrainStep`s that it runs.
        runs: names of what is fetched and run, if that is no training step.
    """

    session: ParallaxSession
    function: _Callable
    options: Any
    steps: List[Any]
    runs: List[str]


class _Function:
    """A function of a graph, made from `CallableOptions`, that outlives the session it is made for.

    Args:
        session: the `ParallaxSession` that was asked for it.
        options: the `CallableOptions`.
    """

    def __init__(self, session, options):
        self._asked, self._scope, self._given = session, session._scope, options
        with self._scope.lock.held():
            self._made = self._make()

    def _make(self):
        scope, redirected = self._scope, self._scope.redirect()
        options = tensorflow_api.connected_options(self._given, [])
        for number, name in enumerate(options.fetch):
            if name in redirected:
                options.fetch[number] = tf.convert_to_tensor(redirected[name]).name
        names = [name.split(':')[0] for name in list(options.target) + list(options.fetch)]
        # Before copies take the place of what writes beside the optimizer.
        steps = scope.steps_run_by(names)
        options.target[:] = scope.gated(options.target, options.fetch)
        self._asked._extend_graph()
        runs = [] if steps else list(options.fetch) + list(options.target)
        # Some tensors come through the host's leader in a training step, and in nothing else: so
        # the graph stays as it is, and the step runs with other edges in their place.
        options = tensorflow_api.connected_options(options, _connections(steps))
        return _Made(scope.session, _Callable(scope.session, options), options, steps, runs)

    def __call__(self, *args, run_metadata=None):
        scope = self._scope
        with contextlib.ExitStack() as use:
            with scope.lock.held():
                scope.see_new_operations()
                if self._made.session is not scope.session:
                    self._made = self._make()
                made = self._made
                use.enter_context(scope.session_in_use())
            if run_metadata is not None and scope.target:
                if not _connections(made.steps):
                    return self._run_traced(made, args, run_metadata)
                _warn_of_trace()
            jemalloc.free_pages().keep()
            scope.changes.note_run(scope.graph, made.runs)
            with _counted(scope.job, made.steps):
                results = made.session._translated(made.function, *args, run_metadata=run_metadata)
                use.close()  # Tables may move to another session after a step.
                return results

    def _run_traced(self, made, args, run_metadata):
        """Runs as `Session.run` does: a server tells a function no metadata (TF 1.11)."""
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


def _connections(steps):
    """The `pull.Connection`s of `TrainStep`s, each once."""
    return list(dict.fromkeys(edge for step in steps for edge in step.connections))


def _warn_of_trace():
    warnings.warn(
        "No trace is recorded of a training step whose pulls go through the host's leader; make "
        'the strategy with local_aggregation=False to see one.',
        stacklevel=2,
    )


@contextlib.contextmanager
def _counted(job, steps):
    """While open, training steps run; afterwards they learn how long it took.

    Args:
        job: the `Job`.
        steps: the `TrainStep`s, in a list; there may be none.
    """
    began = time.perf_counter()
    with contextlib.ExitStack() as ends:
        if any(step.waits for step in steps):
            job.begin_step(any(step.lockstep for step in steps))
            ends.push(job.end_step)
        yield
    for step in steps:
        step.after_run(time.perf_counter() - began)
