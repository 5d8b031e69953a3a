"""The session of a strategy's graph: it counts training steps and turns errors into ours."""

import contextlib
import functools
import itertools
import re
import threading
import time

from keras_parallax import allocator, blocks, session_config
from keras_parallax.compat import tf
from keras_parallax.errors import IdOutOfRangeError, ParallaxError

#: Starts the message of the assertion that guards a table's ids; `pull` builds it.
ID_MARK = 'keras-parallax: ids outside the table'
#: Starts that of the one before an operation that cannot be done on shards; `former` builds it.
REFUSAL_MARK = 'keras-parallax: not on shards'
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


class ParallaxSession(tf.Session):
    """A `tf.Session` for the graph of a `GraphScope`.

    Args:
        scope: the `GraphScope` whose graph it runs.
    """

    def __init__(self, scope):
        job = scope.job
        is_local = not scope.target and job.size > 1
        config = session_config.of_local(job.config) if is_local else job.config
        super().__init__(scope.target, graph=scope.graph, config=config)
        self._scope = scope
        self._detours = threading.local()
        job.abandon_at_exit(self)

    def abandon(self):
        """Gives the session up without closing it.

        TensorFlow 1.11 closes a session when Python ends, and waits for the servers of all tasks:
        for ever, if another rank was faster to end (seen in the equality tests with 4 ranks).
        """
        self._closed, self._session = True, None

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs as `tf.Session.run` does; tables that are sharded are read and set in blocks."""
        self._scope.changes.note_run(self.graph, fetches)
        run = functools.partial(
            self._translated, super().run, options=options, run_metadata=run_metadata
        )
        fetches = blocks.replaced(fetches, self._scope.redirect())
        return blocks.run(run, self, fetches, feed_dict, self._detours_here())

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        """Makes a callable as `tf.Session.make_callable` does."""
        fetches = blocks.replaced(fetches, self._scope.redirect())
        function = super().make_callable(fetches, feed_list, accept_options)

        def call(*args, **kwargs):
            self._scope.changes.note_run(self.graph, fetches)
            return self._translated(function, *args, **kwargs)

        return call

    def _do_run(self, handle, target_list, fetch_list, *arguments):
        """Runs what `run` has resolved, in which the script may wait for another rank."""
        with self._scope.job.activity.running(fetch_list + target_list):
            return super()._do_run(handle, target_list, fetch_list, *arguments)

    @contextlib.contextmanager
    def with_detours(self, detours):
        """While open, certain rows go other ways for the thread that opened it, and no other.

        Args:
            detours: the `blocks.Detours`.
        """
        earlier, self._detours.value = self._detours_here(), detours
        try:
            yield
        finally:
            self._detours.value = earlier

    def _detours_here(self):
        """The `blocks.Detours` of the calling thread."""
        return getattr(self._detours, 'value', None) or blocks.Detours()

    def _make_callable_from_options(self, callable_options):
        """Makes the function that a Keras `Function` calls, in Keras 2.2.4 and in TF 1.11."""
        given = self._scope.redirect()
        for number, name in enumerate(callable_options.fetch):
            if name in given:
                callable_options.fetch[number] = tf.convert_to_tensor(given[name]).name
        steps = [self._scope.train_step_of(name) for name in callable_options.target]
        steps = [step for step in steps if step is not None]
        if steps:
            self._scope.check_writes(callable_options.target)
        callable_options.target[:] = self._scope.gated(
            callable_options.target, callable_options.fetch
        )
        # Some tensors come through the host's leader in a training step, and in nothing else: so
        # the graph stays as it is, and the step runs with other edges in their place.
        connections = itertools.chain(*[step.connections for step in steps])
        for connection in dict.fromkeys(connections):
            edge = callable_options.tensor_connection.add()
            edge.from_tensor = connection.replacement.name
            edge.to_tensor = connection.replaced.name
        self._extend_graph()
        function = _Callable(self, callable_options)
        job, free_pages = self._scope.job, allocator.free_pages()

        changes, runs = self._scope.changes, []
        if not steps:
            runs = list(callable_options.fetch) + list(callable_options.target)

        def call(*args, **kwargs):
            free_pages.keep()
            changes.note_run(self.graph, runs)
            if not steps:
                return self._translated(function, *args, **kwargs)
            began = time.perf_counter()
            with contextlib.ExitStack() as ends:
                if any(step.waits for step in steps):
                    job.begin_step(any(step.lockstep for step in steps))
                    ends.push(job.end_step)
                fetched = self._translated(function, *args, **kwargs)
            for step in steps:
                step.after_run(time.perf_counter() - began)
            return fetched

        return call

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
            problem = self._id_problem(error) or self._written_problem(error)
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
