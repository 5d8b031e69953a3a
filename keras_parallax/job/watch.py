"""The watch over the other ranks of a job.

`horovodrun` 0.19.5 waits for every process even after one has failed, so a rank that waits for a
failed one would wait for ever. Every rank therefore tells the others how it is over Horovod, from a
thread of its own, as often as `diagnosis.report_due` says. Of a rank that can no longer tell, its
watchdog does.
"""

import contextlib
import os
import socket
import sys
import threading
import time
import traceback

from keras_parallax.compat.horovod_api import horovod_aborts
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError, ServerLostError, WorkerFailedError
from keras_parallax.failures import rendezvous
from keras_parallax.failures.diagnosis import (
    FAILED,
    FINISHED,
    INTERVAL_SECONDS,
    QUIET_SECONDS,
    RUNNING,
    diagnose,
    report_due,
)
from keras_parallax.job import launchers
from keras_parallax.job.collectives import Gatherer
from keras_parallax.job.process_end import GRACE_SECONDS
from keras_parallax.job.worker_servers import find_own_address

#: How much longer than a step a rank may hang as a whole, so that not even a thread of Python runs.
_HANG_SECONDS = 30

#: The part of Gloo's timeout, 30 seconds, for which a rank may be stopped: its job is lost by then.
_STOPPED_SHARE = 0.6

#: How often a rank looks whether the others have come.
_LOOK_SECONDS = 0.2

#: How long after Horovod broke off a rank waits to hear why.
_WATCHDOGS_FIRST_SECONDS = 3


class Watch:
    """Tells the other ranks how this one is, and ends the job when one of them is not well.

    Args:
        step_timeout: seconds that a step, or another wait for all ranks, may last; 0 for any time.
        activity: the `Activity` of which the other ranks hear.
        write_order: the `WriteOrder`, which hears of the other ranks.
        process_end: the `ProcessEnd`, which hears why the job cannot go on.
    """

    def __init__(self, step_timeout, activity, write_order, process_end):
        self._step_timeout, self._activity = step_timeout, activity
        self._write_order, self._process_end = write_order, process_end
        self._state, self._error, self._lost_server = RUNNING, None, None
        self._rank, self._excepthook, self._restore_aborts = 0, None, None
        self._parent, self._waiting_since = os.getppid(), None
        # Set when this rank has something new to tell, and when it has reported for the last time.
        self._news, self._has_reported = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name='parallax-watch', daemon=True)

    def meet(self, environ):
        """Meets the other ranks before Horovod does, if its launcher has started the process.

        Who is killed from now on is spoken for. Ends the process if some rank does not come.
        `mpirun` has no place to meet at: there, ranks first hear of each other from Horovod.

        Args:
            environ: the process's environment, a mapping.
        """
        _, rank, size = launchers.started(environ)
        if size == 1:
            self._process_end.start_watchdog(rank, lambda: None)
        if size > 1:
            self._look_out(rank)
            with contextlib.suppress(OSError):  # Horovod's ranks have met already, or without it.
                rendezvous.leave(environ, rank, self.hub)
                self._await_ranks(environ, size)

    def _await_ranks(self, environ, size):
        hubs, absent, deadline = {}, range(size), time.monotonic() + _gloo_timeout()
        while absent and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS * bool(hubs))
            hubs.update(rendezvous.entries(environ, absent))
            absent = [rank for rank in range(size) if rank not in hubs]
            if 0 in hubs:
                self.join(hubs[0])
        if absent:
            awaited = ' and '.join('rank %d' % rank for rank in absent)
            problem = WorkerFailedError(
                'Rank %d on host %s has waited in vain for %s to start; see what horovodrun shows '
                'of it, or allow more with horovodrun --gloo-timeout-seconds.'
                % (self._rank, socket.gethostname(), awaited)
            )
            self._process_end.fail(problem, has_lost=True)
            self._process_end.finish()

    @property
    def hub(self):
        """Where the other watchdogs find that of rank 0, on which this is."""
        return self._rank == 0 and self._process_end.watchdog.place

    def join(self, hub):
        """Connects this rank's watchdog to that of rank 0, unless it has been."""
        if self._process_end.watchdog is None:
            self._start_watchdog(hub=hub)

    def start(self, rank):
        """Begins to tell the other ranks, if there are any, how this one is.

        Args:
            rank: this process's rank.
        """
        self._look_out(rank)
        self._thread.start()
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception

    def _look_out(self, rank):
        if self._restore_aborts is not None:
            return
        self._rank, self._restore_aborts = rank, horovod_aborts(self._on_abort)
        if rank == 0:
            address = ''
            with contextlib.suppress(ParallaxError):
                address = find_own_address()
            self._start_watchdog(address=address)

    def _start_watchdog(self, **options):
        stopped_seconds = _STOPPED_SHARE * _gloo_timeout()
        self._process_end.start_watchdog(
            self._rank,
            self._look,
            silence_seconds=self._step_timeout and self._step_timeout + _HANG_SECONDS,
            stopped_seconds=min(self._step_timeout or stopped_seconds, stopped_seconds),
            **options,
        )

    def _on_abort(self):
        """Horovod's own thread comes here instead of ending the process, and stays."""
        time.sleep(_WATCHDOGS_FIRST_SECONDS)
        problem = WorkerFailedError(
            'Rank %d on host %s has lost its connection to another rank; see what that has said '
            'itself, and the exit status that the launcher shows.'
            % (self._rank, socket.gethostname())
        )
        self._process_end.fail(problem, has_lost=True)
        while True:
            time.sleep(3600)

    def _look(self):
        """Looks from time to time whether the job has been lost in another way."""
        since, limit = self._waiting_since, self._step_timeout + _HANG_SECONDS + QUIET_SECONDS
        if os.getppid() != self._parent:
            predicate = 'has lost its launcher: horovodrun, mpirun or ssh was killed.'
        elif self._step_timeout and since is not None and time.monotonic() - since > limit:
            predicate = 'has had no news of the other ranks for %d s (step_timeout).' % limit
        else:
            return
        self._process_end.watchdog.report(predicate)

    def lose_server(self, sentence):
        """Has all ranks hear of a dedicated server that is gone, a sentence."""
        self._lost_server = sentence
        if self._excepthook is None:  # There is but one rank.
            self._process_end.fail(ServerLostError(sentence))

    def tell_now(self):
        """Has the other ranks hear of this one as soon as each has something to tell."""
        self._news.set()

    def await_problem(self):
        """Waits until the watch knows why a step has broken off, or does not either."""
        if self._excepthook is not None:
            self._process_end.decided.wait(GRACE_SECONDS)

    def finish(self):
        """Comes to the end of the process: the job is over, or cannot go on."""
        if self._state != FAILED:
            self._state = FINISHED
            self._news.set()
            # The other ranks may still read the shards on this process's server. Of ranks that are
            # lost the watch never hears.
            while self._thread.is_alive() and not self._process_end.has_lost:
                self._thread.join(INTERVAL_SECONDS)
        self._process_end.finish()
        self._process_end.dismiss_watchdog()
        if self._restore_aborts is not None:
            self._restore_aborts()

    def _run(self):
        gather = Gatherer('watch')
        while True:
            report = self._report()
            self._waiting_since = time.monotonic()
            try:
                states = gather(report)
            except tf.errors.OpError:
                # Horovod has shut down, or an operation of its has failed, because a process ended
                # that had said nothing before. Which one, the watchdogs are about to tell.
                self.await_problem()
                silent = WorkerFailedError('Another rank of the job ended without a word.')
                self._process_end.fail(silent)
                break
            self._waiting_since = None
            problem = diagnose(states, self._step_timeout)
            if problem:
                if report['state'] != FAILED:
                    # Who waits for others tells the user: it runs, and has begun the most steps.
                    aptness = [
                        (state['state'] == RUNNING, not state.get('broken'), state['steps'])
                        for state in states
                    ]
                    self._process_end.fail(problem, aptness[self._rank] == max(aptness))
                if self._state == RUNNING and not self._activity.waits:
                    # The others may wait for this rank in an operation of Horovod's.
                    self._process_end.shut_horovod_down()
            if problem or all(state['state'] == FINISHED for state in states):
                break
            self._write_order.hear(states)
            self._rest()
        self._has_reported.set()

    def _report(self):
        return dict(
            {**self._activity.report(), **self._write_order.report()},
            state=self._state,
            host=socket.gethostname(),
            error=self._error,
            lost=self._lost_server,
        )

    def _rest(self):
        """Waits until the other ranks are to hear of this one again."""
        reported, writes = time.monotonic(), self._write_order
        while self._state == RUNNING and not writes.waits:
            due = report_due(reported, self._activity.lockstep_began, writes.is_awaited)
            seconds = due - time.monotonic()
            if seconds <= 0:
                break
            self._news.wait(seconds)
            self._news.clear()

    def _on_exception(self, kind, error, trace):
        is_shown = self._process_end.shows(error)
        if self._process_end.problem is None:
            self._error = ''.join(traceback.format_exception_only(kind, error)).strip()
            self._state = FAILED
            self._news.set()
            self._has_reported.wait(GRACE_SECONDS)
        if is_shown:
            self._excepthook(kind, error, trace)


def _gloo_timeout():
    return int(os.environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS') or 30)
