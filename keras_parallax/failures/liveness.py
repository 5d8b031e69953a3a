"""Which other ranks are alive: found out when Horovod brings no news of them any more.

Horovod's collectives say nothing when a rank is missing; with Gloo, Horovod 0.19.5 gives up after
30 seconds, or as soon as a connection breaks, and ends the whole process. Both is noticed here.
Then the servers of the other ranks are asked, and the rank that does not answer is named.
"""

import contextlib
import itertools
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from keras_parallax.compat.horovod_api import horovod_aborts
from keras_parallax.compat.tensorflow_api import answers_calls
from keras_parallax.errors import WorkerFailedError
from keras_parallax.failures import rendezvous
from keras_parallax.failures.probe import ANSWERS, GONE, SILENT, probe

#: How often it looks whether there are news, at the same times on all ranks: each takes a fifth
#: of a millisecond, and a step is as long as that of the rank that was held up longest.
_TICK_SECONDS = 2.0


#: After so many ticks the watchdog hears that this process lives: sooner than it would look itself.
_TICKS_A_BEAT = 2


#: After this long without news that are due, the others' servers are asked.
_SUSPICION_SECONDS = 5


#: After this long without news a host that has twice not been reached counts as cut off. It is less
#: than Gloo's timeout, so that a job ends within 30 seconds, and more than a network's hiccup.
_CUT_OFF_SECONDS = 10


#: How long a server may take to answer. Its threads do nothing that lasts.
_ANSWER_SECONDS = 4


#: After a connection broke: how often to ask until a process that is ending has ended, and how long
#: to wait in between.
_ATTEMPTS, _BETWEEN_SECONDS = 4, 0.5


#: How long the watchdog of a rank that is lost may take to tell the user: it knows more. Of ranks
#: that end together, some may take a moment longer, too.
_WATCHDOGS_FIRST_SECONDS = 2


#: Its host cannot be reached, or does not answer.
CUT_OFF = 'cut off'


class Peer(NamedTuple):
    """Another rank: the name of its host, and its server's `'address:port'`."""

    host: str
    address: str


def ask(address):
    """Asks a server whether it is alive.

    Args:
        address: its `'address:port'`.

    Returns:
        `ANSWERS`, `GONE` (its host answers that there is no such process), `SILENT` (the process is
        there, but stopped, hung or very busy), or `CUT_OFF`.
    """
    answer = probe(address, _ANSWER_SECONDS)
    if answer != ANSWERS:
        return GONE if answer == GONE else CUT_OFF
    # The kernel accepts connections for a process that is stopped.
    return ANSWERS if answers_calls('grpc://' + address, _ANSWER_SECONDS) else SILENT


def ask_all(peers):
    """Asks the servers of several ranks at once.

    Args:
        peers: dict from ranks to `Peer`s.

    Returns:
        A dict from ranks to `ANSWERS`, `GONE`, `SILENT` or `CUT_OFF`.
    """
    if not peers:
        return {}
    with ThreadPoolExecutor(min(len(peers), 32)) as pool:
        return dict(zip(peers, pool.map(ask, [peer.address for peer in peers.values()])))


def lost_ranks_sentence(peers, answers):
    """One sentence about the ranks that do not answer, or `None` if all do.

    Args:
        peers: dict from ranks to `Peer`s.
        answers: dict from ranks to `ANSWERS`, `GONE`, `SILENT` or `CUT_OFF`.

    Returns:
        A string or `None`.
    """
    parts = []
    for state, singular, plural in (
        (GONE, 'has ended without a word (killed, out of memory, or crashed)', 'have'),
        (CUT_OFF, 'does not answer (its host is down, or the network to it)', 'do'),
        (SILENT, 'does not answer (stopped, hung, or its network is down)', 'do'),
    ):
        ranks = sorted(rank for rank in answers if answers[rank] == state)
        names = ['rank %d on host %s' % (rank, peers[rank].host) for rank in ranks]
        if ranks:
            predicate = singular if len(ranks) == 1 else plural + singular[singular.index(' ') :]
            parts.append(' and '.join(names) + ' ' + predicate)
    text = '; '.join(parts)
    return text[:1].upper() + text[1:] + '.' if text else None


def missing(before, answers, waited):
    """The ranks that have ended or whose host is cut off, while the news are overdue.

    Nobody counts who has missed but one of two askings, and who is silent may have been stopped by
    a debugger, or be very busy: Horovod's own timeout is for that.

    Args:
        before: dict from ranks to what they answered last time.
        answers: the same, of now.
        waited: seconds without news; 0 if a host may be cut off for any time.

    Returns:
        The part of `answers` about those ranks.
    """
    states = (GONE, CUT_OFF) if waited > _CUT_OFF_SECONDS else (GONE,)
    return {
        rank: answer
        for rank, answer in answers.items()
        if answer in states and before.get(rank) in (GONE, CUT_OFF)
    }


def in_vain(absent):
    """What is said of a rank that waits for ranks that did not start.

    Args:
        absent: these and their hosts, as `RendezvousStore.absent` returns them.
    """
    names = [
        'rank %d on ' % late + ('host ' + name if name else 'another host (it is not known which)')
        for late, name in sorted(absent.items())
    ]
    return (
        'has waited in vain for %s to start; see what horovodrun shows of it, or allow more with '
        'horovodrun --gloo-timeout-seconds.' % ' and '.join(names)
    )


class Liveness:
    """A thread that finds out when the job has lost ranks that could not say so.

    Args:
        rank: this process's rank.
        timeout: seconds without news after which the job is given up; 0 for never.
        watchdog: the `Watchdog` of this process, which wants to hear that it lives.
        activity: says by its `lockstep_began` when this rank last began a step that ends for no
            rank before all have begun it. All were there when the one before it ended.
        on_lost: function that is called, once, with the exception that says who is lost, and with
            whether this rank can be heard.

    Attributes:
        peers: dict from ranks to `Peer`s; empty as long as their servers are not known.
    """

    def __init__(self, rank, timeout, watchdog, activity, on_lost):
        self.peers = {}
        self._waiting_since = self._start_deadline = None
        self._rank, self._timeout = rank, timeout
        self._watchdog, self._activity, self._on_lost = watchdog, activity, on_lost
        self._parent = os.getppid()
        self._answers = {}
        self._aborted = self._over = False
        self._woken = threading.Event()
        self._restore = horovod_aborts(self._on_abort)
        self._thread = threading.Thread(target=self._run, name='parallax-liveness')
        self._thread.daemon = True
        self._thread.start()

    @contextlib.contextmanager
    def starting(self, seconds):
        """While open, the ranks come to the place where they meet.

        Args:
            seconds: how long that may take.
        """
        self._start_deadline = time.monotonic() + seconds
        yield
        self._start_deadline = None

    @contextlib.contextmanager
    def waiting(self):
        """While open, the watch waits for news of the other ranks, which are due."""
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since = None

    def stop(self):
        """Looks no longer: the job has come to its end."""
        self._over = True
        self._woken.set()
        # A thread that comes out of TensorFlow while Python 3.6 ends could crash the process.
        self._thread.join()
        self._restore()

    def _on_abort(self):
        """Horovod's own thread comes here instead of ending the process, and stays."""
        self._aborted = True
        self._woken.set()
        while True:
            time.sleep(3600)

    def _run(self):
        problem = None
        for tick in itertools.count(int(time.time() / _TICK_SECONDS)):
            self._woken.wait(_TICK_SECONDS - time.time() % _TICK_SECONDS)
            self._woken.clear()
            if self._over:
                break
            if tick % _TICKS_A_BEAT == 0:
                self._watchdog.beat()
            if problem is None:
                problem = self._problem()
                if problem is not None:
                    self._on_lost(WorkerFailedError(problem), self._has_launcher())

    def _has_launcher(self):
        return os.getppid() == self._parent

    def _problem(self):
        """The sentence that says why the job cannot go on, or `None`."""
        if not self._has_launcher():
            return self._named('has lost its launcher: horovodrun, or ssh, was killed.')
        if self._aborted:
            return self._after_abort()
        deadline = self._start_deadline
        if deadline is not None and time.monotonic() > deadline:
            return self._absent()
        since = self._waiting_since
        # Where steps last about as long as ranks wait before they report, one may do so a few steps
        # before the others.
        if since is None or self._waited(since) < _SUSPICION_SECONDS:
            self._answers = {}
            return None
        before, self._answers = self._answers, ask_all(self.peers)
        waited = self._waited(since)
        if self._waiting_since != since:
            # The news came while this thread was asking.
            return None
        if not self._timeout or waited <= self._timeout:
            return lost_ranks_sentence(
                self.peers, missing(before, self._answers, self._timeout and waited)
            )
        return lost_ranks_sentence(self.peers, self._answers) or (
            'Rank %d has had no news of the other ranks for %d s (step_timeout), although their '
            'servers answer.' % (self._rank, waited)
        )

    def _waited(self, since):
        return time.monotonic() - max(since, self._activity.lockstep_began)

    def _absent(self):
        """The sentence about ranks that did not start, or `None`."""
        absent = rendezvous.RendezvousStore(os.environ).absent()
        return self._named(in_vain(absent)) if absent else None

    def _after_abort(self):
        time.sleep(_WATCHDOGS_FIRST_SECONDS)
        answers, counted = {}, {}
        for _ in range(_ATTEMPTS if self.peers else 0):
            before, answers = answers, ask_all(self.peers)
            # A server may be too busy to answer once.
            counted = {
                rank: answer
                for rank, answer in answers.items()
                if answer in (GONE, CUT_OFF) or answer == before.get(rank) == SILENT
            }
            if counted:
                break
            self._watchdog.beat()
            time.sleep(_BETWEEN_SECONDS)
        named = lost_ranks_sentence(self.peers, counted) or self._absent()
        return named or self._named(
            'has lost its connection to another rank; see what that has said itself, and the exit '
            'status that horovodrun shows.'
        )

    def _named(self, text):
        return 'Rank %d on host %s %s' % (self._rank, socket.gethostname(), text)
