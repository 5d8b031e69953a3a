# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: saves both forms of checkpoints, and is killed in the midst of it.

Usage: save_kill_worker.py FOLDER. In each attempt of `keras-parallax run` but the last, one worker
is killed as soon as a file of the second epoch's checkpoint, in one of the forms, has begun to
grow.
"""

import os
import subprocess
import sys

import numpy as np
from any_keras import keras

import keras_parallax as kp

#: The form whose second save is broken off in each attempt, and the worker that is killed.
KILLS = [('single', 0), ('single', 1), ('parts', 0), ('parts', 1)]
#: Large enough to be caught at being written.
ROWS, WIDTH, LENGTH, EPOCHS = 1000000, 8, 3, 3

#: Kills a process when there is a file in a folder that is not complete and not empty.
KILLER = """
import os, sys
print(flush=True)
while True:
    for folder, _, names in os.walk(sys.argv[1]):
        for name in names:
            try:
                hit = name.endswith('.part') and os.path.getsize(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            if hit:
                os.kill(int(sys.argv[2]), 9)
                sys.exit()
"""


class KillInSave(keras.callbacks.Callback):
    """Has its process killed in the save that comes after it in the second epoch."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            command = [sys.executable, '-c', KILLER, self._folder, str(os.getpid())]
            subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()


def main(folder):
    attempt = int(os.environ['KERAS_PARALLAX_RESTARTS'])
    with kp.ParallaxStrategy() as strategy:
        layers = [
            keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer('adagrad'), 'mse')
    paths = {form: os.path.join(folder, form, 'model-{epoch:02d}') for form in ('single', 'parts')}
    witness = os.path.join(folder, 'first.npz')
    epoch = 0
    if attempt:
        form = KILLS[attempt - 1][0]
        found = kp.latest_checkpoint(paths[form])
        epoch = strategy.resume(model, found)
        same = True
        if strategy.is_chief:
            with np.load(witness) as file:
                same = all(map(np.array_equal, model.get_weights(), [file[n] for n in file.files]))
        print('FROM %s %d SAME %s;' % (form, epoch, same), flush=True)

    def keep(epoch, logs):
        if epoch == 0 and strategy.is_chief:
            np.savez(witness, *model.get_weights())

    random = np.random.RandomState(strategy.rank)
    x, y = random.randint(0, ROWS, (32, LENGTH)), random.rand(32, 1)
    callbacks = [
        kp.callbacks.BroadcastGlobalVariablesCallback(0),
        keras.callbacks.LambdaCallback(on_epoch_end=keep),
    ]
    for form, path in paths.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if KILLS[attempt:] and KILLS[attempt] == (form, strategy.rank):
            callbacks.append(KillInSave(os.path.dirname(path)))
        callbacks.append(kp.callbacks.ModelCheckpoint(path, sharded=form == 'parts'))
    model.fit(
        x, y, batch_size=8, verbose=0, initial_epoch=epoch, epochs=EPOCHS, callbacks=callbacks
    )


main(sys.argv[1])
