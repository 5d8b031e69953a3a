"""Run by `horovodrun`: trains for some epochs, from the last checkpoint if there is one.

Usage: restart_worker.py FOLDER EPOCH. Rank 1 is killed in the epoch of that number, but only in the
first attempt of `keras-parallax run`. Rank 0 leaves the final weights in FOLDER.
"""

import os
import signal
import sys

import numpy as np
from any_keras import keras

import keras_parallax as kp

ROWS, LENGTH, EPOCHS = 50, 3, 4


class Kill(keras.callbacks.Callback):
    """Kills its process after the second batch of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self._deadly, self._epoch = epoch, None

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (self._deadly, 1):
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder, deadly):
    restarts = int(os.environ['KERAS_PARALLAX_RESTARTS'])
    path = os.path.join(folder, 'model-{epoch:02d}.h5')
    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, 4, input_length=LENGTH),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adam(0.01)), 'mse')
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


main(sys.argv[1], int(sys.argv[2]))
