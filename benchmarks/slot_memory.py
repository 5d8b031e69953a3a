# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The memory that a table takes with its slots: `RowwiseAdagrad` over `Adagrad`.

Each process trains a small table first, so that TensorFlow has made whatever it makes once, and
then all rows of a large one. Measured is by how much its resident memory has grown in between. With
`--out`, a folder, what came out is kept there.

    python benchmarks/slot_memory.py
"""

import json
import os
import subprocess
import sys

import click
import numpy as np
from report import results, scripts

ROWS, WIDTHS, BATCH = 10**6, (16, 64), 4096


def train(optimizer, rows, width):
    """Trains all rows of a table once, in a process of its own; returns the model."""
    import keras

    import keras_parallax as kp

    known = {'Adagrad': keras.optimizers.Adagrad, 'RowwiseAdagrad': kp.optimizers.RowwiseAdagrad}
    with kp.ParallaxStrategy():
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(rows, width, input_length=1),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(known[optimizer](), 'mse')
    for ids in np.resize(np.arange(rows), [-(-rows // BATCH), BATCH, 1]):
        model.train_on_batch(ids, np.ones([BATCH, 1]))
    return model


def growth(optimizer, width):
    """By how many bytes this process grows with a table of that width."""
    import psutil

    models = [train(optimizer, BATCH, width)]
    before = psutil.Process().memory_info().rss
    models.append(train(optimizer, ROWS, width))
    return psutil.Process().memory_info().rss - before


def run(optimizer, width):
    """`growth` in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), '--here', optimizer, str(width)]
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
    output = subprocess.check_output(command, env=environ, stderr=subprocess.DEVNULL)
    return json.loads(output.decode('utf-8').splitlines()[-1])


@click.command()
@click.option('--rounds', default=3, show_default=True, help='How often each has its turn.')
@click.option('--here', nargs=2, help='Measure an optimizer and a width, in this process.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(rounds, here, out):
    """Prints how much memory tables take, and the ratios."""
    if here:
        print(json.dumps(growth(here[0], int(here[1]))))
        return
    found = [
        {
            'rows': ROWS,
            'width': width,
            'rounds': [[run(name, width) for name in scripts.SLOTS] for _ in range(rounds)],
        }
        for width in WIDTHS
    ]
    print(scripts.slot_memory_table(found))
    if out:
        results.publish(out, 'slot_memory', found)


if __name__ == '__main__':
    main()
