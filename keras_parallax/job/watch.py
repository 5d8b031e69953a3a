"""The watch over the other ranks of a job.

`horovodrun` 0.19.5 waits for every process even after one has failed, so a rank that waits for a
failed one would wait for ever. Every rank therefore tells the others how it is over Horovod, from a
thread of its own, as often as `diagnosis.report_due` says. A rank that can no longer tell is found
out by `liveness` and spoken for by its watchdog.
"""

import contextlib
import os
import socket
import sys
import threading
import time
import traceback

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError, ServerLostError, WorkerFailedError
from keras_parallax.failures import rendezvous
from keras_parallax.failures.diagnosis import (
    FAILED,
    FINISHED,
    INTERVAL_SECONDS,
    RUNNING,
    diagnose,
    report_due,
    reporter_rank,
)
from keras_parallax.failures.liveness import Liveness
from keras_parallax.job import launcher
from keras_parallax.job.collectives import Gatherer
from keras_parallax.job.process_end import GRACE_SECONDS
from keras_parallax.job.worker_servers import find_own_address

#: The part of Gloo's timeout, 30 seconds, for which ranks that have not started are waited for: a
#: little less than Horovod waits, so that all have ended by then.
_START_SHARE = 5 / 6


#: How much longer than a step a rank may hang as a whole, so that not even a thread of Python runs.
_HANG_SECONDS = 30


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
        self._rank, self._liveness, self._excepthook = 0, None, None
        # What all ranks have reported when one was not well.
        self._states = []
        # Set when this rank has something new to tell, and when it has reported for the last time.
        self._news, self._has_reported = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name='parallax-watch', daemon=True)

    @contextlib.contextmanager
    def starting(self, environ):
        """While open, the ranks wait for each other in `hvd.init`.

        Who is killed from now on is spoken for, if `horovodrun` has started the process.

        Args:
            environ: the process's environment, a mapping.
        """
        rank, size = (int(environ.get(name, 0)) for name in ('HOROVOD_RANK', 'HOROVOD_SIZE'))
        if size > 1:
            self._look_out(rank)
            with self._liveness.starting(_START_SHARE * _gloo_timeout()):
                hosts, place = launcher.hosts_of_ranks(environ), self._process_end.watchdog.place
                rendezvous.RendezvousStore(environ).announce(socket.gethostname(), hosts, place)
                yield
            return
        if size == 1:
            self._process_end.start_watchdog(rank)
        yield

    def start(self, rank):
        """Begins to tell the other ranks, if there are any, how this one is.

        Args:
            rank: this process's rank.
        """
        if self._liveness is None:
            self._look_out(rank)
        self._thread.start()
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception

    def _look_out(self, rank):
        self._rank, address = rank, ''
        with contextlib.suppress(ParallaxError):
            address = find_own_address()
        watchdog = self._process_end.start_watchdog(
            rank,
            self._step_timeout and self._step_timeout + _HANG_SECONDS,
            # A rank that is stopped for so long has lost its job anyway.
            min(self._step_timeout, _gloo_timeout()),
            address,
        )
        self._liveness = Liveness(rank, self._step_timeout, watchdog, self._activity, self._lose)

    def set_peers(self, peers):
        """Says where the other ranks' servers are: a dict from ranks to `liveness.Peer`s."""
        self._liveness.peers = peers

    def lose_server(self, sentence):
        """Has all ranks hear of a dedicated server that is gone, a sentence."""
        self._lost_server = sentence
        if self._liveness is None:  # There is but one rank.
            self._process_end.fail(ServerLostError(sentence))

    def tell_now(self):
        """Has the other ranks hear of this one as soon as each has something to tell."""
        self._news.set()

    def await_problem(self):
        """Waits until the watch knows why a step has broken off, or does not either."""
        if self._liveness is not None:
            self._process_end.decided.wait(GRACE_SECONDS)

    def finish(self):
        """Comes to the end of the process: the job is over, or cannot go on."""
        if self._state != FAILED:
            self._state = FINISHED
            self._news.set()
            # The other ranks may still read the shards on this process's server. Of ranks that are
            # lost the watch never hears.
            while self._thread.is_alive() and self._process_end.lost_at is None:
                self._thread.join(INTERVAL_SECONDS)
        self._process_end.finish()
        if self._liveness is not None:
            self._liveness.stop()
        self._process_end.dismiss_watchdog()

    def _run(self):
        gather = Gatherer('watch')
        while True:
            report = self._report()
            with self._liveness.waiting():
                try:
                    states = gather(report)
                except tf.errors.OpError:
                    # Horovod has shut down, or an operation of its has failed, because a process
                    # ended that had said nothing before. Which one, `liveness` is about to find
                    # out.
                    self.await_problem()
                    silent = WorkerFailedError('Another rank of the job ended without a word.')
                    self._process_end.fail(silent)
                    break
            problem = diagnose(states, self._step_timeout)
            if problem:
                self._states = states
                if report['state'] != FAILED:
                    self._process_end.fail(problem, reporter_rank(states) == self._rank)
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

    def _lose(self, problem, is_heard):
        words, at_start = '' if is_heard else str(problem), not self._liveness.peers
        self._process_end.fail(problem, words=words, lost=True, at_start=at_start)

    def _on_exception(self, kind, error, trace):
        sentence = ''.join(traceback.format_exception_only(kind, error)).strip()
        if self._process_end.problem is None:
            self._error, self._state = sentence, FAILED
            self._news.set()
            self._has_reported.wait(GRACE_SECONDS)
        # What several ranks find wrong alike, one tells: the lowest of those that did first.
        has_problem = self._process_end.problem is not None
        reports = self._states if has_problem else self._states[: self._rank]
        is_alike = isinstance(error, ParallaxError) and sentence in [
            report['error'] for report in reports
        ]
        if self._process_end.shows(error, is_alike):
            self._excepthook(kind, error, trace)


def _gloo_timeout():
    return int(os.environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS') or 30)
