# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `soak.py`: trains a small model that saves after each epoch, from where it last was.

The model is one of the package `keras`, which may be Keras 3.

Usage: soak_worker.py FOLDER EPOCHS. Each worker tells in FOLDER/rank-RANK what it is doing; rank 0
leaves the final weights and slots in FOLDER/final.npz.
"""

import json
import os
import sys

RANK = int(os.environ['HOROVOD_RANK'])
RESTART = int(os.environ['KERAS_PARALLAX_RESTARTS'])
ROWS, WIDTH, LENGTH, BATCH, BATCHES = 2000, 16, 4, 16, 6


class Report:
    """Tells `soak.py` what this worker does."""

    def __init__(self, folder):
        self._path = os.path.join(folder, 'rank-%d' % RANK)
        self._epochs = 0

    def __call__(self, phase, epochs=None):
        """Notes that a phase begins: `'start'`, `'resume'`, `'train'`, `'save'` or `'end'`."""
        self._epochs = self._epochs if epochs is None else epochs
        state = {'pid': os.getpid(), 'restart': RESTART, 'phase': phase, 'epochs': self._epochs}
        with open(self._path + '.new', 'w') as file:
            json.dump(state, file)
        os.rename(self._path + '.new', self._path)


def main(folder, epochs):
    report = Report(folder)
    report('start')
    # A kill may come before any of this is loaded.
    import keras
    import numpy as np

    import keras_parallax as kp

    is_keras_3 = keras.__version__.startswith('3.')

    class Phase(keras.callbacks.Callback):
        """Reports what begins when the callbacks before it have had their turn."""

        def __init__(self, after_epoch):
            super().__init__()
            self._after_epoch, self._epoch = after_epoch, 0

        def on_epoch_begin(self, epoch, logs=None):
            self._epoch = epoch

        def on_batch_end(self, batch, logs=None):
            report('train', self._epoch + (batch + 1) / BATCHES)

        def on_epoch_end(self, epoch, logs=None):
            report(self._after_epoch)

    class Draw(keras.callbacks.Callback):
        """Draws the samples of each epoch into the arrays that `fit` reads."""

        def on_epoch_begin(self, epoch, logs=None):
            random = np.random.RandomState([epoch, RANK])
            ids[:] = (random.zipf(1.3, ids.shape) - 1) % ROWS
            targets[:] = random.uniform(-1, 1, targets.shape)

    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.InputLayer((LENGTH,), dtype='int32'),
                keras.layers.Embedding(ROWS, WIDTH),
                keras.layers.Flatten(),
                keras.layers.Dense(16, activation='tanh'),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adam(0.01)), 'mse')
    # The same start for the run without a failure.
    random = np.random.RandomState(0)
    model.set_weights([random.normal(0, 0.1, one.shape) for one in model.get_weights()])
    names = ('parts-{epoch:04d}', 'file-{epoch:04d}' + ('.keras' if is_keras_3 else '.h5'))
    forms = [os.path.join(folder, name) for name in names]
    report('resume')
    # Both forms are saved after each epoch, and take turns in being resumed from.
    epoch = strategy.resume(model, kp.latest_checkpoint(forms[RESTART % 2]))
    report('train', epoch)
    ids, targets = np.zeros((BATCH * BATCHES, LENGTH), np.int32), np.zeros((BATCH * BATCHES, 1))
    # Keras 3 copies the arrays when `fit` begins, and `BroadcastGlobalVariablesCallback` is not for
    # it.
    Draw().on_epoch_begin(0)
    callbacks = [] if is_keras_3 else [kp.callbacks.BroadcastGlobalVariablesCallback(0), Draw()]
    callbacks += [
        Phase('save'),
        kp.callbacks.ModelCheckpoint(forms[0], sharded=True, max_to_keep=2),
        kp.callbacks.ModelCheckpoint(forms[1], max_to_keep=2),
        Phase('train'),
    ]
    model.fit(
        ids, targets, BATCH, initial_epoch=epoch, epochs=epochs, shuffle=False, verbose=0,
        callbacks=callbacks,
    )  # fmt: skip
    report('end')
    if strategy.is_chief:
        state = model.optimizer
        state = [of.numpy() for of in state.variables] if is_keras_3 else state.get_weights()
        np.savez(os.path.join(folder, 'final.npz'), *model.get_weights() + state)


main(sys.argv[1], int(sys.argv[2]))
