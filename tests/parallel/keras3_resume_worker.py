"""Run by `horovodrun`: one part of a training that several jobs do, one after the other.

Usage: keras3_resume_worker.py BACKEND FOLDER first|last. The first job is broken off within its
second epoch; the last goes on from its newest checkpoint, and compares its end with plain Keras's.
Each rank of the last writes FOLDER/RANK.json. Jobs may have other numbers of workers: the joined
batch is the same.
"""

import json
import os
import sys

BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402

JOINED, STEPS, EPOCHS, RATE = 12, 5, 3, 0.1


class BrokenOff(keras.callbacks.Callback):
    """Breaks training off after the third batch of the second epoch."""

    class Error(Exception):
        """What it raises."""

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (1, 2):
            raise self.Error


def part_of(rank, ranks):
    """A rank's samples, in the order in which it takes them, and how many are a batch."""
    (users, items), y, _ = cases.CASES['sgd'].data(STEPS * JOINED)
    places = np.arange(STEPS * JOINED).reshape(STEPS, ranks, -1)[:, rank].ravel()
    return [users[places], items[places]], y[places], JOINED // ranks


def compiled(optimizer):
    # The backends draw other start values.
    model = cases.two_tables()
    random = np.random.RandomState(0)
    model.set_weights([random.uniform(-0.1, 0.1, of.shape) for of in model.get_weights()])
    model.compile(optimizer, 'mse', metrics=['mae'])
    return model


def fit(model, rank, ranks, callbacks=(), first=0):
    x, y, size = part_of(rank, ranks)
    history = model.fit(
        x, y, batch_size=size, initial_epoch=first, epochs=EPOCHS, shuffle=False, verbose=0,
        callbacks=list(callbacks),
    )  # fmt: skip
    return history.history


def main(folder, part):
    strategy = kp.ParallaxStrategy()
    pattern = os.path.join(folder, 'at-{epoch}-{batch}.keras')
    with strategy:
        model = compiled(keras.optimizers.Adam(RATE, epsilon=1e-3))
    saver = kp.callbacks.ModelCheckpoint(pattern, save_steps=2)
    if part == 'first':
        try:
            fit(model, strategy.rank, strategy.size, [saver, BrokenOff()])
        except BrokenOff.Error:
            return
    began = strategy.resume(model, kp.latest_checkpoint(pattern))
    history = fit(model, strategy.rank, strategy.size, first=began)
    plain = compiled(cases.summing(keras.optimizers.Adam(RATE, epsilon=1e-3)))
    expected = fit(plain, 0, 1)
    found = {
        'from': os.path.basename(kp.latest_checkpoint(pattern)),
        'began': began,
        'weights': max(
            float(np.abs(own - of).max())
            for own, of in zip(model.get_weights(), plain.get_weights())
        ),
        'history': max(
            float(np.abs(np.subtract(history[name], expected[name][began:])).max())
            for name in expected
        ),
    }
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


main(*sys.argv[2:])
