"""A small process beside each rank: speaks for it when it is killed, ends it when it hangs.

A process that gets SIGKILL, for instance from the kernel when memory runs out, cannot say anything,
and one that is stopped cannot even end. The guard is started by path, as a script with nothing but
the standard library, so that it costs a few megabytes and no import of TensorFlow.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys

_BEAT, _DISMISS = b'.', b'x'
_TICK_SECONDS = 0.5


class Guard:
    """The guard of this process. It ends with the process, or when it is dismissed.

    Args:
        rank: the rank that it speaks of.
        host: the name of this host.
        silence_seconds: how long the rank may be without `beat`; 0 for any time.
        stopped_seconds: how long it may be stopped (SIGSTOP, a debugger); 0 for any time.
    """

    def __init__(self, rank, host, silence_seconds, stopped_seconds):
        words = [os.getpid(), rank, host, silence_seconds, stopped_seconds]
        self._process = subprocess.Popen(
            [sys.executable, '-I', os.path.abspath(__file__)] + list(map(str, words)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    def beat(self):
        """Says that the rank lives. To be called several times in `silence_seconds`."""
        self._write(_BEAT)

    def dismiss(self):
        """Says that the rank is about to end, and has said why if there is something to say."""
        self._write(_DISMISS)

    def _write(self, what):
        try:
            os.write(self._process.stdin.fileno(), what)
        except BrokenPipeError:
            pass  # The guard was ended from outside; the job can do without it.


def sentence(rank, host, state, seconds=0, out_of_memory=False):
    """What the guard says.

    Args:
        rank: the rank that it speaks of.
        host: the name of its host.
        state: `'ended'`, `'stopped'` or `'silent'`.
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
    if out_of_memory:
        return (
            '%s was killed, most likely by the kernel, which ran out of memory on that host and '
            'has killed a process; use smaller batches or tables, or fewer workers on the host.'
            % name
        )
    return (
        '%s was killed from outside or crashed; the exit status that horovodrun shows tells how: '
        '137 is SIGKILL, 143 SIGTERM, 139 a segmentation fault, 134 an abort.' % name
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


def _guard(process, rank, host, silence_seconds, stopped_seconds):
    """Watches its parent process until that is dismissed, has ended or had to be ended."""
    kills = _out_of_memory_kills()
    silent = stopped = 0
    while True:
        lives = os.getppid() == process
        # Ticks are counted, not seconds: a host that was suspended, or a group of processes that
        # was stopped together with its guard, must not find itself overdue.
        ready = select.select([0], [], [], _TICK_SECONDS if lives else 0)[0]
        received = os.read(0, 65536) if ready else b''
        if _DISMISS in received:
            return
        if not lives:
            break
        if ready and not received:
            # The process is ending.
            select.select([], [], [], _TICK_SECONDS)
        silent = 0 if received else silent + _TICK_SECONDS
        stopped = stopped + _TICK_SECONDS if _is_stopped(process) else 0
        for state, seconds, limit in (
            ('stopped', stopped, stopped_seconds),
            ('silent', silent, silence_seconds),
        ):
            if limit and seconds >= limit:
                _say(sentence(rank, host, state, seconds))
                os.kill(process, signal.SIGKILL)
                return
    _say(sentence(rank, host, 'ended', out_of_memory=_out_of_memory_kills() > kills))


def _say(text):
    # The terminal may have gone, with the launcher for instance.
    with contextlib.suppress(OSError):
        sys.stderr.write(text + '\n')
        sys.stderr.flush()


if __name__ == '__main__':
    # Ctrl-C in a terminal is for the job, which the guard outlives by a moment.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
