# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains for some epochs, from the last checkpoint if there is one.

Usage: restart_worker.py FOLDER EPOCH. Rank 1 is killed in the epoch of that number, but only in the
first attempt of `keras-parallax run`. Rank 0 leaves the final weights in FOLDER.

With `all` for EPOCH it saves after batches, and all workers are killed within the second epoch.
After the restart it trains without a break, too.
"""

import os
import signal
import sys

import numpy as np
from any_keras import keras

import keras_parallax as kp

ROWS, LENGTH, EPOCHS = 50, 3, 4


class Kill(keras.callbacks.Callback):
    """Kills its process after a batch of an epoch, the second one."""

    def __init__(self, epoch, batch=1):
        super().__init__()
        self._deadly, self._epoch = (epoch, batch), None

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def build():
    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, 4, input_length=LENGTH),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adam(0.01)), 'mse')
    return strategy, model


def within_epoch(folder):
    """Goes on within the second epoch, and trains without a break; both end with their weights."""
    attempt = int(os.environ['KERAS_PARALLAX_RESTARTS'])
    random = np.random.RandomState(0)
    x, y = random.randint(0, ROWS, (64, LENGTH)), random.rand(64, 1)
    path = os.path.join(folder, 'model-{epoch}-{batch}')
    for run in ('resumed', 'unbroken') if attempt else ('killed',):
        keras.backend.clear_session()
        strategy, model = build()
        random = np.random.RandomState(1)
        model.set_weights([random.uniform(-1, 1, weight.shape) for weight in model.get_weights()])
        callbacks, epoch = [], 0
        if run == 'killed':
            checkpoint = kp.callbacks.ModelCheckpoint(path, save_steps=3, max_to_keep=1)
            # The step after a save ends on no worker before rank 0 has saved.
            callbacks = [checkpoint, Kill(1, 2)]
        if run == 'resumed':
            latest = kp.latest_checkpoint(path)
            epoch = strategy.resume(model, latest)
            print('FROM %d %s;' % (epoch, os.path.basename(latest)), flush=True)
        history = model.fit(
            **kp.data.arrays(x, y), batch_size=8, verbose=0,
            initial_epoch=epoch, epochs=3, callbacks=callbacks,
        )  # fmt: skip
        assert history.epoch == [0, 1, 2]
        if strategy.is_chief:
            weights = model.get_weights() + model.optimizer.get_weights()
            losses = history.history['loss']
            np.savez(os.path.join(folder, run + '.npz'), *weights, losses=losses)


def main(folder, deadly):
    restarts = int(os.environ['KERAS_PARALLAX_RESTARTS'])
    path = os.path.join(folder, 'model-{epoch:02d}.h5')
    strategy, model = build()
    epoch = strategy.resume(model, kp.latest_checkpoint(path))
    print('FROM %d;' % epoch, flush=True)
    random = np.random.RandomState(strategy.rank)
    x, y = random.randint(0, ROWS, (32, LENGTH)), random.rand(32, 1)
    callbacks = [
        kp.callbacks.BroadcastGlobalVariablesCallback(0),
        kp.callbacks.ModelCheckpoint(path),
    ]
    if strategy.rank == 1 and restarts == 0:
        callbacks.append(Kill(deadly))
    model.fit(
        x, y, batch_size=8, shuffle=False, verbose=0,
        initial_epoch=epoch, epochs=EPOCHS, callbacks=callbacks,
    )  # fmt: skip
    if strategy.is_chief:
        np.savez(os.path.join(folder, 'final.npz'), *model.get_weights())


if sys.argv[2] == 'all':
    within_epoch(sys.argv[1])
else:
    main(sys.argv[1], int(sys.argv[2]))
