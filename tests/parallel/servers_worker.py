"""Trains on dedicated servers of this machine, and does to them what the test asks for.

Usage: servers_worker.py WAY ADDRESS... PID, with the process id of the first server.
"""

import os
import signal
import sys

import keras
import numpy as np

import keras_parallax as kp
from keras_parallax import door

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


def main(way, addresses, pid):
    if way == 'differ':
        addresses = addresses if os.environ.get('HOROVOD_RANK') == '0' else addresses[::-1]
    if way == 'absent':
        door._REACH_SECONDS = 3
    strategy, model = build(addresses)
    x = np.arange(8 * LENGTH).reshape(8, LENGTH) % ROWS
    model.set_weights([np.full_like(weight, 0.5) for weight in model.get_weights()])
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
