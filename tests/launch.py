"""Starts parallel jobs for the tests with the real `horovodrun`."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
#: A job that hangs is ended after this long; no verdict depends on how fast a job is.
LIMIT_SECONDS = 600
#: How long `horovodrun` may take until it has started a rank; it needs about 2 seconds.
START_SECONDS = 60
#: Makes each rank say that it has come to life, from a shell, before Python has even loaded.
_SAY_STARTED = 'echo "RANK $HOROVOD_RANK STARTED"; exec "$@"'


class Outcome(NamedTuple):
    """What became of a job: exit code (`None` if it had to be ended) and what it printed."""

    code: int
    output: str


def run(ranks, script, *arguments, environ=None, prefix=(), limit=LIMIT_SECONDS):
    """Runs a script of the `tests` folder, under `horovodrun` if `ranks` is not 0.

    Args:
        ranks: number of workers; 0 starts the script as it is, with no launcher.
        script: path below the `tests` folder.
        *arguments: the script's arguments.
        environ: further environment variables.
        prefix: a command that starts the launcher, for instance in a network namespace.
        limit: seconds after which the job is ended and counts as hung.

    Returns:
        An `Outcome`. Every process of the job has ended by then.
    """
    command, full = _prepare(ranks, script, arguments, environ, prefix)
    if ranks:
        outcome = _run(command, full, limit, must_start=True)
        if outcome:
            return outcome
        # Horovod 0.19.5 forks a process that loads TensorFlow to see what it was built with, just
        # after threads of its own have ended, and waits for it without a limit. Once in some
        # hundred launches that process hung, before any code of ours had run, or the dynamic linker
        # stopped it (`dl-sort-maps.c: Assertion`), which horovodrun takes for an empty queue.
        warnings.warn(
            'horovodrun started no rank; once more. It waited %d s at most.' % START_SECONDS,
            stacklevel=2,
        )
    return _run(command, full, limit, must_start=False)


def start(ranks, script, *arguments, output):
    """Starts a script of the `tests` folder under `horovodrun`, and does not wait for its end.

    Args:
        ranks, script, *arguments: as `run` takes them.
        output: a file that is to get what it prints.

    Returns:
        The launcher's `subprocess.Popen`.
    """
    command, full = _prepare(ranks, script, arguments, None, ())
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=full,
        start_new_session=True,
    )


def _prepare(ranks, script, arguments, environ, prefix):
    """The command and the environment for `run` and `start`."""
    folder = os.path.dirname(sys.executable)
    command = [sys.executable, os.path.join(HERE, script)] + list(map(str, arguments))
    if ranks:
        command = [
            os.path.join(folder, 'horovodrun'), '-np', str(ranks), '-H', 'localhost:%d' % ranks,
            '--gloo', 'sh', '-c', _SAY_STARTED, 'sh',
        ] + command  # fmt: skip
    full = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2', **(environ or {}))
    full['PATH'] = folder + os.pathsep + full.get('PATH', '')
    return list(prefix) + command, full


def _run(command, environ, limit, must_start):
    """The `Outcome` of a command; `None` if it must start a rank in time, and has not."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        env=environ,
        start_new_session=True,
    )
    lines = []

    def read():
        # Until no process of the job has the pipe open any more.
        for line in process.stdout:
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.daemon = True
    reader.start()
    reader.join(min(START_SECONDS, limit) if must_start else limit)
    started = not must_start or any(' STARTED' in line for line in list(lines))
    if must_start and started:
        reader.join(limit)
    hangs = reader.is_alive()
    if hangs:
        os.killpg(process.pid, signal.SIGKILL)
        reader.join()
    code = process.wait()
    process.stdout.close()
    if not started and (hangs or code):
        return None
    return Outcome(None if hangs else code, ''.join(lines))
