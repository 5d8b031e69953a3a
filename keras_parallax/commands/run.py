# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The command `keras-parallax run`: starts a job, shows one screen, restarts it on failure."""

import contextlib
import ctypes
import datetime
import os
import signal
import subprocess
import time
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import click
import psutil

from keras_parallax.commands import host_files, launcher_path, rank_output, start_up_notes

#: Environment variable that tells the workers how often their job has been restarted: `0`, `1`, ...
RESTARTS_VARIABLE = 'KERAS_PARALLAX_RESTARTS'

#: Where files of jobs go if no folder is given: a folder for each job.
LOGS_FOLDER = 'keras-parallax-logs'

#: As in `keras_parallax.logs`, which would load more than this command needs.
_LEVEL_VARIABLE = 'KERAS_PARALLAX_LOG_LEVEL'

_LONGEST_DELAY_SECONDS = 300
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1

#: What `horovodrun` has in the command of each worker, and the programs to which it may leave that.
_RANK, _STARTERS = 'HOROVOD_RANK=', {'mpirun', 'jsrun'}

STARTING, STARTED, UNKNOWN = 'starting', 'started', 'unknown'
_LOOK_SECONDS = 0.5

#: How long a launcher that is told to end may take.
_END_SECONDS = 15


def delay(restart: int, first: float) -> float:
    """Seconds to wait before restart 1, 2, ...: each time twice as long, at most 300."""
    return min(first * 2.0 ** (restart - 1), _LONGEST_DELAY_SECONDS)


def stage(commands: Sequence[Sequence[str]]) -> str:
    """How far a launcher has come, given the commands, lists of words, that it consists of.

    `STARTED` if there is a worker, `STARTING` if there is only `horovodrun`, otherwise `UNKNOWN`:
    it may be any command.
    """
    names = {os.path.basename(word) for words in commands for word in words[:2]}
    if names & _STARTERS or any(_RANK in word for words in commands for word in words):
        return STARTED
    return STARTING if 'horovodrun' in names else UNKNOWN


def _commands(process: psutil.Process) -> List[List[str]]:
    """The commands of a process and of all that it has started."""
    commands = []
    with contextlib.suppress(psutil.Error):  # It ends.
        for started in [process] + process.children(recursive=True):
            commands.append(started.cmdline())
    return commands


class Runner:
    """Runs a command until it ends well, is interrupted, or has failed too often.

    Args:
        command: list of the command's words.
        environ: its environment, a mapping.
        max_restarts: how often it is started anew.
        backoff: seconds before the first restart.
        start_limit: seconds in which `horovodrun` must have started a worker; 0 for any time.
        say: function that takes a sentence for the user.
        output: the `RankOutput` that reads what it prints, or `None`.
    """

    def __init__(
        self,
        command: List[str],
        environ: Mapping[str, str],
        max_restarts: int,
        backoff: float,
        start_limit: float,
        say: Callable[[str], None],
        output: Optional[rank_output.RankOutput] = None,
    ) -> None:
        self._command, self._environ = command, environ
        self._max_restarts, self._backoff = max_restarts, backoff
        self._start_limit, self._say = start_limit, say
        self._output = output
        self._process: Optional[subprocess.Popen] = None
        self._signal: Optional[int] = None

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal has told this process to end."""
        return self._signal is not None

    def run(self) -> int:
        """Runs the command, and again if it fails; returns the exit code of the last attempt.

        That is 128 + n if signal n ended it.
        """
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        restart = 0
        while True:
            code, seconds = self._attempt(restart)
            if code == 0:
                if restart:
                    self._say('the job has ended well after restart %d.' % restart)
                return code
            ended = 'the job failed with exit code %d after %.0f s' % (code, seconds)
            if self._signal is not None:
                name = signal.Signals(self._signal).name
                self._say('%s, because of %s; it is not restarted.' % (ended, name))
                return code
            if restart == self._max_restarts:
                self._say(ended + _given_up(restart))
                return code
            wait = delay(restart + 1, self._backoff)
            self._say(
                '%s; restart %d of %d in %g s.' % (ended, restart + 1, self._max_restarts, wait)
            )
            came = self._signal_within(wait)
            if came is not None:
                name = signal.Signals(came).name
                self._say('%s; the job is not restarted.' % name)
                return code
            restart += 1

    def _attempt(self, restart: int) -> Tuple[int, float]:
        environ = dict(self._environ, **{RESTARTS_VARIABLE: str(restart)})
        prctl = ctypes.CDLL(None).prctl

        def end_with_parent() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

        began = time.monotonic()
        # In a session of its own, so that Ctrl-C in a terminal comes here first, and only once.
        pipe = subprocess.PIPE if self._output is not None else None
        process = self._process = subprocess.Popen(
            self._command,
            env=environ,
            start_new_session=True,
            preexec_fn=end_with_parent,
            stdout=pipe,
            stderr=pipe,
        )
        if self._output is not None:
            self._output.read(process, self._command)
        if self._signal is not None:
            process.send_signal(self._signal)
        if self._start_limit and not self._starts(process, began + self._start_limit):
            self._say(
                'horovodrun has started no worker within %g s; it is ended.' % self._start_limit
            )
            self._end(process)
        code = process.wait()
        if self._output is not None:
            self._output.finish()
        return (code if code >= 0 else 128 - code), time.monotonic() - began

    def _starts(self, process: subprocess.Popen, deadline: float) -> bool:
        """Whether the launcher starts a worker, or ends, before a time.

        Horovod 0.19.5 forks a process that loads TensorFlow, just after threads of its own have
        ended, and waits for it for ever: once in some hundred launches, it hangs.
        """
        launcher = psutil.Process(process.pid)
        while process.poll() is None:
            reached = stage(_commands(launcher))
            if reached == STARTED or time.monotonic() > deadline:
                return reached != STARTING
            time.sleep(_LOOK_SECONDS)
        return True

    def _end(self, process: subprocess.Popen) -> None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        # What it has forked may hang as well; it is in the launcher's session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _forward(self, number: int, frame: Any) -> None:
        self._signal = number
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _signal_within(self, seconds: float) -> Optional[int]:
        """The signal that comes within some seconds, or `None`."""
        end = time.monotonic() + seconds
        while self._signal is None and time.monotonic() < end:
            time.sleep(0.1)
        return self._signal


def _given_up(restarts: int) -> str:
    if not restarts:
        return '.'
    return '; giving up after %d restart%s.' % (restarts, 's' * (restarts > 1))


def _not_started(word: str, error: OSError) -> str:
    """What to say of a launcher that is not there."""
    problem = launcher_path.problem(launcher_path.found(), launcher_path.beside())
    if word != launcher_path.NAME or problem is None:
        return '%s could not be started: %s.' % (word, error)
    return '%s could not be started: %s %s' % (word, *problem)


def _say(sentence: str) -> None:
    click.echo('keras-parallax run: ' + sentence, err=True)


def _new_folder(now: datetime.datetime) -> str:
    """Makes a folder for the files of a job, and returns its path."""
    name = os.path.join(LOGS_FOLDER, now.strftime('%Y-%m-%d-%H%M%S'))
    number, folder = 1, name
    while True:
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            number += 1
            folder = '%s-%d' % (name, number)


def _own_words(processes: int, hosts: Optional[str], words: Sequence[str]) -> List[str]:
    """The command that starts some workers, given that of one."""
    python = ['python'] if words[0].endswith('.py') else []
    places = hosts or 'localhost:%d' % processes
    return ['horovodrun', '-np', str(processes), '-H', places, *python, *words]


def _prefer_own_programs(environ: Dict[str, str]) -> None:
    """Has `horovodrun` and `python` be those beside this Python, activated or not."""
    own = launcher_path.beside()
    if own is not None:
        environ['PATH'] = os.path.dirname(own) + os.pathsep + environ.get('PATH', os.defpath)


def _tell_cause(output: rank_output.RankOutput) -> None:
    """Says what has ended a job, in the last line of the screen."""
    cause = output.cause()
    if cause is None:
        _say('no worker has said why. Full log: ' + output.file_of(None))
        return
    if cause.rank != 0 and cause.traceback:
        # That of rank 0 has been shown as it came.
        click.echo('\n'.join(cause.traceback), err=True)
    _say('%s. Full log: %s' % (cause.text, output.file_of(cause.rank)))


@click.command(context_settings={'allow_interspersed_args': False})
@click.option(
    '-np', '--num-proc', 'processes', type=click.IntRange(min=1), metavar='NUMBER',
    help='Number of workers. LAUNCHER is then the script and its arguments.',
)  # fmt: skip
@click.option(
    '-H', '--hosts', metavar='HOST:SLOTS[,...]',
    help='With -np: the hosts, and how many workers each may have. This machine if not given.',
)  # fmt: skip
@click.option(
    '--resources', 'file', type=click.File(), metavar='FILE',
    help='A file that names the hosts: lines like `worker1: 0, 1`, with the number of a card for '
    'each worker, or like `worker1 slots=2`. LAUNCHER is then the script and its arguments.',
)  # fmt: skip
@click.option(
    '--max-restarts', type=click.IntRange(min=0), default=0, show_default=True,
    help='How often a failed job is started anew.',
)  # fmt: skip
@click.option(
    '--backoff', type=click.FloatRange(min=0), default=5, show_default=True,
    help='Seconds before the first restart; each further one waits twice as long, at most 300.',
)  # fmt: skip
@click.option(
    '--start-limit', type=click.FloatRange(min=0), default=120, show_default=True,
    help='Seconds in which horovodrun must have started a worker, or be ended; 0 for any time.',
)  # fmt: skip
@click.option(
    '--output', 'folder', type=click.Path(file_okay=False), metavar='DIR',
    help='Where a file for each worker has all that it prints, with the time and the rank before '
    'each line. With -np or --resources, a new folder in %s by default.' % LOGS_FOLDER,
)  # fmt: skip
@click.argument('launcher', nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    processes: Optional[int],
    hosts: Optional[str],
    file: Optional[IO[str]],
    max_restarts: int,
    backoff: float,
    start_limit: float,
    folder: Optional[str],
    launcher: Tuple[str, ...],
) -> None:
    """Run a job, show one screen of it, and start it anew when it fails.

    `keras-parallax run -np 2 train.py` starts two workers on this machine. The screen shows what
    rank 0 prints, without start-up notes of TensorFlow and Horovod, unless KERAS_PARALLAX_LOG_LEVEL
    is INFO or DEBUG. If the job fails, the last line names the worker, the error, and the file with
    all that this worker has printed.

    Instead of -np, LAUNCHER may be the whole command after `--`, for instance
    `keras-parallax run -- mpirun -np 4 python train.py`. The screen is then that of the launcher,
    unless --output is given.

    With --max-restarts, the script goes on from its last checkpoint if it resumes one that exists.
    The environment variable KERAS_PARALLAX_RESTARTS tells it how often the job has been restarted.
    A job that ends well, or by Ctrl-C or SIGTERM, is not restarted. The exit code is that of the
    last attempt.
    """
    words, environ = list(launcher), dict(os.environ)
    if processes is not None and file is not None:
        raise click.UsageError('-np and --resources both say how many workers there are: give one.')
    if hosts is not None and processes is None:
        raise click.UsageError('-H needs -np, the number of workers.')
    if processes is not None:
        words = _own_words(processes, hosts, words)
    if file is not None:
        try:
            named = host_files.hosts_of(file.read())
            words = host_files.launcher(named, words)
        except ValueError as error:
            sentence = '%s: %s.' % (file.name, error)
            raise click.BadParameter(sentence, param_hint='--resources') from None
        environ.update(host_files.environ(named))
    if processes is not None or file is not None:
        _prefer_own_programs(environ)
    output = None
    if folder is not None or processes is not None or file is not None:
        try:
            folder = folder or _new_folder(datetime.datetime.now())
            shows_all = start_up_notes.are_wanted(environ.get(_LEVEL_VARIABLE))
            output = rank_output.RankOutput(folder, _say, shows_all)
        except OSError as error:
            sentence = 'nothing can be written to %s: %s.' % (folder or LOGS_FOLDER, error)
            raise click.BadParameter(sentence, param_hint='--output') from None
        # The files have the notes of every worker.
        environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '0')
    try:
        runner = Runner(words, environ, max_restarts, backoff, start_limit, _say, output)
        code = runner.run()
        if code and output is not None and not runner.is_interrupted:
            _tell_cause(output)
        context.exit(code)
    except FileNotFoundError as error:
        _say(_not_started(words[0], error))
        context.exit(127)
