"""A step with a `DynamicEmbedding` over one with an `Embedding` of the same rows, in one process.

    python benchmarks/dynamic_step.py

Both models take a step in turn, of the same rows; all ids are known. Prints medians in milliseconds
and their ratio, for ids drawn evenly and by Zipf's law.
"""

import statistics
import time

import click
import keras
import numpy as np

import keras_parallax as kp


def compiled(table, fields):
    """A model of one layer behind the rows of a table."""
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((fields,), dtype='int64')
        out = keras.layers.Dense(1)(keras.layers.Flatten()(table(ids)))
        model = keras.models.Model(ids, out)
        model.compile('adagrad', 'mse')
    return model


@click.command()
@click.option('--rows', default=1000000)
@click.option('--width', default=16)
@click.option('--batch', default=4096)
@click.option('--fields', default=26)
@click.option('--steps', default=20)
def main(rows, width, batch, fields, steps):
    """Measures steps, and prints what they take."""
    random = np.random.RandomState(0)
    ids = np.unique(random.randint(-(2**63) + 1, 2**63 - 1, 2 * rows, dtype=np.int64))
    ids = random.permutation(ids)[:rows]
    dynamic = kp.layers.DynamicEmbedding(width, rows, name='dynamic')
    models = {
        'static': compiled(keras.layers.Embedding(rows, width), fields),
        'dynamic': compiled(dynamic, fields),
    }
    dynamic.set_weights([np.zeros([rows, width], np.float32), ids])
    draws = {
        'evenly': lambda: random.randint(0, rows, [batch, fields]),
        'zipf 1.2': lambda: (random.zipf(1.2, [batch, fields]) - 1) % rows,
    }
    for name, draw in draws.items():
        seconds = {kind: [] for kind in models}
        for _ in range(steps + 3):
            numbers, targets = draw(), np.zeros([batch, 1])
            for kind, model in models.items():
                inputs = ids[numbers] if kind == 'dynamic' else numbers
                begin = time.perf_counter()
                model.train_on_batch(inputs, targets)
                seconds[kind].append(time.perf_counter() - begin)
        static, own = [1000 * statistics.median(seconds[kind][3:]) for kind in models]
        print('%-9s static %6.1f dynamic %6.1f ratio %.2f' % (name, static, own, own / static))


if __name__ == '__main__':
    main()
