"""A small process beside each rank: speaks for it when it is killed, ends it when it hangs.

A process that gets SIGKILL, for instance from the kernel when memory runs out, cannot say anything,
and one that is stopped cannot even end. The watchdog is started by path, as a script with nothing
but the standard library, so that it costs a few megabytes and no import of TensorFlow.

The user is to be told once why a job ends, so a rank that has something to tell asks its watchdog,
and the watchdogs ask each other, as `reporter_election` says.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

if __package__:
    from keras_parallax.failures.rendezvous import RendezvousStore
    from keras_parallax.failures.reporter_election import ReporterElection, encoded
else:
    # At the end of the path, where no module of ours can hide one of Python's.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from rendezvous import RendezvousStore
    from reporter_election import ReporterElection, encoded


#: After this long without a beat it looks whether the rank is stopped, and then how often again. A
#: rank that lives beats sooner, and so wakes its watchdog with its beats only.
_QUIET_SECONDS, _TICK_SECONDS = 5, 1


#: `PR_SET_PDEATHSIG` of Linux: "send me this signal when my parent ends".
_SIGNAL_AT_PARENTS_END = 1


#: How long a rank waits for its watchdog's start, and for an answer: that may wait for others.
_START_SECONDS, _PATIENCE_SECONDS = 60, 12


class Watchdog:
    """The watchdog of this process. It ends with the process, or when it is dismissed.

    Args:
        rank: the rank that it speaks of.
        host: the name of this host.
        silence_seconds: how long the rank may be without `beat`; 0 for any time.
        stopped_seconds: how long it may be stopped (SIGSTOP, a debugger); 0 for any time.
        address: where the other watchdogs are to reach this one; empty if they are not to.

    Attributes:
        place: where they do, as `meet` takes it, or `None`.
    """

    def __init__(self, rank, host, silence_seconds, stopped_seconds, address=''):
        words = [os.getpid(), rank, host, silence_seconds, stopped_seconds, address]
        self._process = subprocess.Popen(
            [sys.executable, '-I', os.path.abspath(__file__)] + list(map(str, words)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._writing = threading.Lock()
        self.place = self._answer(_START_SECONDS)

    def beat(self):
        """Says that the rank lives. To be called several times in `silence_seconds`.

        Each call wakes the watchdog, which takes a third of a millisecond.
        """
        self._send('beat')

    def dismiss(self):
        """Says that the rank is about to end, and has said why if there is something to say."""
        self._send('dismiss')

    def meet(self, places):
        """Says where the watchdogs of the other ranks are to be found.

        Args:
            places: the `place` of each, a list in order of rank.
        """
        self._send('meet', places)

    def is_told(self, text=''):
        """Whether the user has been told why the job ends, or is by another rank.

        If not, this rank is to tell it now. One thread asks, once, as `ProcessEnd.fail` does.

        Args:
            text: what there is to tell, if this rank cannot be heard itself. Where another can, it
                is told then.
        """
        self._send('tell', text.replace('\n', ' '))
        return bool(self._answer(_PATIENCE_SECONDS))

    def _answer(self, seconds):
        is_there = select.select([self._process.stdout], [], [], seconds)[0]
        return json.loads((self._process.stdout.readline() if is_there else b'') or b'null')

    def _send(self, *message):
        # The job can do without a watchdog that was ended from outside.
        with contextlib.suppress(BrokenPipeError), self._writing:
            os.write(self._process.stdin.fileno(), encoded(message))


#: What a watchdog says of a rank, by the state in which it finds it.
_SENTENCES = {
    'stopped': 'has been stopped for %(seconds)d s (SIGSTOP or a debugger) and is killed.',
    'silent': 'has hung for %(seconds)d s and is killed.',
    'ending': 'is told to end by SIGTERM, as by horovodrun after Ctrl-C.',
    'out of memory': 'was killed, most likely by the kernel, which ran out of memory on that host '
    'and has killed a process; use smaller batches or tables, or fewer workers on the host.',
    'ended': 'was killed from outside or crashed; the exit status that horovodrun shows tells how: '
    '137 is SIGKILL, 143 SIGTERM, as after Ctrl-C, 139 a segmentation fault, 134 an abort.',
}


def sentence(rank, host, state, seconds=0):
    """What the watchdog of a rank on a host says; `seconds`: how long it is stopped or silent."""
    return 'Rank %d on host %s ' % (rank, host) + _SENTENCES[state] % {'seconds': seconds}


def _out_of_memory_kills():
    """How many processes the kernel has killed for want of memory since the host started."""
    with open('/proc/vmstat') as file:
        for line in file:
            if line.startswith('oom_kill '):
                return int(line.split()[1])
    return 0


def _is_stopped(process):
    try:
        with open('/proc/%d/stat' % process) as file:
            return file.read().rpartition(')')[2].split()[0] in 'Tt'
    except FileNotFoundError:
        return False


def _watch(process, rank, host, silence_seconds, stopped_seconds, election):
    """Watches its parent process until that is dismissed, has ended or had to be ended."""
    kills = _out_of_memory_kills()
    rest, lasts, ended = b'', True, _woken_at_end_of_parent()
    silent = stopped = 0
    limits = [limit for limit in (silence_seconds, stopped_seconds) if limit]
    quiet, tick = (min([seconds] + limits) for seconds in (_QUIET_SECONDS, _TICK_SECONDS))
    due, waited = time.monotonic() + quiet, quiet
    while True:
        lives = os.getppid() == process
        patience = max(0, due - time.monotonic()) if lives else 0
        ready = select.select([0] * lasts + [ended] + election.sources(), [], [], patience)[0]
        if ended in ready:
            os.read(ended, 4096)
        if 0 in ready:
            received = os.read(0, 65536)
            lasts, rest = bool(received), rest + received
        *lines, rest = rest.split(b'\n')
        for line in lines:
            # Who speaks is neither silent nor stopped.
            due, waited, silent, stopped = time.monotonic() + quiet, quiet, 0, 0
            word, *arguments = json.loads(line.decode())
            if word == 'dismiss':
                return
            if word == 'meet':
                election.meet(dict(enumerate(*arguments)))
            elif word == 'tell':
                _reply(election.tell(*arguments))
        for source in ready:
            election.receive(source)
        if not lives:
            break
        if time.monotonic() < due:
            continue
        # Ticks are counted, not seconds: a host that was suspended, or a group of processes that
        # was stopped together with its watchdog, must not find itself overdue.
        silent += waited
        # Of the first wait, it may have been stopped for a part only.
        stopped = stopped + min(waited, tick) if _is_stopped(process) else 0
        due, waited = time.monotonic() + tick, tick
        for state, seconds, limit in (
            ('stopped', stopped, stopped_seconds),
            ('silent', silent, silence_seconds),
        ):
            if limit and seconds >= limit:
                election.tell(sentence(rank, host, state, seconds))
                os.kill(process, signal.SIGKILL)
                return
    state = 'out of memory' if _out_of_memory_kills() > kills else 'ended'
    election.tell(sentence(rank, host, state))


def _woken_at_end_of_parent():
    """A pipe's end that has something to read when this process's parent has ended.

    The parent's pipe does not tell: a fork of it that reads data holds that, too. The kernel sends
    its signal at the end of each thread that the watchdog is a child of, also of the last one.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, int(signal.SIGUSR1))
    return reading


def _reply(answer):
    with contextlib.suppress(OSError):  # The rank may have ended.
        os.write(1, encoded(answer))


class _ToldToEnd(Exception):
    """The watchdog got SIGTERM."""


def _main(process, rank, host, silence_seconds, stopped_seconds, address):
    def end(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _ToldToEnd

    # Ctrl-C in a terminal is for the job, which the watchdog outlives by a moment. But horovodrun
    # may end it first: where the shell has become the rank, it takes the watchdog for the rank.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    election = ReporterElection(rank, address, RendezvousStore(os.environ))
    _reply(election.place)
    try:
        signal.signal(signal.SIGTERM, end)
        _watch(process, rank, host, silence_seconds, stopped_seconds, election)
    except _ToldToEnd:
        election.tell(sentence(rank, host, 'ending'))


if __name__ == '__main__':
    _main(*map(int, sys.argv[1:3]), sys.argv[3], *map(float, sys.argv[4:6]), sys.argv[6])
