# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The watch over the other workers of a job.

`horovodrun` 0.19.5 waits for every process even after one has failed, so a worker that waits for a
failed one would wait for ever. Every worker therefore tells the others how it is over Horovod, from
a thread of its own, as often as `diagnosis.report_due` says. Of a worker that can no longer tell,
its watchdog does.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Type, cast

from keras_parallax.compat.horovod_api import horovod_aborts
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.failures import rendezvous
from keras_parallax.engine.failures.diagnosis import (
    FAILED,
    FINISHED,
    INTERVAL_SECONDS,
    QUIET_SECONDS,
    RUNNING,
    diagnose,
    report_due,
)
from keras_parallax.engine.failures.watchdog import Watchdog
from keras_parallax.engine.job import last_words, launchers
from keras_parallax.engine.job.activity import Activity
from keras_parallax.engine.job.collectives import Gatherer
from keras_parallax.engine.job.process_end import GRACE_SECONDS, ProcessEnd
from keras_parallax.engine.job.worker_servers import find_own_address
from keras_parallax.engine.job.write_order import WriteOrder
from keras_parallax.errors import ParallaxError, ServerLostError, WorkerFailedError

#: How much longer than a step a worker may hang as a whole, so that not even a thread of Python
#: runs.
_HANG_SECONDS = 30

#: The part of Gloo's timeout, 30 seconds, for which a worker may be stopped: its job is lost by
#: then.
_STOPPED_SHARE = 0.6

#: How often a worker looks whether the others have come.
_LOOK_SECONDS = 0.2

#: How long after Horovod broke off a worker waits to hear why.
_WATCHDOGS_FIRST_SECONDS = 3


class RankWatch:
    """Tells the other workers how this one is, and ends the job when one of them is not well.

    Args:
        step_timeout: seconds that a step, or another wait for all workers, may last; 0 for any
            time.
        activity: the `Activity` of which the other workers hear.
        write_order: the `WriteOrder`, which hears of the other workers.
        process_end: the `ProcessEnd`, which hears why the job cannot go on.
    """

    _error: Optional[str]
    _lost_server: Optional[str]
    _excepthook: Any
    _restore_aborts: Optional[Callable[[], None]]
    _waiting_since: Optional[float]

    def __init__(
        self,
        step_timeout: float,
        activity: Activity,
        write_order: WriteOrder,
        process_end: ProcessEnd,
    ) -> None:
        self._step_timeout, self._activity = step_timeout, activity
        self._write_order, self._process_end = write_order, process_end
        self._state, self._error, self._lost_server = RUNNING, None, None
        self._rank, self._excepthook, self._restore_aborts = 0, None, None
        self._parent, self._waiting_since = os.getppid(), None
        self._process = os.getpid()
        # Set when this worker has something new to tell, and when it has reported for the last
        # time.
        self._news, self._has_reported = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name='parallax-watch', daemon=True)

    def meet(self, environ: Mapping[str, str]) -> None:
        """Meets the other workers before Horovod does, if its launcher has started the process.

        Who is killed from now on is spoken for. Ends the process if some worker does not come.
        `mpirun` has no place to meet at: there, workers first hear of each other from Horovod.

        Args:
            environ: the process's environment, a mapping.
        """
        last_words.noted.has_begun = True
        _, rank, size = launchers.started(environ)
        if size == 1:
            self._process_end.start_watchdog(rank, lambda: None)
        if size > 1:
            self._look_out(rank)
            with contextlib.suppress(OSError):  # Horovod's workers have met already, or without it.
                rendezvous.leave(environ, rank, self.hub)
                self._await_ranks(environ, size)

    def _await_ranks(self, environ: Mapping[str, str], size: int) -> None:
        hubs: Dict[int, Any] = {}
        absent: Sequence[int] = range(size)
        deadline = time.monotonic() + _gloo_timeout()
        while absent and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS * bool(hubs))
            hubs.update(rendezvous.entries(environ, absent))
            self._check_ended(hubs)
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

    def _check_ended(self, entries: Mapping[int, Any]) -> None:
        """Ends the process if a worker has left the news of its end in the place of its hub."""
        for rank, entry in entries.items():
            if isinstance(entry, dict):
                why = entry['why'] or 'its script was over'
                problem = WorkerFailedError(
                    'Rank %d on host %s ended before it had made a ParallaxStrategy: %s'
                    % (rank, entry['host'], why)
                )
                self._process_end.fail(problem, has_lost=True)
                self._process_end.finish()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While open, an exception that this worker has is told to the others by its watchdog."""
        try:
            yield
        except BaseException as error:
            watchdog = self._process_end.watchdog
            if watchdog is not None and self._process_end.problem is None:
                if launchers.started(os.environ).size > 1:
                    watchdog.report('failed: %s' % last_words.in_words(error))
                else:
                    watchdog.dismiss()
            raise

    @property
    def hub(self) -> Any:
        """Where the other watchdogs find that of rank 0, on which this is."""
        return self._rank == 0 and self._watchdog.place

    @property
    def listener(self) -> Optional[socket.socket]:
        """The socket at which the watchdog of rank 0 listens, `None` on other ranks."""
        watchdog = self._process_end.watchdog
        return watchdog.listener if watchdog is not None else None

    @property
    def _watchdog(self) -> Watchdog:
        """The watchdog of this process, once it has been started."""
        return cast(Watchdog, self._process_end.watchdog)  # `meet` has started it.

    def join(self, hub: Any) -> None:
        """Connects this worker's watchdog to that of rank 0, unless it has been."""
        if self._process_end.watchdog is None:
            self._start_watchdog(hub=hub)

    def start(self, rank: int) -> None:
        """Begins to tell the other workers, if there are any, how this one is.

        Args:
            rank: this process's rank.
        """
        self._look_out(rank)
        self._thread.start()
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception

    def _look_out(self, rank: int) -> None:
        if self._restore_aborts is not None:
            return
        self._rank, self._restore_aborts = rank, horovod_aborts(self._on_abort)
        if rank == 0:
            address = ''
            with contextlib.suppress(ParallaxError):
                address = find_own_address()
            self._start_watchdog(address=address)

    def _start_watchdog(self, **options: Any) -> None:
        stopped_seconds = _STOPPED_SHARE * _gloo_timeout()
        self._process_end.start_watchdog(
            self._rank,
            self._look,
            silence_seconds=self._step_timeout and self._step_timeout + _HANG_SECONDS,
            stopped_seconds=min(self._step_timeout or stopped_seconds, stopped_seconds),
            **options,
        )

    def _on_abort(self) -> None:
        """Horovod's own thread comes here instead of ending the process, and stays."""
        time.sleep(_WATCHDOGS_FIRST_SECONDS)
        problem = WorkerFailedError(
            'Rank %d on host %s has lost its connection to another worker; see what that has said '
            'itself, and the exit status that the launcher shows.'
            % (self._rank, socket.gethostname())
        )
        self._process_end.fail(problem, has_lost=True)
        while True:
            time.sleep(3600)

    def _look(self) -> None:
        """Looks from time to time whether the job has been lost in another way."""
        since, limit = self._waiting_since, self._step_timeout + _HANG_SECONDS + QUIET_SECONDS
        if os.getppid() != self._parent:
            predicate = 'has lost its launcher: horovodrun, mpirun or ssh was killed.'
        elif self._step_timeout and since is not None and time.monotonic() - since > limit:
            predicate = 'has had no news of the other workers for %d s (step_timeout).' % limit
        else:
            return
        self._watchdog.report(predicate)

    def lose_server(self, sentence: str) -> None:
        """Has all workers hear of a dedicated server that is gone, a sentence."""
        self._lost_server = sentence
        if self._excepthook is None:  # There is but one worker.
            self._process_end.fail(ServerLostError(sentence))

    def tell_now(self) -> None:
        """Has the other workers hear of this one as soon as each has something to tell."""
        self._news.set()

    def await_problem(self) -> None:
        """Waits until the watch knows why a step has broken off, or does not either."""
        if self._excepthook is not None:
            self._process_end.decided.wait(GRACE_SECONDS)

    def finish(self) -> None:
        """Comes to the end of the process: the job is over, or cannot go on."""
        error = last_words.error()
        if self._excepthook is not None and error is not None and self._state != FAILED:
            # A hook of the script's own has shown it, and not told the watch.
            self._process_end.shows(error)
            self._tell(error)
        if self._state != FAILED:
            self._state = FINISHED
            self._news.set()
            # The other workers may still read the shards on this process's server. Of workers that
            # are lost the watch never hears.
            while self._thread.is_alive() and not self._process_end.has_lost:
                self._thread.join(INTERVAL_SECONDS)
        self._process_end.finish()
        self._process_end.dismiss_watchdog()
        if self._restore_aborts is not None:
            self._restore_aborts()

    def _run(self) -> None:
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
                silent = WorkerFailedError('Another worker of the job ended without a word.')
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
                    # The others may wait for this worker in an operation of Horovod's.
                    self._process_end.shut_horovod_down()
            if problem or all(state['state'] == FINISHED for state in states):
                break
            self._write_order.hear(states)
            self._rest()
        self._has_reported.set()

    def _report(self) -> Dict[str, Any]:
        return dict(
            {**self._activity.report(), **self._write_order.report(), **last_words.report()},
            state=self._state,
            host=socket.gethostname(),
            error=self._error,
            lost=self._lost_server,
        )

    def _rest(self) -> None:
        """Waits until the other workers are to hear of this one again."""
        reported, writes = time.monotonic(), self._write_order
        while self._state == RUNNING and not writes.waits:
            due = report_due(reported, self._activity.lockstep_began, writes.is_awaited)
            seconds = due - time.monotonic()
            if seconds <= 0:
                break
            self._news.wait(seconds)
            self._news.clear()

    def _on_exception(
        self, kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        is_shown = self._process_end.shows(error)
        self._tell(error)
        if is_shown:
            self._excepthook(kind, error, trace)

    def _tell(self, error: BaseException) -> None:
        """Tells the other workers by which exception this one ends."""
        if self._process_end.problem is not None:
            return
        self._error = last_words.in_words(error)
        self._state = FAILED
        self._news.set()
        if self._has_reported.wait(GRACE_SECONDS) or self._process != os.getpid():
            return
        if self._process_end.problem is None:
            # Another worker has no time to hear it over Horovod, and its watchdog has.
            self._watchdog.report('failed: %s' % self._error)


def _gloo_timeout() -> int:
    return int(os.environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS') or 30)
