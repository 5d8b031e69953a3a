# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Start and step of a model with many tables: plain Keras, ours, and one table with all the rows.

Each table has 1,000 rows of 16, a batch has 256 ids for each, and Adagrad trains them. Measured is
one rank's process: its processor time until the end of the first training step and in a step, the
peak of its memory, and the operations in its graph. Processor time tells systems apart on a machine
that others use, too. The systems take turns, each in processes of its own. With `--out`, a folder,
the results are kept there.

    python benchmarks/many_tables.py
    python benchmarks/many_tables.py --tables 200 --rounds 1 --sources ../older-checkout
"""

import json
import os
import resource
import subprocess
import sys

import click
import numpy as np
from report import results, scripts

ROWS, WIDTH, BATCH = 1000, 16, 256
#: Steps before the measured ones, and those.
WARMUP, STEPS = 5, 20
KERAS, OURS, ONE_TABLE = 'keras', 'ours', 'one-table'
#: What is measured: system to title.
TITLES = {KERAS: 'Keras', OURS: 'keras-parallax', ONE_TABLE: 'keras-parallax, one table'}
#: What tells the entries of its results apart.
TOLD_BY = ('tables', 'title', 'workers')


def build(tables, one_table):
    """A model that looks up an id of each table, or as many ids in one table of all the rows."""
    from works.stack import keras

    layers = keras.layers
    if one_table:
        ids = inputs = layers.Input((tables,), dtype='int32')
        rows = layers.Flatten()(layers.Embedding(tables * ROWS, WIDTH)(ids))
    else:
        inputs = [layers.Input((1,), dtype='int32') for _ in range(tables)]
        parts = [layers.Flatten()(layers.Embedding(ROWS, WIDTH)(ids)) for ids in inputs]
        rows = layers.concatenate(parts) if tables > 1 else parts[0]
    return keras.models.Model(inputs, layers.Dense(1)(rows))


def batches(tables, one_table, rank):
    """Batches of ids of a rank, and targets: the same rows for every system."""
    random = np.random.RandomState(rank)
    while True:
        ids = random.randint(0, ROWS, [BATCH, tables]).astype(np.int32)
        targets = random.uniform(size=[BATCH, 1]).astype(np.float32)
        if one_table:
            yield ids + ROWS * np.arange(tables, dtype=np.int32), targets
        else:
            yield list(np.split(ids, tables, 1)) if tables > 1 else ids, targets


def cpu_seconds():
    """Processor time of this process so far."""
    return sum(os.times()[:2])


def start(system, tables):
    """Trains one model, and prints on rank 0 what it took."""
    from works.stack import K, keras_optimizers

    optimizer, rank, one_table = keras_optimizers().Adagrad(0.1), 0, system == ONE_TABLE
    if system == KERAS:
        model = build(tables, one_table)
        model.compile(optimizer, 'mse')
    else:
        import keras_parallax as kp

        with kp.ParallaxStrategy() as strategy:
            rank, model = strategy.rank, build(tables, one_table)
            model.compile(kp.ParallaxOptimizer(optimizer), 'mse')
    made, began = batches(tables, one_table, rank), cpu_seconds()
    losses = [model.train_on_batch(*next(made))]
    first = cpu_seconds() - began
    for _ in range(WARMUP):
        losses.append(model.train_on_batch(*next(made)))
    began = cpu_seconds()
    for _ in range(STEPS):
        losses.append(model.train_on_batch(*next(made)))
    found = {
        'first_cpu_seconds': round(first, 2),
        'step_cpu_ms': round(1e3 * (cpu_seconds() - began) / STEPS, 2),
        'peak_mib': round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        'nodes': len(K.get_session().graph.get_operations()),
        'losses': [float(losses[0]), float(losses[-1])],
    }
    if rank == 0:
        print('%s %s' % (system, json.dumps(found)), flush=True)


def run(system, tables, workers=1, sources=None):
    """Starts a system in processes of its own; returns what its rank 0 found, a dict.

    Args:
        system: one of `TITLES`.
        tables: number of tables.
        workers: number of processes.
        sources: a checkout whose `keras_parallax` is measured; if none, the one that is installed.
    """
    command = [sys.executable, os.path.abspath(__file__), '--here', system, '--tables', str(tables)]
    if workers > 1:
        launcher = os.path.join(os.path.dirname(sys.executable), 'horovodrun')
        command = [
            launcher, '--gloo', '-np', str(workers), '-H', 'localhost:%d' % workers,
        ] + command  # fmt: skip
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
    if sources is not None:
        environ['PYTHONPATH'] = os.path.abspath(sources)
    output = subprocess.check_output(command, env=environ, stderr=subprocess.DEVNULL)
    # horovodrun puts the rank in front of each line.
    line = next(line for line in output.decode().splitlines() if system + ' {' in line)
    return json.loads(line[line.index('{') :])


@click.command()
@click.option('--tables', 'counts', type=int, multiple=True, default=(26, 200), show_default=True)
@click.option('--workers', default=2, show_default=True, help='Workers of ours.')
@click.option('--rounds', default=3, show_default=True, help='How often each system has its turn.')
@click.option('--sources', help='Another checkout of ours, which is measured as well.')
@click.option('--here', type=click.Choice(sorted(TITLES)), help='Measure one, in this process.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(counts, workers, rounds, sources, here, out):
    """Prints what the start and a step take of each system."""
    if here:
        start(here, counts[0])
        return
    turns = [(TITLES[name], name, 1 if name == KERAS else workers, None) for name in TITLES]
    if sources:
        turns.insert(1, (TITLES[OURS] + ', other sources', OURS, workers, sources))
    found = {(tables, turn): [] for tables in counts for turn in turns}
    for _ in range(rounds):
        for tables, turn in found:
            found[tables, turn].append(run(turn[1], tables, *turn[2:]))
            print(tables, turn[0], json.dumps(found[tables, turn][-1]), file=sys.stderr, flush=True)
    measured = [
        {'tables': tables, 'title': title, 'workers': of_turn, 'rounds': seen}
        for (tables, (title, _, of_turn, _)), seen in found.items()
    ]
    print(scripts.many_tables_table(measured))
    if out:
        kept = [one for one in measured if one['title'] in TITLES.values()]
        results.publish_part(out, 'many_tables', kept, TOLD_BY)


if __name__ == '__main__':
    main()
