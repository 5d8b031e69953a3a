# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Trains on dedicated servers of this machine, and does to them what the test asks for.

Usage: servers_worker.py WAY ADDRESS... PID, with the process id of the first server.
"""

import os
import signal
import sys

import numpy as np
from any_keras import keras

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import dedicated_servers  # noqa: E402

ROWS, LENGTH = 50, 3


def build(servers):
    with kp.ParallaxStrategy(servers=servers) as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, 4, input_length=LENGTH, name='words'),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(lr=0.1)), 'mse')
    return strategy, model


def outside(strategy, model, x):
    """Prints what is raised for models that are compiled outside of the scope."""
    y = np.ones((8, 1))
    model.train_on_batch(x, y)
    for optimizer in ('sgd', model.optimizer):
        model.compile(optimizer, 'mse')
        print('OUTSIDE', error_of(model.train_on_batch, x, y), flush=True)
    print('OUTSIDE', error_of(kp.ParallaxOptimizer, 'sgd'), flush=True)
    with strategy:
        fresh = keras.models.clone_model(model)
    fresh.compile('sgd', 'mse')
    print('OUTSIDE', error_of(fresh.train_on_batch, x, y), flush=True)
    with strategy:
        model.compile('sgd', 'mse')
    assert np.isfinite(model.train_on_batch(x, y))


def main(way, addresses, pid):
    if way == 'differ':
        addresses = addresses if os.environ.get('HOROVOD_RANK') == '0' else addresses[::-1]
    if way == 'absent':
        dedicated_servers._REACH_SECONDS = 3
    strategy, model = build(addresses)
    x = np.arange(8 * LENGTH).reshape(8, LENGTH) % ROWS
    model.set_weights([np.full_like(weight, 0.5) for weight in model.get_weights()])
    if way == 'outside':
        outside(strategy, model, x)
        return
    losses = [model.train_on_batch(x, np.ones((8, 1))) for _ in range(5)]
    if way == 'end':
        if strategy.is_chief:
            print('LOSSES', *losses, flush=True)
        return
    if strategy.is_chief:
        os.kill(int(pid), signal.SIGKILL)
    while True:
        model.train_on_batch(x, np.ones((8, 1)))


main(sys.argv[1], sys.argv[2:-1], sys.argv[-1])
