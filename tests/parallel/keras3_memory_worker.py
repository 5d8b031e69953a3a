# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`, or plainly: trains a table, which with a limit no worker could hold whole.

Usage: keras3_memory_worker.py BACKEND FOLDER MEBIBYTES [LIMIT]. With LIMIT, each worker may take
so many mebibytes more than before, and writes FOLDER/RANK.json. Rank 0 saves the model's weights
to FOLDER/start.weights.h5 and, after training, FOLDER/end.weights.h5, and the model to
FOLDER/model.keras, and exports it to FOLDER/exported; each worker saves its part to FOLDER/parts.
Without LIMIT, the weights after training go to FOLDER/plain.weights.h5, and by how much the
predictions of the exported model differ to FOLDER/plain.json.
"""

import json
import os
import resource
import sys

BACKEND, FOLDER, MEBIBYTES, *LIMIT = sys.argv[1:]
os.environ['KERAS_BACKEND'] = BACKEND
# The stack of each thread counts, and TensorFlow starts as many as there are processors.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])

import h5py  # noqa: E402
import keras  # noqa: E402
import memory  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

WIDTH, BATCH, STEPS = 64, 16, 4
MEBIBYTE = 2**20


def built(rows, optimizer):
    ids = keras.Input([2], dtype='int32')
    looked_up = keras.layers.Embedding(rows, WIDTH, keras.initializers.RandomUniform(seed=7))(ids)
    dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=8))
    model = keras.Model(ids, dense(keras.layers.Flatten()(looked_up)))
    model.compile(optimizer, 'mse')
    return model


def batches(rows, rank, ranks):
    """What a worker trains with: its part of each joined batch."""
    ids = np.random.RandomState(5).randint(rows, size=(STEPS, 2, BATCH, 2))
    ids = ids.reshape(STEPS, ranks, -1, 2)[:, rank].reshape(-1, 2)
    return ids, np.ones([len(ids), 1])


def some_ids(rows):
    """Some that no batch has, and the first and the last."""
    return np.array([[0, rows // 2], [rows - 1, 5]], np.int32)


def main():
    rows = int(MEBIBYTES) * MEBIBYTE // (4 * WIDTH)
    if not LIMIT:
        model = built(rows, keras.optimizers.SGD(1.0))
        model.fit(*batches(rows, 0, 1), 2 * BATCH, shuffle=False, verbose=0)
        model.save_weights(os.path.join(FOLDER, 'plain.weights.h5'))
        import tensorflow as tf

        some = some_ids(rows)
        loaded = tf.saved_model.load(os.path.join(FOLDER, 'exported'))
        served = loaded.serve(some)
        with open(os.path.join(FOLDER, 'plain.json'), 'w') as file:
            json.dump(float(np.abs(served - model.predict(some, verbose=0)).max()), file)
        return
    with kp.ParallaxStrategy() as strategy:
        # Takes what has nothing to do with the size of a table.
        small = built(1000, keras.optimizers.SGD(1.0))
        small.fit(*batches(1000, strategy.rank, 2), BATCH, verbose=0)
        small.save_weights(os.path.join(FOLDER, 'small%d.weights.h5' % strategy.rank))
        limit = memory.size('VmData') + int(LIMIT[0]) * MEBIBYTE
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        model = built(rows, keras.optimizers.SGD(1.0))
    start = os.path.join(FOLDER, 'start.weights.h5')
    model.save_weights(start)
    some = some_ids(rows)
    parts = os.path.join(FOLDER, 'parts')
    saver = kp.callbacks.ModelCheckpoint(parts, sharded=True)
    model.fit(*batches(rows, strategy.rank, 2), BATCH, shuffle=False, verbose=0, callbacks=[saver])
    model.save_weights(os.path.join(FOLDER, 'end.weights.h5'))
    model.save(os.path.join(FOLDER, 'model.keras'))
    model.export(os.path.join(FOLDER, 'exported'), verbose=False)
    trained = model.predict(some, verbose=0)
    job.start().barrier()
    model.load_weights(start)
    job.start().barrier()
    found = {'changed': float(np.abs(model.predict(some, verbose=0) - trained).max())}
    with h5py.File(start, 'r') as file:
        table = file['layers/embedding/vars/0']
        saved = np.array([[table[number] for number in numbers] for numbers in some])
    found['loaded'] = float(np.abs(model.layers[1](some) - saved).max())
    strategy.resume(model, parts)
    found['resumed'] = float(np.abs(model.predict(some, verbose=0) - trained).max())
    try:
        np.ones(rows * WIDTH, np.float32)
        found['limited'] = False
    except MemoryError:
        found['limited'] = True
    with open(os.path.join(FOLDER, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


main()
