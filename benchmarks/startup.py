"""What our Python adds to start-up and compile, on a model with 30 tables.

Times the import, the strategy, building and compiling the model, and everything up to the end of
the first step, for plain Keras in one process and for ours; under `horovodrun -np 2` for ours with
two workers (ours only). Rank 0 prints a line of JSON.

    python benchmarks/startup.py --system keras
    python benchmarks/startup.py --system ours
    horovodrun -np 2 -H localhost:2 python benchmarks/startup.py --system ours
    horovodrun -np 2 -H localhost:2 python benchmarks/startup.py --system horovod
"""

import contextlib
import json
import time

import click
import numpy as np

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


@click.command()
@click.option('--system', type=click.Choice(['keras', 'horovod', 'ours']), required=True)
def main(system):
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
