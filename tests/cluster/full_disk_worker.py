"""Run by `horovodrun` on a disk of a few MiB: saves after epochs while the disk is full or not.

Usage: full_disk_worker.py FOLDER RESULTS. Each rank writes RESULTS/RANK.json.
"""

import json
import os
import sys
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import keras  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax import job  # noqa: E402

ROWS = 10000


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
    with open(os.path.join(results, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)
    job.start().barrier()


main(*sys.argv[1:])
