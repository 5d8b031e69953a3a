# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: files of Keras 3 models with their optimizers' state, and plain Keras's.

Usage: keras3_saving_worker.py BACKEND FOLDER OPTIMIZER... Each rank writes FOLDER/RANK.json;
with Adam among them, what has nothing to do with the optimizer, too.
"""

import functools
import json
import os
import sys
import warnings

BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import h5py  # noqa: E402
import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.keras3 import embedding_layer  # noqa: E402

BATCH, STEPS, RATE = 6, 3, 0.1

#: Every optimizer with which tables are sharded, with all of its slots.
OPTIMIZERS = {
    'Adagrad': functools.partial(keras.optimizers.Adagrad, RATE),
    'SGD': functools.partial(keras.optimizers.SGD, RATE, momentum=0.9, nesterov=True),
    'Adam': functools.partial(keras.optimizers.Adam, RATE, amsgrad=True, epsilon=1e-3),
    'RMSprop': functools.partial(keras.optimizers.RMSprop, RATE, momentum=0.5, centered=True),
    'Adadelta': functools.partial(keras.optimizers.Adadelta, 1.0),
    'Adamax': functools.partial(keras.optimizers.Adamax, RATE),
    'Nadam': functools.partial(keras.optimizers.Nadam, RATE),
    'Lion': functools.partial(keras.optimizers.Lion, RATE),
}


def batches(rank, ranks, first):
    """Some batches of a worker, or all workers' joined for one."""
    (users, items), y, _ = cases.CASES['sgd'].data(2 * STEPS * ranks * BATCH)
    shape = 2 * STEPS, ranks, BATCH
    found = []
    for step in range(first, first + STEPS):
        of_step = [of.reshape(*shape, *of.shape[1:])[step] for of in (users, items, y)]
        own = [np.concatenate(of) if rank is None else of[rank] for of in of_step]
        found.append(([own[0], own[1]], own[2]))
    return found


def trained(model, data):
    for x, y in data:
        model.train_on_batch(x, y)


def built(optimizer):
    keras.utils.set_random_seed(3)
    model = cases.two_tables()
    model.compile(optimizer, 'mse', jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def difference(path, other):
    """The largest between two files of weights, which must have the same datasets."""
    found = {}
    with h5py.File(path, 'r') as file, h5py.File(other, 'r') as of_other:

        def compare(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = float(np.abs(item[()] - of_other[name][()]).max(initial=0.0))

        names = []
        of_other.visititems(lambda name, item: names.append(name))
        file.visititems(compare)
        missing = [name for name in names if isinstance(of_other[name], h5py.Dataset)]
    assert sorted(found) == sorted(missing), (sorted(found), sorted(missing))
    return max(found.values())


def goes_on(strategy, folder, name):
    """What a file of ours lacks, and of training that goes on from either's file."""
    rank, ranks = strategy.rank, strategy.size

    def path_of(what):
        return os.path.join(folder, '%s-%s.weights.h5' % (name, what))

    plain = built(cases.summing(OPTIMIZERS[name]()))
    trained(plain, batches(None, ranks, 0))
    if rank == 0:
        plain.save_weights(path_of('plain'))
    with strategy:
        model = built(OPTIMIZERS[name]())
    trained(model, batches(rank, ranks, 0))
    model.save_weights(path_of('ours'))
    strategy._job.barrier()
    saved = difference(path_of('ours'), path_of('plain'))

    # Each goes on from the other's file.
    other = built(cases.summing(OPTIMIZERS[name]()))
    other.load_weights(path_of('ours'))
    with strategy:
        ours = built(OPTIMIZERS[name]())
    ours.load_weights(path_of('plain'))
    trained(plain, batches(None, ranks, STEPS))
    trained(other, batches(None, ranks, STEPS))
    trained(ours, batches(rank, ranks, STEPS))
    if rank == 0:
        plain.save_weights(path_of('plain-end'))
        other.save_weights(path_of('other-end'))
    ours.save_weights(path_of('ours-end'))
    strategy._job.barrier()
    return {
        'sharded': len(embedding_layer.tables_in(ours)),
        'saved': saved,
        'by plain Keras': difference(path_of('other-end'), path_of('plain-end')),
        'by us': difference(path_of('ours-end'), path_of('plain-end')),
    }


def whole_model(strategy, folder):
    """A `.keras` file, which is loaded in the scope and goes on."""
    rank, ranks = strategy.rank, strategy.size
    path = os.path.join(folder, 'model.keras')
    plain = built(cases.summing(OPTIMIZERS['Adagrad']()))
    trained(plain, batches(None, ranks, 0))
    trained(plain, batches(None, ranks, STEPS))
    with strategy:
        model = built(OPTIMIZERS['Adagrad']())
    trained(model, batches(rank, ranks, 0))
    model.save(path)
    strategy._job.barrier()
    with strategy:
        model = keras.saving.load_model(path)
    trained(model, batches(rank, ranks, STEPS))
    ours, others = model.get_weights(), plain.get_weights()
    return max(float(np.abs(own - of).max()) for own, of in zip(ours, others))


class BrokenOff(keras.callbacks.Callback):
    """Breaks training off after a batch of an epoch, numbers from 0."""

    class Error(Exception):
        """What it raises."""

    def __init__(self, epoch, batch):
        super().__init__()
        self._place, self._epoch = (epoch, batch), None

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch) == self._place:
            raise self.Error

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch


def backed_up(strategy, folder):
    """A `fit` that Keras backs up is broken off, and goes on: the difference from plain Keras."""
    rank, ranks = strategy.rank, strategy.size
    own, joined = (
        [np.concatenate(of) for of in zip(*((*x, y) for x, y in batches(of_rank, ranks, 0)))]
        for of_rank in (rank, None)
    )
    path = os.path.join(folder, 'after-{epoch}.weights.h5')

    def fit(model, data, size, callbacks=()):
        *x, y = data
        return model.fit(
            x, y, batch_size=size, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks)
        )

    def callbacks():
        return [
            keras.callbacks.BackupAndRestore(os.path.join(folder, 'backup')),
            keras.callbacks.ModelCheckpoint(path, save_weights_only=True),
        ]

    plain = built(cases.summing(OPTIMIZERS['Adam']()))
    fit(plain, joined, BATCH * ranks)
    with strategy:
        model = built(OPTIMIZERS['Adam']())
    try:
        fit(model, own, BATCH, [*callbacks(), BrokenOff(2, 1)])
    except BrokenOff.Error:
        pass
    saved = sorted(name for name in os.listdir(folder) if name.startswith('after'))
    strategy._job.barrier()
    with strategy:
        model = built(OPTIMIZERS['Adam']())
    history = fit(model, own, BATCH, callbacks())
    strategy._job.barrier()
    ours, others = model.get_weights(), plain.get_weights()
    of_file = built(OPTIMIZERS['Adam']())
    of_file.load_weights(path.format(epoch=4))
    of_last = max(float(np.abs(a - b).max()) for a, b in zip(of_file.get_weights(), ours))
    return {
        'saved': saved,
        'epochs': history.epoch,
        'difference': max(float(np.abs(own - of).max()) for own, of in zip(ours, others)),
        'of the last file': of_last,
        'left': os.path.exists(os.path.join(folder, 'backup')),
    }


def resumed(strategy, folder, ending):
    """What a job goes on from that was broken off within an epoch, and how it ends."""
    rank, ranks = strategy.rank, strategy.size
    own, joined = (
        [
            np.concatenate(of)
            for of in zip(
                *((*x, y) for first in (0, STEPS) for x, y in batches(of_rank, ranks, first))
            )
        ]
        for of_rank in (rank, None)
    )
    # Six batches an epoch: it saves in the first one, and twice in the second.
    pattern = os.path.join(folder, 'at-{epoch}-{batch:02d}' + ending)

    def fit(model, data, size, callbacks=(), first=0):
        *x, y = data
        history = model.fit(
            x,
            y,
            batch_size=size,
            initial_epoch=first,
            epochs=3,
            shuffle=False,
            verbose=0,
            callbacks=list(callbacks),
        )
        return history.history['loss']

    def saver():
        return kp.callbacks.ModelCheckpoint(pattern, save_steps=4, max_to_keep=2)

    plain = built(cases.summing(OPTIMIZERS['Adagrad']()))
    losses = fit(plain, joined, BATCH * ranks)
    with strategy:
        model = built(OPTIMIZERS['Adagrad']())
    try:
        fit(model, own, BATCH, [saver(), BrokenOff(1, 3)])
    except BrokenOff.Error:
        pass
    strategy._job.barrier()
    latest = kp.latest_checkpoint(pattern)
    strategy._job.barrier()
    with strategy:
        model = built(OPTIMIZERS['Adagrad']())
    began = strategy.resume(model, latest)
    of_rest = fit(model, own, BATCH, [saver()], began)
    strategy._job.barrier()
    with strategy:
        other = built(keras.optimizers.Lion(RATE))
    try:
        strategy.resume(other, kp.latest_checkpoint(pattern))
        refused = None
    except kp.CheckpointError as error:
        refused = 'Adagrad' in str(error) and 'Lion' in str(error)
    ours, others = model.get_weights(), plain.get_weights()
    first = strategy.resume(model, kp.latest_checkpoint(pattern))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter('always')
        *x, y = own
        model.fit(x, y, batch_size=BATCH, initial_epoch=first, epochs=first + 1, verbose=0)
    try:
        fit(model, own, BATCH, [saver()] if rank == 0 else [])
        alone = None
    except kp.ParallaxError as error:
        alone = type(error).__name__
    told = [one for one in told if 'after batch 4 of epoch 3' in str(one.message)]
    return {
        'warnings': len(told),
        'alone': alone,
        'latest': os.path.basename(latest),
        'first': began,
        'losses': float(np.abs(np.subtract(of_rest, losses[1:])).max()),
        'difference': max(float(np.abs(own - of).max()) for own, of in zip(ours, others)),
        'left': sorted(name for name in os.listdir(folder) if name.startswith('at-')),
        'refused': refused,
    }


def main(folder, names):
    strategy = kp.ParallaxStrategy()
    found = {name: goes_on(strategy, folder, name) for name in names}
    if 'Adam' in names:
        found['model'] = whole_model(strategy, folder)
        found['backed up'] = backed_up(strategy, folder)
        found['.keras'] = resumed(strategy, folder, '.keras')
        found['.weights.h5'] = resumed(strategy, folder, '.weights.h5')
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


if __name__ == '__main__':
    main(sys.argv[2], sys.argv[3:])
