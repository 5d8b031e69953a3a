# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A training run whose ranks are killed again and again, and the same run with no failure.

`keras-parallax run` restarts the job after each kill, and the job goes on from its last checkpoint.
In the end both runs must have the same weights, slots and counters.

    python benchmarks/soak.py --kills 5
"""

import collections
import contextlib
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import click
import numpy as np
from cluster import namespaces
from report import results
from tabulate import tabulate

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_OUT = os.path.join(HERE, '..', 'docs', 'benchmarks', 'soak.json')
RANKS = 2
#: One kill in so many comes while the job starts, and one while it resumes; the others when it has
#: come to a certain place.
EARLY_KILLS = 8
#: A kill comes up to so many seconds later than its place; a start, a resume, or an epoch and its
#: two saves, takes about as long.
LATER_SECONDS = {'start': 6, 'resume': 0.5, 'train': 0.5}
#: Epochs for each kill, more than pass while one is late; and at the end, without a kill.
EPOCHS_PER_KILL, LAST_EPOCHS = 6, 20
#: Horovod's launcher sometimes hangs before it has started a worker; see `tests/launch.py`.
LAUNCH_SECONDS = 90
#: The whole soak is given up when nothing has happened for so long.
PATIENCE_SECONDS = 300


class Failure(Exception):
    """The soak did not go as it must."""


class Run:
    """A job under `keras-parallax run`, in a `with` block.

    Args:
        folder: an existing folder for its checkpoints and its output.
        epochs: how many to train.
        max_restarts: as `keras-parallax run` takes it.
    """

    def __init__(self, folder, epochs, max_restarts):
        self.folder = folder
        programs = os.path.dirname(sys.executable)
        self._command = [
            os.path.join(programs, 'keras-parallax'),
            'run', '--max-restarts', str(max_restarts), '--backoff', '0', '--',
            os.path.join(programs, 'horovodrun'), '--gloo',
            '-np', str(RANKS), '-H', 'localhost:%d' % RANKS,
            sys.executable, os.path.join(HERE, 'soak_worker.py'), folder, str(epochs),
        ]  # fmt: skip

    def __enter__(self):
        environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
        # The programs of the environment start each other by name.
        environ['PATH'] = os.path.dirname(sys.executable) + os.pathsep + environ['PATH']
        with open(os.path.join(self.folder, 'output.log'), 'w') as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()

    def output(self):
        """What it has printed so far."""
        with open(os.path.join(self.folder, 'output.log'), errors='replace') as log:
            return log.read()

    def states(self):
        """What each worker reported last, a list of dicts; `{}` of one that has not yet."""
        found = []
        for rank in range(RANKS):
            try:
                with open(os.path.join(self.folder, 'rank-%d' % rank)) as file:
                    found.append(json.load(file))
            except FileNotFoundError:
                found.append({})
        return found

    def wait_for(self, reached, seconds=PATIENCE_SECONDS):
        """Waits until `reached(states)` is true of every worker's state, and returns the states.

        Raises:
            Failure: the run ended before.
            TimeoutError: it has not come within so many seconds.
        """
        deadline = time.monotonic() + seconds
        while True:
            states = self.states()
            if all(states) and all(map(reached, states)):
                return states
            if self.process.poll() is not None:
                raise Failure('The run ended with exit code %d.' % self.process.returncode)
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.005)

    def weights(self):
        """The final weights, slots and counters, a list of arrays."""
        with np.load(os.path.join(self.folder, 'final.npz')) as file:
            return [file['arr_%d' % number] for number in range(len(file.files))]


def places(kills, epochs, chance):
    """Where the kills come: pairs of a phase and, of training, the number of epochs, growing.

    Args:
        kills: how many.
        epochs: how many the run has.
        chance: a `random.Random`.

    Returns:
        A list.
    """
    found = sorted(chance.uniform(0, epochs - LAST_EPOCHS) for _ in range(kills))
    early = chance.sample(range(kills), 2 * (kills // EARLY_KILLS))
    phases = {number: ('start', 'resume')[place % 2] for place, number in enumerate(early)}
    return [(phases.get(number, 'train'), place) for number, place in enumerate(found)]


def is_alive(pid, folder):
    """Whether a process is still the worker that it was."""
    try:
        with open('/proc/%d/cmdline' % pid) as file:
            return folder in file.read()
    except FileNotFoundError:
        return False


def started_anew(run, attempt):
    """Waits until every worker of an attempt is there; returns how often the launcher hung.

    Raises:
        Failure: an attempt ended that nobody had ended.
    """
    hung = 0
    while not has_started(run, attempt + hung):
        end_launcher(run)
        hung += 1
    return hung


def has_started(run, attempt):
    """Waits until every worker of an attempt is there; returns whether they came in time."""
    try:
        states = run.wait_for(lambda state: state['restart'] >= attempt, LAUNCH_SECONDS)
    except TimeoutError:
        return False
    if any(state['restart'] > attempt for state in states):
        raise Failure('Attempt %d failed although nobody was killed.' % attempt)
    return True


def end_launcher(run):
    """Kills a launcher that has started no worker."""
    found = subprocess.run(
        ['pgrep', '-P', str(run.process.pid)], stdout=subprocess.PIPE, universal_newlines=True
    )
    for pid in found.stdout.split():
        os.kill(int(pid), signal.SIGKILL)


def kill(run, attempt, place, chance):
    """Kills a worker of an attempt at a random time; returns what it was doing.

    Args:
        run: the `Run`.
        attempt: number of the attempt, whose ranks are all there.
        place: one of `places`.
        chance: a `random.Random`.

    Raises:
        Failure: the attempt or the run ended before.
    """
    rank = chance.randrange(RANKS)
    phase, epochs = place
    later = chance.uniform(0, LATER_SECONDS[phase])

    def reached(state):
        if state['restart'] != attempt or phase == 'start':
            return True
        if phase == 'resume':
            return state['phase'] != 'start'
        return state['phase'] not in ('start', 'resume') and state['epochs'] >= epochs

    run.wait_for(reached)
    time.sleep(later)
    state = run.states()[rank]
    if state['restart'] != attempt or not is_alive(state['pid'], run.folder):
        raise Failure('Attempt %d ended before rank %d was killed.' % (attempt, rank))
    os.kill(state['pid'], signal.SIGKILL)
    return {'rank': rank, 'phase': state['phase'], 'epochs': state['epochs']}


def soak(run, kills, epochs, chance):
    """Kills workers of a run until its end.

    Returns:
        A list of what `kill` returns, and how often the launcher hung.
    """
    killed, hung = [], 0
    for place in places(kills, epochs, chance):
        hung += started_anew(run, len(killed) + hung)
        killed.append(kill(run, len(killed) + hung, place, chance))
        click.echo('kill %d: rank %d in phase %s, after %.1f of %d epochs' % (
            len(killed), killed[-1]['rank'], killed[-1]['phase'], killed[-1]['epochs'], epochs,
        ))  # fmt: skip
    hung += started_anew(run, len(killed) + hung)
    run.process.wait(PATIENCE_SECONDS)
    return killed, hung


def train(folder, epochs, max_restarts, act=None):
    """Trains to the end; returns the `Run`, its seconds, and what `act(run)` returned."""
    os.makedirs(folder)
    began = time.monotonic()
    with Run(folder, epochs, max_restarts) as run:
        try:
            acted = act(run) if act else None
            if run.process.wait(None if act else PATIENCE_SECONDS):
                raise Failure('The run ended with exit code %d.' % run.process.returncode)
        except (Failure, subprocess.TimeoutExpired, TimeoutError) as error:
            click.echo(run.output()[-5000:])
            raise SystemExit('soak: %s' % (error or 'nothing happened any more')) from error
    return run, time.monotonic() - began, acted


def differences(found, expected):
    """The greatest difference of each array, relative to the largest entry that is expected."""
    shapes = [[one.shape for one in arrays] for arrays in (found, expected)]
    if shapes[0] != shapes[1]:
        raise Failure('The runs end with arrays of shapes %s and %s.' % tuple(shapes))
    return [
        float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30))
        for one, other in zip(found, expected)
    ]


@click.command()
@click.option('--kills', default=50, show_default=True, help='How often a rank is killed.')
@click.option('--seed', default=0, show_default=True, help='Of where the kills come.')
@click.option('--out', default=DEFAULT_OUT, help='JSON file of the result.')
def main(kills, seed, out):
    """Kills workers of a training run at random, and compares its end with that of a quiet run."""
    epochs = EPOCHS_PER_KILL * kills + LAST_EPOCHS
    with contextlib.ExitStack() as stack:
        stack.enter_context(namespaces.signals_unwind())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        quiet, quiet_seconds, _ = train(os.path.join(folder, 'quiet'), epochs, 0)
        run, seconds, (killed, hung) = train(
            os.path.join(folder, 'soak'), epochs, kills + 10,
            lambda run: soak(run, kills, epochs, random.Random(seed)),
        )  # fmt: skip
        apart = differences(run.weights(), quiet.weights())
        equal = all(map(np.array_equal, run.weights(), quiet.weights()))
    phases = collections.Counter((one['phase'], one['rank']) for one in killed)
    result = {
        'machine': results.machine(),
        'date': datetime.date.today().isoformat(),
        'ranks': RANKS,
        'epochs': epochs,
        'seed': seed,
        'kills': len(killed),
        'kills_by_phase': {
            phase: [phases[phase, rank] for rank in range(RANKS)]
            for phase in ('start', 'resume', 'train', 'save', 'end')
        },
        'launcher_hung': hung,
        'seconds': round(seconds),
        'seconds_without_a_failure': round(quiet_seconds),
        'arrays': len(apart),
        'bit_equal': equal,
        'greatest_relative_difference': max(apart),
    }
    rows = [[phase] + counts for phase, counts in result['kills_by_phase'].items()]
    headers = ['killed while it was in'] + ['rank %d' % rank for rank in range(RANKS)]
    click.echo(tabulate(rows, headers, tablefmt='pipe'))
    rows = [[name.replace('_', ' '), value] for name, value in result.items()
            if not isinstance(value, dict)]  # fmt: skip
    click.echo(tabulate(rows, tablefmt='pipe'))
    with open(out, 'w') as file:
        json.dump(result, file, indent=1)
        file.write('\n')
    if not equal:
        raise SystemExit('soak: the weights are not those of the run without a failure.')


if __name__ == '__main__':
    main()
