"""How this process ends: when its job is over, or for a reason why its job cannot go on."""

import contextlib
import os
import socket
import sys
import threading
import time
import weakref

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import abandon_session, tf
from keras_parallax.failures.watchdog import Watchdog

#: How long a rank that cannot go on may take to leave by its exception before it is ended.
GRACE_SECONDS = 15


#: The same, when a rank was lost, for the rank that tells of it. For half of that it does not end:
#: the others are to find the rank that was lost, and not those that ended since.
_GRACE_AFTER_LOSS_SECONDS = 10


#: The same for the others, which are not to end before the one that tells of it.
_GRACE_OF_OTHERS_SECONDS = 20


class ProcessEnd:
    """Ends this process. No lock is held while another process is asked for something.

    Attributes:
        problem: the exception that says why the job cannot go on, or `None`.
        decided: a `threading.Event`, set when there is one.
        lost_at: when other ranks were found to be lost, with which Horovod cannot shut down, or
            `None`.
        watchdog: the `Watchdog` of this process, or `None`.
    """

    def __init__(self):
        self.problem, self.decided = None, threading.Event()
        self.lost_at = self.watchdog = None
        self._rank, self._grace = 0, GRACE_SECONDS
        self._steps, self._sessions = weakref.WeakSet(), weakref.WeakSet()
        self._lock, self._is_failing, self._is_over = threading.Lock(), False, False
        # Whether this rank is the one that tells the user of the problem.
        self._speaks = True
        self._horovods_end = threading.Thread(target=hvd.shutdown, daemon=True)

    def start_watchdog(self, rank, silence_seconds=0, stopped_seconds=0, address=''):
        """Has this process spoken for when it is killed; gives the `Watchdog`, made of these."""
        self._rank = rank
        self.watchdog = Watchdog(
            rank, socket.gethostname(), silence_seconds, stopped_seconds, address
        )
        return self.watchdog

    def interrupt_on_failure(self, step):
        """Has `step.interrupt()` called when the job cannot go on, for as long as it exists."""
        self._steps.add(step)

    def abandon_at_exit(self, session):
        """Gives a session up when the process ends, if the session exists then."""
        self._sessions.add(session)

    def fail(self, problem, speaks=True, words='', lost=False, at_start=False):
        """Ends the job.

        Args:
            problem: the exception that says why.
            speaks: whether this rank tells the user, unless another has.
            words: what is to be told elsewhere, where this rank cannot be heard.
            lost: whether other ranks are lost, with which Horovod cannot shut down.
            at_start: whether there is nothing yet to be interrupted.
        """
        with self._lock:
            if lost:
                self.lost_at = time.monotonic()
            if self._is_over or self._is_failing:
                return
            self._is_failing = True
        # Before anybody sees the problem, for then it may be told.
        self._speaks = speaks and not (self.watchdog and self.watchdog.is_told(words))
        if lost:
            self._grace = _GRACE_AFTER_LOSS_SECONDS if self._speaks else _GRACE_OF_OTHERS_SECONDS
        if at_start:
            self._grace = 0
        self.problem = problem
        self.decided.set()
        last_resort = threading.Timer(self._grace, self._end)
        last_resort.daemon = True
        last_resort.start()
        for step in list(self._steps):
            # Each in a thread of its own: one of a graph that is gone must not hold up the others.
            threading.Thread(target=_interrupt, args=[step], daemon=True).start()

    def shows(self, error, is_told):
        """Whether this rank is to show the user an error by which its script ends.

        Args:
            error: the exception.
            is_told: whether another rank shows the same.
        """
        is_problem = error is self.problem
        shown = not is_told and (self._speaks or not is_problem)
        self._speaks = self._speaks and not is_told and not is_problem
        return shown

    def shut_horovod_down(self):
        """Has Horovod give the other ranks errors for what they have under way.

        What this rank has under way itself never ends then (0.19.5).
        """
        with self._lock:
            if self._horovods_end.ident is None:
                self._horovods_end.start()
        self._horovods_end.join(GRACE_SECONDS)

    def finish(self):
        """Returns if the job is over, with no session left; otherwise ends the process."""
        with self._lock:
            self._is_over = not self._is_failing
        if not self._is_over:
            self.decided.wait(GRACE_SECONDS)
            # Sessions stay as they are: `interrupt` may be running in one of them.
            self._end()
        for session in list(self._sessions):
            abandon_session(session)

    def dismiss_watchdog(self):
        """Says that this process ends, and that there is nothing more to say of it."""
        if self.watchdog is not None:
            self.watchdog.dismiss()

    def _end(self):
        with contextlib.suppress(OSError):  # Who has lost the launcher has nowhere to write to.
            if self._speaks:
                sys.stderr.write('Rank %d ends: %s\n' % (self._rank, self.problem))
            sys.stdout.flush()
            sys.stderr.flush()
        if self.lost_at is not None:
            time.sleep(max(0, self.lost_at + self._grace / 2 - time.monotonic()))
            self.dismiss_watchdog()
            os._exit(1)  # Horovod can no longer shut down.
        self.dismiss_watchdog()
        # The other ranks get an error for what they have under way, where a connection that breaks
        # off would make Gloo abort them before they can say anything.
        self.shut_horovod_down()
        os._exit(1)


def _interrupt(step):
    # A session that is closed, or whose servers are gone, has no step that could be saved.
    with contextlib.suppress(tf.errors.OpError, RuntimeError):
        step.interrupt()
