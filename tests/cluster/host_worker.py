# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun` with workers that share hosts: ways in which one of them leaves the others.

Usage: host_worker.py WAY RANK... Each RANK in turn is the one that `predicts` between training
steps; or the only RANK has a `bad_id` in its batch, or `ends_early`.
"""

import sys

import numpy as np
from any_keras import keras

import keras_parallax as kp

ROWS, WIDTH, LENGTH, SIZE = 50, 4, 3, 8


def build():
    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH, name='words'),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(lr=0.1)), 'mse')
    return strategy, model


def batch(rank):
    random = np.random.RandomState(rank)
    return random.randint(0, ROWS, (SIZE, LENGTH)), np.ones((SIZE, 1))


def predicts(strategy, model, *ranks):
    x, y = batch(strategy.rank)
    for rank in ranks:
        for _ in range(3):
            model.train_on_batch(x, y)
        if strategy.rank == rank:
            # The others wait in their next training step meanwhile.
            table, kernel, bias = model.get_weights()
            expected = table[x].reshape(SIZE, -1).dot(kernel) + bias
            np.testing.assert_allclose(model.predict(x), expected, rtol=1e-4, atol=1e-5)
            loss = np.mean((expected - y) ** 2)
            np.testing.assert_allclose(model.evaluate(x, y, verbose=0), loss, rtol=1e-4)
            print('PREDICTED ALONE: rank %d;' % rank, flush=True)
    for _ in range(3):
        model.train_on_batch(x, y)


def bad_id(strategy, model, rank):
    x, y = batch(strategy.rank)
    for _ in range(3):
        model.train_on_batch(x, y)
    if strategy.rank == rank:
        x[0, 0] = ROWS + 7
    for _ in range(3):
        model.train_on_batch(x, y)


def ends_early(strategy, model, rank):
    for _ in range(3 if strategy.rank == rank else 5):
        model.train_on_batch(*batch(strategy.rank))


globals()[sys.argv[1]](*build(), *map(int, sys.argv[2:]))
