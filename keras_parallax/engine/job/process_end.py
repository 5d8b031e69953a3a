# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How this process ends: when its job is over, or for a reason why its job cannot go on."""

import contextlib
import os
import socket
import sys
import threading
import time
import weakref
from typing import Any, Callable, Optional

from typing_extensions import Protocol

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import abandon_session, tf
from keras_parallax.engine.failures.watchdog import Watchdog
from keras_parallax.errors import ParallaxError, WorkerFailedError
from keras_parallax.framework_types import Session

#: How long a worker that cannot go on may take to leave by its exception before it is ended.
GRACE_SECONDS = 15


#: The same when a worker was lost: with the time until that is found out, 30 seconds.
_GRACE_AFTER_LOSS_SECONDS = 8

#: How long a worker stays that leaves it to another one to tell the user. The launcher (Horovod
#: 0.19.5 and 0.28.1) ends all workers with the first that ends, and the other may still have to
#: leave its step (`tests/parallel/test_keras3_behaviour.py`, that of a rank that does not come).
_STAY_SECONDS = 3


class Interruptible(Protocol):
    """Something that waits for other workers, for instance a step."""

    def interrupt(self) -> None:
        """Has it wait no longer."""


class ProcessEnd:
    """Ends this process. No lock is held while another process is asked for something.

    Attributes:
        problem: the exception that says why the job cannot go on, or `None`.
        decided: a `threading.Event`, set when there is one.
        has_lost: whether workers are lost, with which Horovod cannot shut down.
        watchdog: the `Watchdog` of this process, or `None`.
    """

    problem: Optional[BaseException]
    watchdog: Optional[Watchdog]
    _steps: 'weakref.WeakSet[Interruptible]'
    _sessions: 'weakref.WeakSet[Any]'

    def __init__(self) -> None:
        self.problem, self.decided, self.has_lost = None, threading.Event(), False
        self._rank, self.watchdog = 0, None
        self._steps, self._sessions = weakref.WeakSet(), weakref.WeakSet()
        self._lock, self._is_failing, self._is_over = threading.Lock(), False, False
        # Whether this worker is the one that tells the user of the problem.
        self._speaks = True
        self._another_speaks = False
        self._horovods_end = threading.Thread(target=hvd.shutdown, daemon=True)

    def start_watchdog(self, rank: int, look: Callable[[], None], **options: Any) -> None:
        """Has this process spoken for when it is killed.

        Args:
            rank: this process's rank.
            look: as `Watchdog.attend` takes it.
            **options: as `Watchdog` takes them.
        """
        self._rank = rank
        self.watchdog = Watchdog(rank, socket.gethostname(), **options)
        self.watchdog.attend(self._on_lost, look)

    def _on_lost(self, text: str, is_told: bool) -> None:
        self.fail(WorkerFailedError(text), not is_told, has_lost=True)

    def interrupt_on_failure(self, step: Interruptible) -> None:
        """Has `step.interrupt()` called when the job cannot go on, for as long as it exists."""
        self._steps.add(step)

    def abandon_at_exit(self, session: Session) -> None:
        """Gives a session up when the process ends, if the session exists then."""
        self._sessions.add(session)

    def fail(self, problem: BaseException, speaks: bool = True, has_lost: bool = False) -> None:
        """Ends the job.

        Args:
            problem: the exception that says why.
            speaks: whether this worker tells the user, unless another has.
            has_lost: whether workers are lost, with which Horovod cannot shut down.
        """
        with self._lock:
            self.has_lost = self.has_lost or has_lost
            if self._is_over or self._is_failing:
                return
            self._is_failing = True
        # Before anybody sees the problem, for then it may be told.
        self._speaks = speaks and self._claim(problem) == [self._rank, str(problem)]
        self._another_speaks = not self._speaks
        self.problem = problem
        self.decided.set()
        grace = _GRACE_AFTER_LOSS_SECONDS if has_lost else GRACE_SECONDS
        last_resort = threading.Timer(grace, self._end)
        last_resort.daemon = True
        last_resort.start()
        for step in list(self._steps):
            # Each in a thread of its own: one of a graph that is gone must not hold up the others.
            threading.Thread(target=_interrupt, args=[step], daemon=True).start()

    def _claim(self, error: BaseException) -> Any:
        if self.watchdog is None:
            return [self._rank, str(error)]
        return self.watchdog.claim(str(error))

    def shows(self, error: BaseException) -> bool:
        """Whether this worker is to show the user an error by which its script ends."""
        if error is self.problem:
            shown, self._speaks = self._speaks, False
            return shown
        if not isinstance(error, ParallaxError):
            return True
        # What several workers find wrong alike, the first of them tells.
        teller, text = self._claim(error)
        return teller == self._rank or text != str(error)

    def shut_horovod_down(self) -> None:
        """Has Horovod give the other workers errors for what they have under way.

        What this worker has under way itself never ends then (0.19.5).
        """
        with self._lock:
            if self._horovods_end.ident is None:
                self._horovods_end.start()
        self._horovods_end.join(GRACE_SECONDS)

    def finish(self) -> None:
        """Returns if the job is over, with no session left; otherwise ends the process."""
        with self._lock:
            self._is_over = not self._is_failing
        if not self._is_over:
            self.decided.wait(GRACE_SECONDS)
            # Sessions stay as they are: `interrupt` may be running in one of them.
            self._end()
        for session in list(self._sessions):
            abandon_session(session)

    def dismiss_watchdog(self) -> None:
        """Says that this process ends, and that there is nothing more to say of it."""
        if self.watchdog is not None:
            self.watchdog.dismiss()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # Who has lost the launcher has nowhere to write to.
            if self._speaks:
                sys.stderr.write('Rank %d ends: %s\n' % (self._rank, self.problem))
            sys.stdout.flush()
            sys.stderr.flush()
        self.dismiss_watchdog()
        if not self.has_lost:
            # The other workers get an error for what they have under way, where a connection that
            # breaks off would make Gloo abort them before they can say anything.
            self.shut_horovod_down()
            if self._another_speaks:
                time.sleep(_STAY_SECONDS)
        os._exit(1)


def _interrupt(step: Interruptible) -> None:
    # A session that is closed, or whose servers are gone, has no step that could be saved.
    with contextlib.suppress(tf.errors.OpError, RuntimeError):
        step.interrupt()
