# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: saves what has changed, until a kill hits a save; or goes on from there.

Usage: increments_worker.py FOLDER save|resume

`save` compares what it saves with full saves, and then trains until one worker is killed while it
writes its first delta. `resume` trains without a break, and in other ways, and then goes on from
what the kill has left. What a worker has goes to FOLDER/NAME-RANK.npz.
"""

import os
import resource
import signal
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import increments  # noqa: E402
from any_keras import keras  # noqa: E402
from frameworks import tf  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import manifest  # noqa: E402
from keras_parallax.checkpoint.increments import increments_of  # noqa: E402
from keras_parallax.checkpoint.keras_file_write import scope_of_model  # noqa: E402
from keras_parallax.checkpoint.save_parts import save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402
from keras_parallax.tuning.moves import replan  # noqa: E402


class KilledInSave(keras.callbacks.Callback):
    """Has the process killed in the second save: a file may not be longer then than a few pages."""

    def on_batch_end(self, batch, logs=None):
        if batch == 2 * increments.STEPS - 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, hard))


def note(folder, name, strategy, model):
    path = os.path.join(folder, '%s-%d.npz' % (name, strategy.rank))
    np.savez(path, *model.get_weights() + model.optimizer.get_weights())


def fit(strategy, model, path, others=()):
    checkpoint = kp.callbacks.ModelCheckpoint(path, save_steps=increments.STEPS, incremental=True)
    epoch = strategy.resume(model, kp.latest_checkpoint(path))
    model.fit(
        **kp.data.arrays(*increments.data()), batch_size=increments.BATCH // strategy.size,
        epochs=increments.EPOCHS, initial_epoch=epoch, verbose=0, callbacks=[*others, checkpoint],
    )  # fmt: skip


class Compared:
    """Saves what has changed, and all; says whether the two are the same and what was saved."""

    def __init__(self, folder, strategy, model, name):
        self._folder, self._strategy, self._model, self._name = folder, strategy, model, name

    def save(self):
        """Saves what has changed."""
        path = os.path.join(self._folder, self._name)
        changes = increments_of(scope_of_model(self._model), path)
        save_parts(self._model, path, increments=changes)

    def __call__(self, act):
        paths = [os.path.join(self._folder, self._name + end) for end in ('', '-full')]
        self.save()
        save_parts(self._model, paths[1])
        if self._strategy.is_chief:
            found, expected = map(increments.contents, paths)
            same = found.keys() == expected.keys() and all(
                np.array_equal(found[name], expected[name]) for name in expected
            )
            deltas = manifest.read_manifest(paths[0]).deltas
            rows = increments.rows_of_table(paths[0])
            print('%s %s SAME %s DELTAS %d ROWS %s;' % (self._name, act, same, len(deltas), rows))
        job.start().barrier()


def write_alone(strategy, model, rows):
    """Rank 1 writes rows of the shards of both workers."""
    if strategy.rank == 1:
        table = model.layers[0].weights[0]
        with table.graph.as_default():
            values = np.ones([len(rows), increments.WIDTH], np.float32)
            write = tf.scatter_update(table, rows, values)
        keras.backend.get_session().run(write)
    job.start().barrier()


def train(strategy, model, number):
    """Trains on some of the samples, the same number of them on each worker."""
    ids, targets = increments.data()
    first = increments.TRAINED * (2 * number + strategy.rank)
    rows = slice(first, first + increments.TRAINED)
    model.train_on_batch(ids[rows], targets[rows])
    job.start().barrier()


def save(folder):
    """Saves after training and after a write of one worker alone, and is killed in a save."""
    strategy, model = increments.build()
    compared = Compared(folder, strategy, model, 'compared')
    train(strategy, model, 0)
    compared.save()
    train(strategy, model, 1)
    compared('trained')
    write_alone(strategy, model, [4, 5, 7])
    compared('written')
    increments.start(model)
    job.start().barrier()

    def keep(batch, logs):
        if batch == increments.STEPS - 1:
            note(folder, 'base', strategy, model)

    others = [keras.callbacks.LambdaCallback(on_batch_end=keep)]
    fit(strategy, model, os.path.join(folder, 'broken'), others + [KilledInSave()] * strategy.rank)


def move(folder):
    """Saves before and after a move to other shards."""
    strategy, model = increments.build()
    fit(strategy, model, os.path.join(folder, 'unbroken'))
    note(folder, 'unbroken', strategy, model)
    compared = Compared(folder, strategy, model, 'unbroken')
    compared('trained')
    step = model.optimizer._parallax_step
    replan(step, step.request._replace(partitions=3))
    compared('moved')
    write_alone(strategy, model, [1, 2, 3, 6])
    compared('written')


def compare_async(folder):
    """Saves while each worker updates the shards of both by itself."""
    strategy, model = increments.build(architecture='ps', sync=False)
    compared = Compared(folder, strategy, model, 'async')
    for number in range(3):
        train(strategy, model, number)
        compared('trained')


def resume(folder):
    """Goes on from what was saved before the kill."""
    strategy, model = increments.build()
    fit(strategy, model, os.path.join(folder, 'broken'))
    note(folder, 'resumed', strategy, model)
    job.start().barrier()


def main(folder, phase):
    if phase == 'save':
        save(folder)
    else:
        move(folder)
        compare_async(folder)
        resume(folder)


main(*sys.argv[1:])
