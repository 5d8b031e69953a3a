# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: every worker saves, as a script without chief guards has it.

Usage: saving_by_all_worker.py FOLDER PACKAGE. Each worker writes `FOLDER/RANK.json`: for each case
a list of what the rank found right after a call of its own: which file is there, and what is in it.
"""

import hashlib
import json
import os
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402


def seen(path):
    """Which file or folder is at a path, and a digest of each array in a file."""
    status, arrays = os.stat(path), {}

    def visit(name, node):
        if isinstance(node, h5py.Dataset):
            arrays[name] = hashlib.sha256(node[()].tobytes()).hexdigest()

    if os.path.isfile(path):
        with h5py.File(path, 'r') as file:
            file.visititems(visit)
    return {'file': [status.st_ino, status.st_mtime_ns], 'arrays': arrays}


def digests(model):
    return [hashlib.sha256(value.tobytes()).hexdigest() for value in model.get_weights()]


class Rank:
    def __init__(self, folder, package):
        self.keras, self.folder = cases.keras_module(package), folder
        self.keras.backend.clear_session()
        self.strategy = kp.ParallaxStrategy()
        with self.strategy:
            self.model = cases.CASES['adam'].model(self.keras)
            self.model.compile(cases.CASES['adam'].optimizer(self.keras), 'mse')
            self.averaging = self.with_averages()
        self.model.set_weights(cases.start_weights(self.model))
        self.number, self.turns = self.strategy.rank, 0

    def with_averages(self):
        """A model whose batch normalization has averages of each worker's own."""
        layers = self.keras.layers
        model = self.keras.models.Sequential(
            [
                layers.Embedding(cases.ROWS, cases.WIDTH, input_length=cases.LENGTH),
                layers.Flatten(),
                layers.BatchNormalization(),
                layers.Dense(1),
            ]
        )
        model.compile(self.keras.optimizers.Adagrad(), 'mse')
        return model

    def path(self, name):
        return os.path.join(self.folder, name)

    def data(self, begin=0, end=4):
        batches = cases.batches(cases.CASES['adam'], 2, begin, end, self.number)
        return [np.concatenate(parts) for parts in zip(*batches)]

    def train(self, model):
        ids, targets = self.data()
        model.train_on_batch(ids, targets)

    def saved(self, path, save):
        """What is there after the call, and whether it is what this worker's model has."""
        save(path)
        found = seen(path)
        arrays = set(found['arrays'].values())
        found['own'] = [digest in arrays for digest in digests(self.saving)]
        return found

    def in_turn(self, first, act):
        """Has one worker act, and then the other, which does not meet it in between."""
        job.start().barrier()
        self.turns += 1
        acted = self.path('acted-%d' % self.turns)
        while self.number != first and not os.path.exists(acted):
            time.sleep(0.05)
        result = act()
        if self.number == first:
            with open(acted, 'w'):
                pass
        return result

    # --- The cases -----------------------------------------------------------------------------

    def callbacks(self):
        """Keras's own, which every worker gives to `fit`."""
        notes = []
        note = self.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: notes.append(seen(self.path('%d.h5' % (epoch + 1))))
        )
        ids, targets = self.data()
        size = len(ids) // 4
        save = self.keras.callbacks.ModelCheckpoint(self.path('{epoch}.h5'))
        weights = self.keras.callbacks.ModelCheckpoint(
            self.path('weights.h5'), save_weights_only=True
        )
        self.model.fit(
            ids, targets, size, epochs=3, shuffle=False, verbose=0, callbacks=[save, weights, note]
        )
        return notes + [seen(self.path('weights.h5'))]

    def at_once(self):
        job.start().barrier()
        return [
            self.saved(self.path('at_once.h5'), self.model.save),
            self.saved(self.path('at_once.weights.h5'), self.model.save_weights),
            self.saved(self.path('without.h5'), self.save_without_optimizer),
        ]

    def save_without_optimizer(self, path):
        self.model.save(path, include_optimizer=False)

    def by_turns(self):
        return [
            self.in_turn(first, lambda: self.saved(self.path('turns.h5'), self.model.save))
            for first in self.after_steps(0, 1)
        ]

    def after_steps(self, *values):
        for value in values:
            self.train(self.saving)
            yield value

    def averages(self):
        """Each worker's own averages: those of rank 0 are saved, whoever comes first."""
        self.saving = self.averaging
        return [
            self.in_turn(first, lambda: self.saved(self.path('averages.h5'), self.averaging.save))
            for first in self.after_steps(0, 1)
        ]

    def changed(self):
        """The weights are set between two saves, by Keras or by an operation of the user's."""
        path, backend = self.path('changed.h5'), self.keras.backend
        found = [self.saved(path, self.model.save)]
        job.start().barrier()
        self.model.set_weights([value + 1 for value in self.model.get_weights()])
        job.start().barrier()
        found.append(self.saved(path, self.model.save))
        job.start().barrier()
        kernel = self.model.get_layer('out').weights[0]
        backend.get_session().run(kernel.assign_add(0 * kernel + 1.0))
        found.append(self.saved(path, self.model.save))
        return found

    def set_on_rank_0(self):
        """Rank 0 alone has set weights, and all save."""
        if self.number == 0:
            self.model.set_weights([value / 2 for value in self.model.get_weights()])
        job.start().barrier()
        return [
            self.in_turn(
                first,
                lambda: self.saved(self.path('set-%d.h5' % first), self.model.save),  # noqa: B023
            )
            for first in (0, 1)
        ]

    def of_each(self):
        path = self.path('rank-%d.h5' % self.number)
        return [self.saved(path, self.model.save)]

    def alone(self):
        """Rank 1 alone, and then both where rank 0 has moved the file away."""
        path, found = self.path('alone.h5'), []
        if self.number == 1:
            found.append(self.saved(path, self.model.save))
        job.start().barrier()

        def save_and_move():
            result = self.saved(path, self.model.save)
            if self.number == 0:
                os.rename(path, self.path('moved.h5'))
            return result

        return found + [self.in_turn(0, save_and_move)]

    def configured(self):
        """Not about saving: the workers' optimizers say the same in other words, and train."""

        class Configured(self.keras.optimizers.Adagrad):
            def get_config(self):
                names = {'name %d' % number for number in range(20)}
                others = {'schedule': lambda step: step in names, 'state': object()}
                return dict(super().get_config(), names=names, text=str(self), **others)

        with self.strategy:
            model = cases.CASES['adagrad'].model(self.keras)
            model.compile(Configured(), 'mse')
        self.train(model)
        return [len(digests(model))]

    def exported(self):
        job.start().barrier()
        path = self.path('export')
        kp.export_saved_model(self.model, path)
        return [seen(path)]

    def exported_averages(self):
        """Rank 1 comes first, so rank 0 exports again, for its averages are others."""

        def export():
            kp.export_saved_model(self.averaging, self.path('averages'))
            return seen(self.path('averages'))

        return [self.in_turn(1, export)]


def main(folder, package):
    rank, results = Rank(folder, package), {}
    for name in ('callbacks', 'at_once', 'by_turns', 'changed', 'of_each', 'alone', 'exported',
                 'averages', 'exported_averages', 'configured',
                 'set_on_rank_0'):  # fmt: skip
        rank.saving = rank.model
        results[name] = getattr(rank, name)()
        job.start().barrier()
    with open(os.path.join(folder, 'rank-%d.json' % rank.number), 'w') as file:
        json.dump(results, file)
    # Lock files are gone when a job has ended, and not before the other worker has found them.
    job.start().barrier()


main(*sys.argv[1:])
