"""A small process beside each rank: speaks for it when it is killed, ends it when it hangs.

A process that gets SIGKILL, for instance from the kernel when memory runs out, cannot say anything,
and one that is stopped cannot even end. The guard is started by path, as a script with nothing but
the standard library, so that it costs a few megabytes and no import of TensorFlow.

The user is to be told once why a job ends, so a rank that has something to tell asks its guard, and
the guards ask each other, as `spokesman` tells.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

if __package__:
    from keras_parallax.failures import rendezvous, reporter_election
else:
    # At the end of the path, where no module of ours can hide one of Python's.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import rendezvous
    import reporter_election


#: After this long without a beat it looks whether the rank is stopped, and then how often again. A
#: rank that lives beats sooner, and so wakes its guard with its beats only.
_QUIET_SECONDS, _TICK_SECONDS = 5, 1


#: `PR_SET_PDEATHSIG` of Linux: "send me this signal when my parent ends".
_SIGNAL_AT_PARENTS_END = 1


#: How long a rank waits for its guard, which may have to ask at the place where the ranks meet.
_PATIENCE_SECONDS = 12


class Watchdog:
    """The guard of this process. It ends with the process, or when it is dismissed.

    Args:
        rank: the rank that it speaks of.
        host: the name of this host.
        silence_seconds: how long the rank may be without `beat`; 0 for any time.
        stopped_seconds: how long it may be stopped (SIGSTOP, a debugger); 0 for any time.
        address: where the other guards are to reach this one; `None` if they are not to.

    Attributes:
        place: where they do, as `meet` takes it, or `None`.
    """

    def __init__(self, rank, host, silence_seconds, stopped_seconds, address=None):
        self.place, listener = None, None
        if address is not None:
            # A job goes on without.
            with contextlib.suppress(OSError):
                listener = socket.socket()
                listener.bind((address, 0))
                listener.listen(128)
                self.place = [address, listener.getsockname()[1], uuid.uuid4().hex]
        number = listener.fileno() if self.place else -1
        words = [os.getpid(), rank, host, silence_seconds, stopped_seconds, number]
        self._process = subprocess.Popen(
            [sys.executable, '-I', os.path.abspath(__file__)] + list(map(str, words)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[number] if self.place else [],
        )
        if listener is not None:
            listener.close()
        self._asking = threading.Lock()
        self.meet(self.place)

    def beat(self):
        """Says that the rank lives. To be called several times in `silence_seconds`.

        Each call wakes the guard, which takes a third of a millisecond.
        """
        self._write(reporter_election.BEAT)

    def dismiss(self):
        """Says that the rank is about to end, and has said why if there is something to say."""
        self._write(reporter_election.DISMISS)

    def meet(self, place):
        """Says where the guard of rank 0 is to be found.

        Args:
            place: its address, its port, and a word that only the guards of this job know; `None`
                if it is not to be found.
        """
        if place is not None:
            self._write('%s %s %d %s' % (reporter_election.MEET, *place))

    def is_told(self, sentence='', alone=True):
        """Whether the user has been told why the job ends, or is by another rank.

        If not, this rank is to tell it now.

        Args:
            sentence: what there is to tell, if this rank cannot be heard itself. Where another can,
                it is told then.
            alone: whether this rank is to tell it if no other guard can be asked.
        """
        word = reporter_election.TELL if alone else reporter_election.OFFER
        with self._asking:
            self._write(('%s %s' % (word, sentence.replace('\n', ' '))).strip())
            try:
                if select.select([self._process.stdout], [], [], _PATIENCE_SECONDS)[0]:
                    answer = os.read(self._process.stdout.fileno(), reporter_election.LONGEST_LINE)
                    if answer:
                        return answer.decode().strip() == reporter_election.DONE
            except OSError:
                pass
            return not alone  # The guard was ended from outside.

    def _write(self, line):
        try:
            os.write(self._process.stdin.fileno(), (line + '\n').encode())
        except BrokenPipeError:
            pass  # The guard was ended from outside; the job can do without it.


def sentence(rank, host, state, seconds=0, out_of_memory=False):
    """What the guard says.

    Args:
        rank: the rank that it speaks of.
        host: the name of its host.
        state: `'ended'`, `'ending'`, `'stopped'` or `'silent'`.
        seconds: how long it has been stopped or silent.
        out_of_memory: whether the kernel has killed a process of the host for want of memory.

    Returns:
        A string.
    """
    name = 'Rank %d on host %s' % (rank, host)
    if state == 'stopped':
        return '%s has been stopped for %d s (SIGSTOP or a debugger) and is killed.' % (
            name,
            seconds,
        )
    if state == 'silent':
        return '%s has hung for %d s and is killed.' % (name, seconds)
    if state == 'ending':
        return '%s is told to end by SIGTERM, as by horovodrun after Ctrl-C.' % name
    if out_of_memory:
        return (
            '%s was killed, most likely by the kernel, which ran out of memory on that host and '
            'has killed a process; use smaller batches or tables, or fewer workers on the host.'
            % name
        )
    return (
        '%s was killed from outside or crashed; the exit status that horovodrun shows tells how: '
        '137 is SIGKILL, 143 SIGTERM, as after Ctrl-C, 139 a segmentation fault, 134 an abort.'
        % name
    )


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


def _guard(process, rank, host, silence_seconds, stopped_seconds, teller):
    """Watches its parent process until that is dismissed, has ended or had to be ended."""
    kills = _out_of_memory_kills()
    lines, lasts, ended = reporter_election.Lines(0), True, _woken_at_end_of_parent()
    silent = stopped = 0
    limits = [limit for limit in (silence_seconds, stopped_seconds) if limit]
    quiet, tick = (min([seconds] + limits) for seconds in (_QUIET_SECONDS, _TICK_SECONDS))
    due, waited = time.monotonic() + quiet, quiet
    while True:
        lives = os.getppid() == process
        patience = max(0, due - time.monotonic()) if lives else 0
        ready = select.select([0] * lasts + [ended] + teller.sockets(), [], [], patience)[0]
        if ended in ready:
            os.read(ended, reporter_election.LONGEST_LINE)
        received = lines.read() if 0 in ready else []
        lasts = lasts and received is not None
        for line in received or ():
            word, _, rest = line.partition(' ')
            if word == reporter_election.DISMISS:
                return
            # Who speaks is neither silent nor stopped.
            due, waited, silent, stopped = time.monotonic() + quiet, quiet, 0, 0
            if word == reporter_election.MEET:
                teller.meet(*rest.split())
            elif word in (reporter_election.TELL, reporter_election.OFFER):
                is_told = teller.tell(rest, alone=word == reporter_election.TELL)
                _reply(reporter_election.DONE if is_told else reporter_election.YOU)
        for each in ready:
            if each not in (0, ended):
                teller.receive(each)
        if not lives:
            break
        if time.monotonic() < due:
            continue
        # Ticks are counted, not seconds: a host that was suspended, or a group of processes that
        # was stopped together with its guard, must not find itself overdue.
        silent += waited
        # Of the first wait, it may have been stopped for a part only.
        stopped = stopped + min(waited, tick) if _is_stopped(process) else 0
        due, waited = time.monotonic() + tick, tick
        for state, seconds, limit in (
            ('stopped', stopped, stopped_seconds),
            ('silent', silent, silence_seconds),
        ):
            if limit and seconds >= limit:
                teller.tell(sentence(rank, host, state, seconds))
                os.kill(process, signal.SIGKILL)
                return
    teller.tell(sentence(rank, host, 'ended', out_of_memory=_out_of_memory_kills() > kills))


def _woken_at_end_of_parent():
    """A pipe's end that has something to read when this process's parent has ended.

    The parent's pipe does not tell: a fork of it that reads data holds that, too. The kernel sends
    its signal at the end of each thread that the guard is a child of, and of the last one's also.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, int(signal.SIGUSR1))
    return reading


def _reply(word):
    with contextlib.suppress(OSError):  # The rank may have ended.
        os.write(1, (word + '\n').encode())


class _ToldToEnd(Exception):
    """The guard got SIGTERM."""


def _main(process, rank, host, silence_seconds, stopped_seconds, listener):
    def end(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _ToldToEnd

    place = rendezvous.RendezvousStore(os.environ)
    teller = reporter_election.ReporterElection(
        rank,
        socket.socket(fileno=listener) if listener >= 0 else None,
        lambda rank: rendezvous.claim(place, rank),
    )
    # Ctrl-C in a terminal is for the job, which the guard outlives by a moment. But horovodrun may
    # end the guard first: where the shell has become the rank, it takes the guard for the rank.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGTERM, end)
        _guard(process, rank, host, silence_seconds, stopped_seconds, teller)
    except _ToldToEnd:
        teller.tell(sentence(rank, host, 'ending'))


if __name__ == '__main__':
    _main(
        *map(int, sys.argv[1:3]), sys.argv[3], *map(float, sys.argv[4:6]), listener=int(sys.argv[6])
    )
