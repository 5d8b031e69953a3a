# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A step with Keras 3 over a step with Keras 2: a click model of one large table, on this machine.

The model is like DeepFM: 26 fields of 20,000 ids in one table of 16 columns and in one of 1 column,
13 numbers, two dense layers; batches of 1,024 samples a worker, Zipf ids, Adagrad. Each system runs
in processes of its own, which take turns in one run, so that the ratios hold when the machine's
speed drifts. A round's ratio is to Keras 2 in graph mode with as many workers in the same round.

    python benchmarks/keras3.py
    python benchmarks/keras3.py --workers 2 --rounds 3
"""

import json
import os
import statistics
import subprocess
import sys

import click
from report import scripts

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'keras3_worker.py')
#: What the others are compared with.
BASE = 'Keras 2'
#: Systems with workers of ours.
OURS = (BASE, 'Keras 3, tensorflow', 'Keras 3, jax')
#: Systems that are plain Keras, in one process.
PLAIN = ('plain Keras 3, tensorflow', 'plain Keras 3, jax')
#: How long a job may take.
LIMIT_SECONDS = 600


def measured(system, workers, steps):
    """The median step of a job in milliseconds, and the peak memory of its rank 0 in GiB.

    Args:
        system: one of `OURS` or `PLAIN`.
        workers: how many workers of ours; plain Keras has one process.
        steps: how many steps are measured.

    Raises:
        click.ClickException: the job failed.
    """
    command = [sys.executable, WORKER, system, str(steps)]
    if system in OURS:
        command = ['horovodrun', '-np', str(workers), '-H', 'localhost:%d' % workers, *command]
    process = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        timeout=LIMIT_SECONDS,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='3', CUDA_VISIBLE_DEVICES=''),
    )
    lines = [line for line in process.stdout.splitlines() if '{"step_ms"' in line]
    if process.returncode or not lines:
        raise click.ClickException('%s failed:\n%s' % (system, process.stdout[-3000:]))
    return json.loads(lines[-1][lines[-1].index('{') :])


def table(found):
    """The Markdown table of a dict from pairs of system and workers to what each round measured."""
    rows = []
    for (system, workers), rounds in found.items():
        base = found[BASE, workers]
        ratios = [own['step_ms'] / of['step_ms'] for own, of in zip(rounds, base)]
        rows.append(
            [
                system,
                workers,
                '%.1f' % statistics.median(of_round['step_ms'] for of_round in rounds),
                scripts.spread(ratios),
                '%.2f' % statistics.median(of_round['peak_gib'] for of_round in rounds),
            ]
        )
    headers = ['system', 'workers', 'step, ms', 'over Keras 2, min..median..max', 'peak, GiB']
    return scripts.markdown(rows, headers)


@click.command()
@click.option('--workers', 'counts', type=int, multiple=True, default=(1, 2), show_default=True)
@click.option('--rounds', default=5, show_default=True, help='How often each has its turn.')
@click.option('--steps', default=60, show_default=True, help='Steps that are measured in a turn.')
def main(counts, rounds, steps):
    """Prints steps and their ratios."""
    turns = [(system, workers) for workers in counts for system in OURS]
    turns += [(system, 1) for system in PLAIN if 1 in counts]
    found = {turn: [] for turn in turns}
    for number in range(rounds):
        # Whatever comes first may be slower or faster for that alone.
        for turn in turns if number % 2 else turns[::-1]:
            found[turn].append(measured(*turn, steps))
    print(table(found))


if __name__ == '__main__':
    main()
