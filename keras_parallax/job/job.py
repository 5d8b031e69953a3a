"""The job that this process is a rank of: its start, its watch over the other ranks, its end.

`horovodrun` 0.19.5 waits for every process even after one has failed, so a rank that waits for a
failed one would wait for ever. Every rank therefore tells the others how it is over Horovod, from a
thread of its own, as often as `diagnosis.report_due` says. A rank that can no longer tell is found
out by `liveness` and spoken for by `watchdog`.
"""

import atexit
import contextlib
import os
import secrets
import socket
import sys
import threading
import time
import traceback
import weakref

from keras_parallax.compat import session_config, tensorflow_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.jemalloc import free_pages
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import (
    ParallaxError,
    PlanError,
    ScopeError,
    ServerLostError,
    WorkerFailedError,
)
from keras_parallax.failures import liveness, probe, rendezvous, watchdog
from keras_parallax.failures.diagnosis import (
    FAILED,
    FINISHED,
    INTERVAL_SECONDS,
    RUNNING,
    diagnose,
    different_calls,
    report_due,
    reporter_rank,
)
from keras_parallax.job import dedicated_servers, devices, launcher, worker_servers
from keras_parallax.job.activity import Activity
from keras_parallax.job.collectives import Gatherer, run_beside
from keras_parallax.job.hosts import aggregation_helps, hosts_of
from keras_parallax.job.server_layout import checked, place_servers
from keras_parallax.job.shard_servers import _PROBE_SECONDS, _SILENT_SECONDS
from keras_parallax.job.watch import (
    _GRACE_AFTER_LOSS_SECONDS,
    _GRACE_OF_OTHERS_SECONDS,
    _GRACE_SECONDS,
    _HANG_SECONDS,
    _START_SHARE,
    _gloo_timeout,
)
from keras_parallax.job.write_order import WriteOrder
from keras_parallax.planning import costs

#: How long a training step may take, if the script does not say.
STEP_TIMEOUT_SECONDS = 600


class Job:
    """This process's place among the ranks of the job.

    Attributes:
        rank, size, local_rank: as Horovod counts them.
        token: tells this job from any other, the same on every rank; `None` for one rank.
        hosts: the ranks of each host, in order of local rank, as `hosts.hosts_of` finds them.
        cluster: the `costs.Cluster` of its hosts, the same on every rank.
        config: the `tf.ConfigProto` for sessions.
        given_config: the part of it that a strategy was given, a `tf.ConfigProto`.
        server: the `tf.train.Server` that this process started last, or `None` if nobody has
            asked for one.
        activity: the `Activity` of which the other ranks hear.
        write_order: the `WriteOrder` of what the script itself writes to sharded tables.
        problem: the exception that says why the job cannot go on, or `None`.
        step_timeout: seconds that a step, or another wait for all ranks, may last; 0 for any time.
    """

    def __init__(self, step_timeout, config=None, earlier=()):
        self.step_timeout = step_timeout
        self.given_config = config or tf.ConfigProto()
        given = list(earlier) + [self.given_config]
        # The first session of the process, which is one of ours, settles it.
        session_config.settle_threads(given)
        self.rank = int(os.environ.get('HOROVOD_RANK', 0))
        self.server = None
        self.problem = None
        self.activity = Activity()
        self.write_order = WriteOrder(self)
        self._steps = weakref.WeakSet()
        self._sessions = weakref.WeakSet()
        self._state, self._error, self._lost = RUNNING, None, None
        self._served, self._dedicated = {}, {}
        self._guard = self._liveness = self._lost_at = None
        self._grace = _GRACE_SECONDS
        self._over, self._deciding, self._decided = False, threading.Lock(), threading.Event()
        self._shutting_down = threading.Lock()
        # Whether this rank is the one that tells the user of the problem.
        self._speaks, self._states = True, []
        # From now on a rank that is killed is spoken for; the ranks wait for each other in `init`.
        ranks = int(os.environ.get('HOROVOD_SIZE', 0))
        if ranks > 1:
            self._look_out()
            patience = _START_SHARE * _gloo_timeout()
            self._liveness.start_deadline = time.monotonic() + patience
            place, hosts = (
                rendezvous.RendezvousStore(os.environ),
                launcher.hosts_of_ranks(os.environ),
            )
            rendezvous.announce(place, os.environ, socket.gethostname(), hosts)
        elif ranks == 1:
            self._guard = watchdog.Watchdog(0, socket.gethostname(), 0, 0)
        hvd.init()
        if self._liveness is not None:
            self._liveness.start_deadline = None
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        self.token = None
        self.hosts, self.cluster = [[self.rank]], costs.Cluster()
        self.config = session_config.of_worker(self.local_rank, given)
        # Runs before Horovod's own exit handler, which was registered by `hvd.init()`.
        atexit.register(self._finish)
        if self.size == 1:
            return
        if self._liveness is None:
            self._look_out()
        self._gatherer = Gatherer('main')
        self._told = threading.Event()
        #: Set when this rank has something new to tell.
        self._news = threading.Event()
        self._watch = threading.Thread(target=self._watch_ranks, name='parallax-watch')
        self._watch.daemon = True
        self._watch.start()
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception
        with self.call('the start of the job'):
            place = [socket.gethostname(), self.local_rank, self._guard.place]
            said = self.gather(place + [secrets.token_hex(8)])
        self._guard.meet(said[0][2])
        self.token = said[0][3]
        self.hosts = hosts_of([each[:2] for each in said])
        # Hosts may have unequal numbers of workers, but every rank must plan alike.
        workers = -(-self.size // len(self.hosts))
        self.cluster = costs.Cluster(
            len(self.hosts), workers, local_aggregation=aggregation_helps(self.hosts)
        )

    def serve(self, servers=None):
        """Starts or finds the servers that hold shards. A collective call, the first time.

        Args:
            servers: the argument of `ParallaxStrategy`.

        Returns:
            A pair: this process's `tf.train.Server` and the `Servers`. `None` twice if there is
            but one rank and no dedicated server.

        Raises:
            PlanError: `servers` is not what it can be, or not the same on every rank.
            ParallaxError: a rank found no port that its server could listen on.
            ServerLostError: a dedicated server is not there, or serves another job.
        """
        asked = checked(servers)
        addresses = asked if isinstance(asked, tuple) else ()
        if self.size == 1 and not addresses:
            return None, None
        if asked not in self._served:
            with self.call('ParallaxStrategy()'):
                said = self.gather(asked)
                for rank, other in enumerate(said):
                    if other != said[0]:
                        raise PlanError(
                            'Give every rank the same servers: rank 0 was given %r, rank %d %r.'
                            % (said[0], rank, other)
                        )
                self._served[asked] = self._start_servers(asked, addresses)
        return self._served[asked]

    def _start_servers(self, asked, addresses):
        first_ranks = [ranks[0] for ranks in self.hosts]
        for other, served in self._served.items():
            if not addresses and not isinstance(other, tuple):
                # 'host' and `None` differ only in which workers' servers hold shards.
                return served[0], place_servers(asked, self.size, first_ranks, devices.WORKER_JOB)
        self.server, server_job = worker_servers.start_servers(
            self.rank, self.config, self.gather, addresses
        )
        if self._liveness is not None:
            tasks = tf.train.ClusterSpec(self.server.server_def.cluster)
            self._liveness.peers = {
                rank: liveness.Peer(host, worker_servers.address_of(tasks, rank))
                for rank, host in enumerate(self.gather(socket.gethostname()))
                if rank != self.rank
            }
        found = place_servers(asked, self.size, first_ranks, devices.WORKER_JOB, server_job)
        self._dedicated.update(
            (address, (server_job, number)) for number, address in enumerate(addresses)
        )
        own = [address for address, owner in zip(addresses, found.owners) if owner == self.rank]
        if own:
            probing = threading.Thread(target=self._watch_servers, args=[own])
            probing.daemon = True
            probing.start()
        return self.server, found

    def lost_server(self):
        """The `ServerLostError` about a dedicated server that is lost, or `None`."""
        for address, (server_job, number) in self._dedicated.items():
            problem = dedicated_servers.lost(address, server_job, number)
            if problem:
                return ServerLostError(problem)
        return None

    def gather(self, value):
        """Gathers a JSON-able value from every rank. A collective call.

        Args:
            value: anything that `json.dumps` takes.

        Returns:
            A list with each rank's value, in order of rank.

        Raises:
            ParallaxError: the job cannot go on.
        """
        # Ranks wait for each other here while one of them moves rows from and to the others.
        free_pages().give_back()
        if self.size == 1:
            return [value]
        said = self.collective(lambda call: self._gatherer([call, value]))
        problem = different_calls([call for call, _ in said])
        if problem:
            raise problem
        return [value for _, value in said]

    def call(self, name):
        """A context manager: while open, collectives belong to a call that all ranks make.

        Args:
            name: what the user knows it by, for messages.
        """
        return self.activity.call(name)

    def collective(self, act):
        """Runs a collective, and waits for the other ranks no longer than the job can go on.

        Args:
            act: function of the name of the call that the collective belongs to.

        Returns:
            What `act` returns.

        Raises:
            ParallaxError: the job cannot go on.
        """
        if self.size == 1:
            return act(None)
        with self.activity.gathering() as call:
            try:
                return run_beside(lambda: act(call), lambda: self.problem)
            except tf.errors.OpError as error:
                # Horovod has shut down.
                self.await_problem()
                raise self.problem or WorkerFailedError('Horovod has shut down.') from error

    def barrier(self):
        """Waits until every rank has come here. A collective call."""
        self.gather(None)

    def begin_step(self, lockstep):
        """Counts a training step, which lasts until `end_step`.

        Args:
            lockstep: whether it ends for no rank before all have begun it.
        """
        if lockstep and self._liveness is not None:
            self._liveness.lockstep_began = time.monotonic()
        self.activity.begin_step(lockstep)

    def end_step(self, kind=None, error=None, trace=None):
        """Says that the training step has ended, as `__exit__` of a context manager is told.

        The other ranks hear of an error, which the script may catch.
        """
        self.activity.end_step(error)

    @property
    def progress(self):
        """How far this rank has come with what all ranks do together, a `diagnosis.Progress`."""
        return self.activity.progress

    def tell_now(self):
        """Has the other ranks hear of this one as soon as each has something to tell."""
        self._news.set()

    def await_problem(self):
        """Waits until the watch knows why a step has broken off, or does not either."""
        if self.size > 1:
            self._decided.wait(_GRACE_SECONDS)

    def interrupt_on_failure(self, step):
        """Has `step.interrupt()` called when the job cannot go on, for as long as it exists."""
        self._steps.add(step)

    def abandon_at_exit(self, session):
        """Gives a session up when the process ends, if the session exists then."""
        self._sessions.add(session)

    def _look_out(self):
        address = None
        if self.rank == 0:
            with contextlib.suppress(ParallaxError):
                address = worker_servers.find_own_address()
        self._guard = watchdog.Watchdog(
            self.rank,
            socket.gethostname(),
            self.step_timeout and self.step_timeout + _HANG_SECONDS,
            # A rank that is stopped for so long has lost its job anyway.
            min(self.step_timeout, _gloo_timeout()),
            address,
        )
        self._liveness = liveness.Liveness(self.rank, self.step_timeout, self._guard, self._lose)

    def _report(self):
        return dict(
            {**self.activity.report(), **self.write_order.report()},
            state=self._state,
            host=socket.gethostname(),
            error=self._error,
            lost=self._lost,
        )

    def _watch_servers(self, addresses):
        """Looks after dedicated servers: a step that begins when one is gone waits for ever."""
        now = time.monotonic()
        contacts = {address: probe.Contact(_SILENT_SECONDS, now) for address in addresses}
        while self._lost is None:
            for address, contact in contacts.items():
                if contact.is_gone(probe.probe(address), time.monotonic()):
                    self._lost = 'The server at %s is gone, and its shards with it.' % address
                    if self.size == 1:
                        self._fail(ServerLostError(self._lost))
                    return
            time.sleep(_PROBE_SECONDS)

    def _watch_ranks(self):
        gather = Gatherer('watch')
        while True:
            report = self._report()
            self._liveness.waiting_since = time.monotonic()
            try:
                states = gather(report)
            except tf.errors.OpError:
                # Horovod has shut down, or an operation of its has failed, because a process ended
                # that had said nothing before. Which one, `liveness` is about to find out.
                self._decided.wait(_GRACE_SECONDS)
                self._fail(WorkerFailedError('Another rank of the job ended without a word.'))
                break
            finally:
                self._liveness.waiting_since = None
            problem = diagnose(states, self.step_timeout)
            if problem:
                self._states = states
                if report['state'] != FAILED:
                    self._fail(problem, reporter_rank(states) == self.rank)
                if self._state == RUNNING and not self.activity.waits:
                    # The others may wait for this rank in an operation of Horovod's.
                    self._shut_down()
            if problem or all(state['state'] == FINISHED for state in states):
                break
            self.write_order.hear(states)
            self._rest()
        self._told.set()

    def _rest(self):
        """Waits until the other ranks are to hear of this one again."""
        reported = time.monotonic()
        while self._state == RUNNING and not self.write_order.waits:
            lockstep_began, awaited = self._liveness.lockstep_began, self.write_order.is_awaited
            due = report_due(reported, lockstep_began, awaited) - time.monotonic()
            if due <= 0:
                break
            self._news.wait(due)
            self._news.clear()

    def _lose(self, problem, alone, is_heard):
        self._fail(problem, words='' if is_heard else str(problem), alone=alone, lost=True)

    def _fail(self, problem, speaks=True, words='', alone=True, lost=False):
        """Ends the job.

        Args:
            problem: the exception that says why.
            speaks: whether this rank tells the user, unless another has.
            words: what is to be told elsewhere, where this rank cannot be heard.
            alone: whether this rank tells the user if no other can be asked.
            lost: whether other ranks are lost, with which Horovod cannot shut down.
        """
        with self._deciding:
            if lost:
                self._lost_at = time.monotonic()
            if self._over or self.problem is not None:
                return
            # Before anybody sees the problem, for then it may be told.
            self._speaks = speaks and not (self._guard and self._guard.is_told(words, alone))
            if lost and self._speaks:
                self._grace = _GRACE_AFTER_LOSS_SECONDS
            elif lost:
                self._grace = _GRACE_OF_OTHERS_SECONDS
            if lost and not self._liveness.peers:
                self._grace = 0  # At the start of a job there is nothing to be interrupted.
            self.problem = problem
        self._decided.set()
        last_resort = threading.Timer(self._grace, self._end_process)
        last_resort.daemon = True
        last_resort.start()
        for step in list(self._steps):
            # Each in a thread of its own: one of a graph that is gone must not hold up the others.
            interrupter = threading.Thread(target=self._interrupt, args=[step])
            interrupter.daemon = True
            interrupter.start()

    def _interrupt(self, step):
        # A session that is closed, or whose servers are gone, has no step that could be saved.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            step.interrupt()

    def _end_process(self):
        with contextlib.suppress(OSError):  # Who has lost the launcher has nowhere to write to.
            if self._speaks:
                sys.stderr.write('Rank %d ends: %s\n' % (self.rank, self.problem))
            sys.stdout.flush()
            sys.stderr.flush()
        if self._lost_at is not None:
            time.sleep(max(0, self._lost_at + self._grace / 2 - time.monotonic()))
            self._guard.dismiss()
            os._exit(1)  # Horovod can no longer shut down.
        if self._guard is not None:
            self._guard.dismiss()
        # The other ranks get an error for what they have under way, where a connection that breaks
        # off would make Gloo abort them before they can say anything.
        in_vain = threading.Timer(_GRACE_SECONDS, os._exit, [1])
        in_vain.daemon = True
        in_vain.start()
        self._shut_down()
        os._exit(1)

    def _shut_down(self):
        """Has Horovod give the other ranks errors for what they have under way.

        What this rank has under way itself never ends then (0.19.5).
        """
        with self._shutting_down:
            hvd.shutdown()

    def _on_exception(self, kind, error, trace):
        said = ''.join(traceback.format_exception_only(kind, error)).strip()
        if self.problem is None:
            self._error, self._state = said, FAILED
            self._news.set()
            self._told.wait(_GRACE_SECONDS)
        # What several ranks find wrong alike, one tells: the lowest of those that did first.
        before = self._states[: self.rank] if self.problem is None else self._states
        if isinstance(error, ParallaxError) and said in [state['error'] for state in before]:
            self._speaks = False
        elif self._speaks or error is not self.problem:
            self._excepthook(kind, error, trace)
            self._speaks = self._speaks and error is not self.problem

    def _finish(self):
        if self.size > 1 and self._state != FAILED:
            self._state = FINISHED
            self._news.set()
            # The other ranks may still read the shards on this process's server. Of ranks that are
            # lost the watch never hears.
            while self._watch.is_alive() and self._lost_at is None:
                self._watch.join(INTERVAL_SECONDS)
        with self._deciding:
            self._over = self.problem is None
        if not self._over:
            # Sessions stay as they are: `interrupt` may be running in one of them.
            self._end_process()
        for session in list(self._sessions):
            tensorflow_api.abandon_session(session)
        if self.size > 1:
            self._liveness.stop()
        if self._guard is not None:
            self._guard.dismiss()


_job = None


def start(step_timeout=None, config=None, earlier=()):
    """The `Job` of this process; the first call starts it. A collective call.

    Args:
        step_timeout: seconds that a step may last, 0 for any time; by default what the job has, or
            `STEP_TIMEOUT_SECONDS`.
        config: a user's `tf.ConfigProto` for sessions and servers, or `None`.
        earlier: the `tf.ConfigProto`s of sessions that a user has opened before, in a list.

    Raises:
        ScopeError: the job has been started with another `step_timeout` or `config`.
    """
    global _job
    if _job is None:
        seconds = STEP_TIMEOUT_SECONDS if step_timeout is None else step_timeout
        _job = Job(seconds, config, earlier)
    if step_timeout not in (None, _job.step_timeout):
        raise ScopeError(
            'A job has one step_timeout: %g s was given first, now %g s.'
            % (_job.step_timeout, step_timeout)
        )
    if config is not None and config != _job.given_config:
        raise ScopeError(
            'A job has one config, for its servers have: first {%s} was given, now {%s}. Give all '
            'strategies the same one, or only the first.'
            % tuple(str(one).strip().replace('\n', ', ') for one in (_job.given_config, config))
        )
    return _job


def current():
    """The `Job` of this process, or `None` if it has not been started."""
    return _job
