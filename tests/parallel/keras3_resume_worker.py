# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: one part of a training that several jobs do, one after the other.

Usage: keras3_resume_worker.py BACKEND FOLDER FORM first|last. The first job is broken off within
its second epoch; the last goes on from its newest checkpoint, and compares its end with plain
Keras's. Each rank of the last writes FOLDER/RANK.json. Jobs may have other numbers of workers: the
joined batch is the same. FORM is that of checkpoints: whole, sharded or incremental; or dense, of
which the last job has all tables on every worker; or killed, which is incremental, and where rank
1 of the first job is killed while it writes its part.
"""

import json
import os
import resource
import signal
import sys

BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402

JOINED, STEPS, EPOCHS, RATE = 12, 5, 3, 0.1
#: Rows of a table such that a shard of three is saved by rows.
ROWS = 30000
#: For each form, where it saves, and how.
FORMS = {
    'whole': ('at-{epoch}-{batch}.keras', {}),
    'sharded': ('at-{epoch}-{batch}', {'sharded': True}),
    'dense': ('at-{epoch}-{batch}', {'sharded': True}),
    'incremental': ('parts', {'incremental': True}),
    'killed': ('parts', {'incremental': True}),
}


class BrokenOff(keras.callbacks.Callback):
    """Breaks training off after the third batch of the second epoch."""

    class Error(Exception):
        """What it raises."""

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == (1, 2):
            raise self.Error


class KilledInSave(keras.callbacks.Callback):
    """Has the process killed in a save: a file may not be longer than a few pages by then."""

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) == 6:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**9, hard))


def part_of(rank, ranks):
    """A rank's samples, in the order in which it takes them, and how many are a batch."""
    (users, items), y, _ = cases.CASES['sgd'].data(STEPS * JOINED)
    places = np.arange(STEPS * JOINED).reshape(STEPS, ranks, -1)[:, rank].ravel()
    return [users[places], items[places]], y[places], JOINED // ranks


def large():
    """One table whose shards are large, and one of which every worker holds all."""
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    rows = [
        keras.layers.Flatten()(keras.layers.Embedding(ROWS, 8, name='user')(users)),
        keras.layers.Flatten()(keras.layers.Embedding(cases.ITEMS, 2, name='item')(items)),
    ]
    return keras.Model([users, items], keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))


def new_optimizer(form):
    if form not in ('incremental', 'killed'):
        return keras.optimizers.Adam(RATE, epsilon=1e-3)
    # It moves the rows alone that a batch looks up.
    return keras.optimizers.Adagrad(RATE)


def compiled(optimizer, form):
    # The backends draw other start values.
    model = cases.two_tables() if form == 'whole' else large()
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


def main(folder, form, part):
    overrides = {} if form == 'whole' else {'item': 'dense'}
    if (form, part) == ('dense', 'last'):
        overrides['user'] = 'dense'
    strategy = kp.ParallaxStrategy(overrides=overrides)
    name, options = FORMS[form]
    pattern = os.path.join(folder, name)
    with strategy:
        model = compiled(new_optimizer(form), form)
    saver = kp.callbacks.ModelCheckpoint(pattern, save_steps=2, **options)
    if part == 'first':
        killed = [KilledInSave()] if form == 'killed' and strategy.rank else []
        try:
            fit(model, strategy.rank, strategy.size, [*killed, saver, BrokenOff()])
        except BrokenOff.Error:
            return
    latest = kp.latest_checkpoint(pattern)
    strategy._job.barrier()
    began = strategy.resume(model, latest)
    steps = int(model.optimizer.iterations.numpy())
    history = fit(model, strategy.rank, strategy.size, [saver], began)
    plain = compiled(cases.summing(new_optimizer(form)), form)
    expected = fit(plain, 0, 1)
    found = {
        'from': os.path.basename(latest),
        'began': began,
        'steps': steps,
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
