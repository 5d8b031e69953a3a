# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Starts parallel jobs for the tests: with `horovodrun`, with `mpirun`, as a scheduler does."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from typing import NamedTuple

import psutil
import run_alone

from keras_parallax.engine.failures import watchdog

HERE = os.path.dirname(os.path.abspath(__file__))
#: A job that hangs is ended after this long; no verdict depends on how fast a job is. On a machine
#: with much other work to do, the largest were still at work after ten minutes.
LIMIT_SECONDS = 1200
#: How long `horovodrun` may take until it has started a worker; it needs about 2 seconds.
START_SECONDS = 60
#: Makes each worker say that it has come to life, from a shell, before Python has even loaded.
_SAY_STARTED = (
    'echo "RANK ${HOROVOD_RANK-${OMPI_COMM_WORLD_RANK-${SLURM_PROCID-$JOB_COMPLETION_INDEX}}} '
    'STARTED"; exec "$@"'
)

#: The launchers of Open MPI may run as root in a container, and leave a processor that they wait on
#: to others: tests have more processes than processors.
MPI_ENVIRON = {
    'OMPI_ALLOW_RUN_AS_ROOT': '1',
    'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'OMPI_MCA_mpi_yield_when_idle': '1',
}
#: How each launcher is told of the number of workers.
LAUNCHERS = {
    'horovodrun --gloo': 'horovodrun -np %d -H localhost:%d --gloo',
    'horovodrun --mpi': 'horovodrun -np %d -H localhost:%d --mpi',
    'slurm': 'as_scheduler.py slurm %d',
    'kubernetes': 'as_scheduler.py kubernetes %d',
    'mpirun': 'mpirun -np %d -H localhost:%d --bind-to none --mca btl_tcp_if_include lo',
}


class Outcome(NamedTuple):
    """What became of a job: exit code (`None` if it had to be ended) and what it printed."""

    code: int
    output: str


def one_screen(folder):
    """A prefix for `run`: `keras-parallax run`, which shows what `make demo` shows.

    Args:
        folder: where each worker's file is to be.
    """
    return [*run_alone.COMMAND, '--output', str(folder), '--']


def run(
    ranks,
    script,
    *arguments,
    environ=None,
    prefix=(),
    limit=LIMIT_SECONDS,
    launcher='horovodrun --gloo',
):
    """Runs a script of the `tests` folder, under a launcher if `ranks` is not 0.

    Args:
        ranks: number of workers; 0 starts the script as it is, with no launcher.
        script: path below the `tests` folder.
        *arguments: the script's arguments.
        environ: further environment variables.
        prefix: a command that starts the launcher, for instance in a network namespace.
        limit: seconds after which the job is ended and counts as hung.
        launcher: one of `LAUNCHERS`.

    Returns:
        An `Outcome`. Every process of the job has ended by then.
    """
    command, full = _prepare(ranks, script, arguments, environ, prefix, launcher)
    if ranks and prefix:
        outcome = _run(command, full, limit, must_start=True)
        if outcome:
            return outcome
        # `horovodrun` itself: that of Horovod 0.19.5 forks a process that loads TensorFlow to see
        # what it was built with, just after threads of its own have ended, and waits for it without
        # a limit. Once in some hundred launches that process hung, before any code of ours had run,
        # or the dynamic linker stopped it (`dl-sort-maps.c: Assertion`), which horovodrun takes for
        # an empty queue.
        warnings.warn(
            'horovodrun started no worker; once more. It waited %d s at most.' % START_SECONDS,
            stacklevel=2,
        )
    return _run(command, full, limit, must_start=False)


def start(ranks, script, *arguments, output):
    """Starts a script of the `tests` folder under `horovodrun`, and does not wait for its end.

    Args:
        workers, script, *arguments: as `run` takes them.
        output: a file that is to get what it prints.

    Returns:
        The launcher's `subprocess.Popen`.
    """
    command, full = _prepare(ranks, script, arguments, None, (), 'horovodrun --gloo')
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=full,
        start_new_session=True,
    )


def _prepare(ranks, script, arguments, environ, prefix, launcher):
    """The command and the environment for `run` and `start`."""
    folder = os.path.dirname(sys.executable)
    command = [sys.executable, os.path.join(HERE, script)] + list(map(str, arguments))
    if ranks:
        options = LAUNCHERS[launcher]
        start = (options % ((ranks,) * options.count('%d'))).split()
        if launcher == 'horovodrun --gloo' and not prefix:
            start[:1] = [sys.executable, os.path.join(HERE, 'horovodrun_gloo.py')]
        elif start[0] == 'horovodrun':
            start[0] = os.path.join(folder, start[0])
        elif start[0].endswith('.py'):
            start[:1] = [sys.executable, os.path.join(HERE, start[0])]
        command = start + ['sh', '-c', _SAY_STARTED, 'sh'] + command
    # A process that crashes says where: twice in some hundred jobs one of test_behaviour.py did, as
    # it ended, and nothing was known but that.
    full = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2', PYTHONFAULTHANDLER='1', **MPI_ENVIRON)
    # By default Horovod looks every 5 ms for what to send: 6 % of the processor's time.
    full['HOROVOD_CYCLE_TIME'] = '20'
    full.update(environ or {})
    full['PATH'] = folder + os.pathsep + full.get('PATH', '')
    return list(prefix) + command, full


def _run(command, environ, limit, must_start):
    """The `Outcome` of a command; `None` if it must start a worker in time, and has not."""
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


def read_terminal(descriptor):
    """What was written to a pseudo-terminal whose other end is closed; closes this one, too."""
    shown = b''
    # Linux hands over in parts, and ends with an error.
    with contextlib.suppress(OSError):
        for part in iter(lambda: os.read(descriptor, 65536), b''):
            shown += part
    os.close(descriptor)
    return shown


def wait_until(condition, explain, limit=LIMIT_SECONDS):
    """Waits until `condition()` is true; `explain()` is the message if that takes too long."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def left_over(output):
    """The processes of a job that still run, their watchdogs, and the ports it still has open."""
    processes, ports = [], []
    commands = [process.info['cmdline'] or [] for process in psutil.process_iter(['cmdline'])]
    words = [command[4] for command in commands if command[2:3] == [watchdog.__file__]]
    watched = [str(json.loads(text)[0]) for text in words]
    for number, port in re.findall(r'PROCESS (\d+) PORT (\d+)', output):
        if psutil.pid_exists(int(number)) or number in watched:
            processes.append(number)
        with socket.socket() as probe:
            if probe.connect_ex(('127.0.0.1', int(port))) == 0:
                ports.append(port)
    return processes + ports
