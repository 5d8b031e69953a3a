# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun` on a disk of a few MiB: saves while the disk is full, or not the same.

Usage: full_disk_worker.py FOLDER RESULTS. Each worker writes RESULTS/RANK.json.
"""

import ctypes
import json
import os
import subprocess
import sys
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
from any_keras import keras  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

ROWS = 10000
_CLONE_NEWNS = 0x20000


def hide(folder):
    """Puts an empty disk of this process's own in the place of a folder's, as another host has."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), 'unshare')
    subprocess.check_call(['mount', '--make-rprivate', '/'])
    subprocess.check_call(['mount', '-t', 'tmpfs', 'tmpfs', folder])


def told_by(function, *arguments):
    """The `CheckpointError` that a call raises, as text."""
    try:
        function(*arguments)
    except kp.CheckpointError as error:
        return str(error)
    return 'nothing was raised'


def main(folder, results):
    with kp.ParallaxStrategy() as strategy:
        layers = [
            keras.layers.Embedding(ROWS, 8, input_length=cases.LENGTH),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer('adagrad'), 'mse')
    ids, targets = cases.ids_and_targets(np.random.RandomState(strategy.rank), 24)
    filler, found = os.path.join(folder, 'filler'), {}

    def fit(sharded, epoch, full, on_save_error):
        """One epoch with a save at its end; returns the warnings or the error."""
        path = os.path.join(folder, 'parts' if sharded else 'model.h5')
        job.start().barrier()
        if strategy.is_chief and full:
            with open(filler, 'wb') as file:
                file.write(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - 65536))
        job.start().barrier()
        callback = kp.callbacks.ModelCheckpoint(path, sharded=sharded, on_save_error=on_save_error)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            try:
                model.fit(
                    ids, targets, 6, initial_epoch=epoch, epochs=epoch + 1, verbose=0,
                    callbacks=[callback],
                )  # fmt: skip
                told = [str(one.message) for one in caught if 'checkpoint' in str(one.message)]
            except kp.CheckpointError as error:
                told = ['CheckpointError: %s' % error]
        job.start().barrier()
        if strategy.is_chief and full:
            os.remove(filler)
        job.start().barrier()
        return told

    def state():
        return [weight.tolist() for weight in [model.get_weights()[0][:20]]]

    for name, sharded in (('single', False), ('sharded', True)):
        found[name] = one = {'first': fit(sharded, 0, False, 'raise'), 'saved': state()}
        one['warn'] = fit(sharded, 1, True, 'warn')
        one['trained'] = state()
        # Rank 0 alone saves a single file: an error there would end the job, as it should.
        if sharded:
            one['raise'] = fit(sharded, 2, True, 'raise')
        path = os.path.join(folder, 'parts' if sharded else 'model.h5')
        one['epoch'] = strategy.resume(model, path)
        one['resumed'] = state()
        one['files'] = sorted(os.listdir(folder))
        one['parts'] = sorted(os.listdir(path)) if sharded else []
        one['again'] = fit(sharded, 1, False, 'raise')
        one['epoch again'] = strategy.resume(model, path)
        job.start().barrier()
    parts, single = os.path.join(folder, 'parts'), os.path.join(folder, 'model.h5')
    found['apart'] = one = {'before': state(), 'parts before': sorted(os.listdir(parts))}
    if strategy.rank == 1:
        hide(folder)
    one['resume'] = told_by(strategy.resume, model, parts)
    one['save'] = told_by(save_parts.save_parts, model, parts)
    one['after'] = state()
    one['parts'] = sorted(os.listdir(parts)) if os.path.exists(parts) else []
    # What only rank 0 sees is enough, of a single file.
    latest = kp.latest_checkpoint(os.path.join(folder, 'model.h5'))
    one['found'], one['epoch'] = latest == single, strategy.resume(model, latest)
    one['resumed'] = state()
    keras.backend.clear_session()
    with strategy:
        model = kp.load_model(single)
    one['loaded'] = state()
    job.start().barrier()
    with open(os.path.join(results, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)
    job.start().barrier()


main(*sys.argv[1:])
