# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What our Python adds to start-up and compile, on a model with 30 tables.

Times the import, the strategy, building and compiling the model, and everything up to the end of
the second step: plain Keras and ours in one process, Horovod and ours with two workers. The systems
take turns. With `--out`, a folder, what came out is kept there.

    python benchmarks/startup.py
    horovodrun -np 2 -H localhost:2 python benchmarks/startup.py --system ours
"""

import contextlib
import json
import os
import subprocess
import sys
import time

import click
import numpy as np
from report import results, scripts

#: What is started: title to system and number of workers.
STARTS = {
    'Keras': ('keras', 1),
    'keras-parallax': ('ours', 1),
    'horovod.keras, 2 workers': ('horovod', 2),
    'keras-parallax, 2 workers': ('ours', 2),
}
TABLES, ROWS, WIDTH, BATCH = 30, 1000, 16, 32


class Marks:
    """Seconds of processor and wall-clock time between marks."""

    def __init__(self):
        self.seen = {}
        self._last = time.perf_counter(), time.process_time()

    def __call__(self, name):
        now = time.perf_counter(), time.process_time()
        self.seen[name] = {
            'seconds': round(now[0] - self._last[0], 3),
            'cpu_seconds': round(now[1] - self._last[1], 3),
        }
        self._last = now


def build(keras):
    """A model with `TABLES` tables, each looked up by a column of its input."""
    ids = keras.layers.Input((TABLES,), dtype='int32')
    columns = [
        keras.layers.Lambda(lambda tensor, n=number: tensor[:, n : n + 1])(ids)
        for number in range(TABLES)
    ]
    vectors = [keras.layers.Embedding(ROWS, WIDTH)(column) for column in columns]
    hidden = keras.layers.Flatten()(keras.layers.concatenate(vectors, axis=1))
    output = keras.layers.Dense(1)(keras.layers.Dense(64, activation='relu')(hidden))
    return keras.models.Model(ids, output)


def run(system, workers):
    """Starts a system in processes of its own; returns what its rank 0 prints."""
    command = [sys.executable, os.path.abspath(__file__), '--system', system]
    if workers > 1:
        launcher = os.path.join(os.path.dirname(sys.executable), 'horovodrun')
        command = [
            launcher, '--gloo', '-np', str(workers), '-H', 'localhost:%d' % workers,
        ] + command  # fmt: skip
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
    output = subprocess.check_output(command, env=environ, stderr=subprocess.DEVNULL)
    # horovodrun puts the rank in front of each line.
    line = next(line for line in output.decode().splitlines() if '{"system"' in line)
    return json.loads(line[line.index('{') :])


@click.command()
@click.option('--system', type=click.Choice(['keras', 'horovod', 'ours']), help='Time one, here.')
@click.option('--rounds', default=5, show_default=True, help='How often each system has its turn.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(system, rounds, out):
    """Prints how long each system takes to start."""
    if system:
        start(system)
        return
    found = {name: [] for name in STARTS}
    for _ in range(rounds):
        for name, (chosen, workers) in STARTS.items():
            found[name].append(run(chosen, workers))
    print(scripts.startup_table(found))
    if out:
        results.publish(out, 'startup', found)


def start(system):
    """Starts one model and prints how long each part took."""
    import keras

    marks = Marks()
    scope, rank = contextlib.ExitStack(), 0
    optimizer = keras.optimizers.Adagrad(lr=0.1)
    if system == 'ours':
        import keras_parallax as kp

        marks('import')
        scope = kp.ParallaxStrategy()
        rank = scope.rank
    elif system == 'horovod':
        import horovod.keras as hvd

        marks('import')
        hvd.init()
        rank = hvd.rank()
        optimizer = hvd.DistributedOptimizer(optimizer)
    marks('start')
    with scope:
        model = build(keras)
        marks('build')
        if system == 'ours':
            optimizer = kp.ParallaxOptimizer(optimizer)
        model.compile(optimizer, 'mse')
        marks('compile')
    ids = np.random.RandomState(rank).randint(0, ROWS, (BATCH, TABLES))
    model._make_train_function()
    marks('training function')
    model.train_on_batch(ids, np.ones((BATCH, 1)))
    marks('first step')
    model.train_on_batch(ids, np.ones((BATCH, 1)))
    marks('second step')
    if rank == 0:
        total = {
            kind: round(sum(mark[kind] for mark in marks.seen.values()), 2)
            for kind in ('seconds', 'cpu_seconds')
        }
        print(json.dumps({'system': system, 'total': total, 'parts': marks.seen}))


if __name__ == '__main__':
    main()
