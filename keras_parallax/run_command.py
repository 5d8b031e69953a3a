"""The command `keras-parallax run`: starts a job anew when it has failed."""

import ctypes
import os
import signal
import subprocess
import time

import click

#: Environment variable that tells the ranks how often their job has been restarted: `0`, `1`, ...
RESTARTS_VARIABLE = 'KERAS_PARALLAX_RESTARTS'
_LONGEST_DELAY_SECONDS = 300
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


def delay(restart, first):
    """Seconds to wait before a restart: each time twice as long, at most 300.

    Args:
        restart: number of the restart, from 1.
        first: seconds before the first.

    Returns:
        A number of seconds.
    """
    return min(first * 2.0 ** (restart - 1), _LONGEST_DELAY_SECONDS)


class Runner:
    """Runs a command until it ends well, is interrupted, or has failed too often.

    Args:
        command: list of the command's words.
        environ: its environment, a mapping.
        max_restarts: how often it is started anew.
        backoff: seconds before the first restart.
        say: function that takes a sentence for the user.
    """

    def __init__(self, command, environ, max_restarts, backoff, say):
        self._command, self._environ = command, environ
        self._max_restarts, self._backoff, self._say = max_restarts, backoff, say
        self._process = self._signal = None

    def run(self):
        """Runs the command, and again if it fails.

        Returns:
            The exit code of the last attempt; 128 + n if signal n ended it.
        """
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        for restart in range(self._max_restarts + 1):
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
                self._say('%s; it has been restarted %d times, that is all.' % (ended, restart))
                return code
            wait = delay(restart + 1, self._backoff)
            self._say(
                '%s; restart %d of %d in %g s.' % (ended, restart + 1, self._max_restarts, wait)
            )
            if self._interrupted_within(wait):
                name = signal.Signals(self._signal).name
                self._say('%s; the job is not restarted.' % name)
                return code

    def _attempt(self, restart):
        environ = dict(self._environ, **{RESTARTS_VARIABLE: str(restart)})
        prctl = ctypes.CDLL(None).prctl

        def end_with_parent():
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

        began = time.monotonic()
        # In a session of its own, so that Ctrl-C in a terminal comes here first, and only once.
        self._process = subprocess.Popen(
            self._command, env=environ, start_new_session=True, preexec_fn=end_with_parent
        )
        if self._signal is not None:
            self._process.send_signal(self._signal)
        code = self._process.wait()
        return (code if code >= 0 else 128 - code), time.monotonic() - began

    def _forward(self, number, frame):
        self._signal = number
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _interrupted_within(self, seconds):
        end = time.monotonic() + seconds
        while self._signal is None and time.monotonic() < end:
            time.sleep(0.1)
        return self._signal is not None


def _say(sentence):
    click.echo('keras-parallax run: ' + sentence, err=True)


@click.command()
@click.option(
    '--max-restarts', type=click.IntRange(min=0), default=3, show_default=True,
    help='How often a failed job is started anew.',
)  # fmt: skip
@click.option(
    '--backoff', type=click.FloatRange(min=0), default=5, show_default=True,
    help='Seconds before the first restart; each further one waits twice as long, at most 300.',
)  # fmt: skip
@click.argument('launcher', nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(context, max_restarts, backoff, launcher):
    """Run a job, and start it anew when it fails.

    LAUNCHER is the whole command after `--`, for instance
    `keras-parallax run -- horovodrun -np 4 python train.py`. The script goes on from its last
    checkpoint if it resumes one that exists. The environment variable KERAS_PARALLAX_RESTARTS
    tells it how often the job has been restarted. A job that ends well, or by Ctrl-C or SIGTERM, is
    not restarted. The exit code is that of the last attempt.
    """
    try:
        runner = Runner(list(launcher), os.environ, max_restarts, backoff, _say)
        context.exit(runner.run())
    except FileNotFoundError as error:
        _say('%s could not be started: %s.' % (launcher[0], error))
        context.exit(127)
