# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun` or alone: trains the entries of a job of `resumed.py`, and saves half way.

Usage: resuming_worker.py FOLDER JOB [ADDRESS...], with the addresses of dedicated servers. What a
worker has half way and at the end goes to FOLDER/results/ENTRY/half or end/RANK.npz. The
environment variable ENTRIES may hold the names of those to run, with semicolons between them.
"""

import os
import random
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import moving  # noqa: E402
import resumed  # noqa: E402
from any_keras import keras  # noqa: E402
from frameworks import TF2  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.callbacks.save_clock import SaveClock  # noqa: E402
from keras_parallax.checkpoint import save, save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402


def note(folder, name, strategy, model, **others):
    """Writes what this worker has."""
    folder = os.path.join(folder, 'results', name)
    os.makedirs(folder, exist_ok=True)
    weights = model.get_weights() + model.optimizer.get_weights()
    np.savez(os.path.join(folder, '%d.npz' % strategy.rank), *weights, **others)


def share(case, strategy, begin, end):
    return cases.batches(case, resumed.RANKS, begin, end, strategy.rank, strategy.size)


def build(package, case, arguments):
    package.backend.clear_session()
    with kp.ParallaxStrategy(**arguments) as strategy:
        model = case.model(package)
        optimizer = kp.ParallaxOptimizer(
            case.optimizer(package), keras='tf.keras' if TF2 or package is not keras else 'keras'
        )
        model.compile(optimizer, case.loss)
    model.set_weights(cases.start_weights(model))
    job.start().barrier()
    return strategy, model


def train(model, case, batches, first):
    for number, batch in enumerate(batches, first):
        moving.follow(model, case, number)
        cases.train(model, [batch])


def run(folder, name, entry, addresses):
    case, arguments = cases.find(entry.case), dict(entry.strategy)
    if arguments.get('servers') == 'dedicated':
        arguments['servers'] = addresses
    strategy, model = build(keras, case, arguments)
    if entry.source is None:
        train(model, case, share(case, strategy, 0, entry.half), 0)
        job.start().barrier()
        note(folder, name + '/half', strategy, model)
        if strategy.is_chief:
            save.save(model, os.path.join(folder, name + '.single.h5'), 3)
        save_parts.save_parts(model, os.path.join(folder, name + '.parts'), 3)
        epoch = 3
    else:
        # Whatever was before must not count.
        cases.train(model, share(case, strategy, 0, 1))
        epoch = strategy.resume(model, os.path.join(folder, '.'.join(entry.source)))
        job.start().barrier()
        note(folder, name + '/half', strategy, model)
        # With sync=False nothing else keeps another worker from training.
        job.start().barrier()
    if entry.source is not None:
        case = case._replace(moves=())
    train(model, case, share(case, strategy, entry.half, entry.steps), entry.half)
    job.start().barrier()
    note(folder, name + '/end', strategy, model, epoch=epoch)
    job.start().barrier()


def shuffle(folder, package, way):
    """Four epochs in an order that Keras shuffles, at once and broken off after the second."""
    case = cases.CASES['momentum']
    path = os.path.join(folder, 'shuffled', package + str(way), '{epoch}')
    found = []
    for begin in (0, 2):
        strategy, model = build(cases.keras_module(package), case, {})
        np.random.seed(begin + strategy.rank)
        random.seed(begin + strategy.rank)
        epoch = strategy.resume(model, path.format(epoch=begin) if begin else None)
        assert epoch == begin
        inputs, targets = case.batch(np.random.RandomState(strategy.rank), 24)
        model.fit(
            inputs, targets, 4, epochs=4, initial_epoch=epoch, shuffle=way, verbose=0,
            callbacks=[kp.callbacks.ModelCheckpoint(path, sharded=True)],
        )  # fmt: skip
        found.append(model.get_weights() + [random.random(), np.random.random_sample()])
    name = 'shuffled/%s %s' % (package, way)
    folder = os.path.join(folder, 'results', name)
    os.makedirs(folder, exist_ok=True)
    for half, arrays in zip(('unbroken', 'resumed'), found):
        np.savez(os.path.join(folder, '%s-%d.npz' % (half, strategy.rank)), *arrays)


class Broken(Exception):
    """Ends a `fit` as a crash would."""


class Break(cases.keras_module('tf.keras').callbacks.Callback):
    """Ends a `fit` after some batches."""

    def __init__(self, batches):
        super().__init__()
        self._batches = batches

    def on_batch_end(self, batch, logs=None):
        self._batches -= 1
        if self._batches == 0:
            raise Broken


#: Samples, and of those of all workers in a batch; an epoch has six batches.
COUNT, JOINED = 72, 12


def data_of(package, kind, strategy):
    """Arguments of `fit` or `fit_generator`."""
    case, size = cases.CASES['adam'], JOINED // strategy.size
    inputs, targets = case.batch(np.random.RandomState(3), COUNT)
    if kind == 'shares':
        return dict(kp.data.arrays(inputs, targets), batch_size=size)
    if kind == 'shuffled':
        mine = slice(strategy.rank, None, strategy.size)
        return {'x': inputs[mine], 'y': targets[mine], 'batch_size': size}

    class Batches(package.utils.Sequence):
        def __len__(self):
            return COUNT // size

        def __getitem__(self, index):
            rows = slice(index * size, (index + 1) * size)
            return inputs[rows], targets[rows]

    return {'x' if TF2 else 'generator': kp.data.shard(Batches())}


def checkpoint_of(strategy, path, kind, sharded, seen):
    """Saves after each fifth batch: by number, or by a clock of seconds that are batches."""
    if kind != 'Sequence':
        return kp.callbacks.ModelCheckpoint(path, save_steps=5, sharded=sharded)
    checkpoint = kp.callbacks.ModelCheckpoint(path, save_seconds=4.5, sharded=sharded)
    # The clock of rank 0 counts, whatever the others have.
    checkpoint._clock = SaveClock(4.5, lambda: len(seen) if strategy.rank == 0 else 7.0)
    return checkpoint


def within(folder, name, goes_on):
    """Three epochs at once and broken off in the second, unless it goes on with another job's."""
    package, kind, form = name.split()
    path = os.path.join(folder, 'within', name, '{epoch}-{batch}')
    results = os.path.join(folder, 'results', 'within', name)
    os.makedirs(results, exist_ok=True)
    for run in ('resumed',) if goes_on else ('unbroken', 'broken', 'resumed'):
        module = cases.keras_module(package)
        strategy, model = build(module, cases.CASES['adam'], {})
        np.random.seed(strategy.rank)
        epoch = 0
        if run == 'resumed':
            np.random.seed(9)
            latest = path.format(epoch=2, batch=4)
            assert goes_on or latest == kp.latest_checkpoint(path)
            epoch = strategy.resume(model, latest)
            assert epoch == 1
        seen = []
        callbacks = [
            module.callbacks.ReduceLROnPlateau('loss', min_delta=1.0, patience=1),
            module.callbacks.LambdaCallback(
                on_batch_end=lambda batch, logs, to=seen: to.append(batch)
            ),
        ]
        if run == 'broken':
            callbacks += [checkpoint_of(strategy, path, kind, form == 'parts', seen), Break(11)]
        named = dict(
            data_of(module, kind, strategy),
            epochs=3, initial_epoch=epoch, verbose=0, callbacks=callbacks,
        )  # fmt: skip
        try:
            history = (model.fit_generator if 'generator' in named else model.fit)(**named).history
        except Broken:
            continue
        assert seen == [0, 1, 2, 3, 4, 5] * 3 if run == 'unbroken' else [4, 5, 0, 1, 2, 3, 4, 5]
        weights = model.get_weights() + model.optimizer.get_weights()
        logs = {'history_' + metric: values for metric, values in history.items()}
        file = '%s-%d-of-%d.npz' % (run, strategy.rank, strategy.size)
        np.savez(os.path.join(results, file), *weights, **logs)


def main(folder, name, *addresses):
    names = os.environ.get('ENTRIES')
    for entry in resumed.JOBS[name].items():
        if names is None or entry[0] in names.split(';'):
            run(folder, *entry, addresses)
    for shuffled in resumed.SHUFFLES.get(name, []):
        if names is None or shuffled in names.split(';'):
            package, way = shuffled.split()
            shuffle(folder, package, way == 'True' or way)
    for broken in resumed.WITHIN.get(name, []):
        if names is None or broken in names.split(';'):
            within(folder, broken, goes_on=name != 'two workers')


main(*sys.argv[1:])
