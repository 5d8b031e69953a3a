# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `kp.callbacks.StepMetrics` costs, as a share of a step, in one job.

    horovodrun -np 2 -H localhost:2 python benchmarks/step_metrics.py

Calls of `fit` with the callback and without it take turns. Rank 0 prints the medians of what each
epoch took, in milliseconds a step, and the ratio of the two.
"""

import time

import click
import keras
import numpy as np

import keras_parallax as kp

ROWS, WIDTH, LENGTH = (50000, 20000), (256, 128), 20


def build(units):
    """The strategy and the compiled model."""
    with kp.ParallaxStrategy() as strategy:
        inputs = [keras.layers.Input((LENGTH,)) for _ in ROWS]
        tables = [keras.layers.Embedding(*shape) for shape in zip(ROWS, WIDTH)]
        hidden = keras.layers.concatenate([table(ids) for table, ids in zip(tables, inputs)])
        out = keras.layers.Dense(1)(keras.layers.LSTM(units)(hidden))
        model = keras.models.Model(inputs, out)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(lr=0.1)), 'mse')
    return strategy, model


@click.command()
@click.option('--turns', default=15, show_default=True, help='Pairs of epochs.')
@click.option('--steps', default=40, show_default=True, help='Of an epoch.')
@click.option('--batch', default=32, show_default=True)
@click.option('--units', default=32, show_default=True, help='Of the LSTM.')
def main(turns, steps, batch, units):
    """Measure what the callback costs."""
    strategy, model = build(units)
    random = np.random.RandomState(strategy.rank)
    x = [random.randint(0, rows, (steps * batch, LENGTH)) for rows in ROWS]
    y = np.ones((steps * batch, 1))
    seconds = {True: [], False: []}
    for turn in range(turns + 1):
        # Whatever comes second may be slower or faster for that alone.
        for measures in (turn % 2 == 0, turn % 2 == 1):
            epochs = []
            clock = keras.callbacks.LambdaCallback(
                on_epoch_begin=lambda *_, epochs=epochs: epochs.append(time.perf_counter()),
                on_epoch_end=lambda *_, epochs=epochs: epochs.append(time.perf_counter()),
            )
            callbacks = [kp.callbacks.StepMetrics()] if measures else []
            # The second epoch, because what begins to be measured is looked through once.
            model.fit(x, y, batch, epochs=2, verbose=0, callbacks=[clock] + callbacks)
            if turn:
                seconds[measures].append((epochs[3] - epochs[2]) / steps)
    if strategy.rank == 0:
        with_it, without = np.median(seconds[True]), np.median(seconds[False])
        print(
            'with StepMetrics %.2f ms a step, without %.2f ms: %+.2f %%'
            % (with_it * 1e3, without * 1e3, 100 * (with_it / without - 1))
        )


if __name__ == '__main__':
    main()
