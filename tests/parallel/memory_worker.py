# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: moves a table of several blocks, and notes what memory that took.

Usage: memory_worker.py FOLDER PACKAGE MEBIBYTES BLOCK_MEBIBYTES. Each worker writes
FOLDER/RANK.json.
"""

import json
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import memory  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import (
    keras_file_read,  # noqa: E402
    resume,  # noqa: E402
    save_parts,  # noqa: E402
)
from keras_parallax.engine.job import job  # noqa: E402

MEBIBYTE = 2**20
WIDTH = 64


def extra(function, *arguments, **named):
    """By how much the process was larger while a function ran, and how long it took."""
    memory.reset_peak()
    before, began = memory.size('VmRSS'), time.time()
    function(*arguments, **named)
    return {'bytes': memory.size('VmHWM') - before, 'seconds': time.time() - began}


def main(folder, package, mebibytes, block_mebibytes):
    keras = cases.keras_module(package)
    rows, block = int(mebibytes) * MEBIBYTE // (4 * WIDTH), int(block_mebibytes) * MEBIBYTE
    with kp.ParallaxStrategy() as strategy:
        layers = [
            keras.layers.Embedding(rows, WIDTH, input_length=1, name='table'),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad()), 'mse')
    ids = np.arange(strategy.rank, rows, rows // 100)[:64, None]
    model.train_on_batch(ids, np.ones((64, 1)))
    path, found = os.path.join(folder, 'model.h5'), {}
    (table,) = [weight for weight in model.weights if hasattr(weight, 'sharded_rows')]
    session = keras.backend.get_session()
    table = table.sharded_rows
    some = [(first, first + 5) for first in range(0, rows - 5, rows // 7)]
    before = [table.read(session, *bounds) for bounds in some]
    job.start().barrier()
    if strategy.is_chief:
        # The first move adds operations to the graph, for which the session takes some memory.
        kp.save_model(model, path, block_bytes=block, show_progress=True)
        # To another path: workers of a host save the same thing once to each.
        again = os.path.join(folder, 'again.h5')
        found['save'] = extra(kp.save_model, model, again, block_bytes=block)
    job.start().barrier()
    parts = os.path.join(folder, 'parts')
    save_parts.save_parts(model, parts, block_bytes=block)
    found['save parts'] = extra(save_parts.save_parts, model, parts, block_bytes=block)
    for name, source in (('load', path), ('load parts', parts)):
        if strategy.is_chief:
            for first, last in some:
                table.write(session, first, np.zeros((last - first, WIDTH)))
        job.start().barrier()
        found[name] = extra(
            resume.resume, model, source, block_bytes=block, show_progress=strategy.is_chief
        )
        job.start().barrier()
        found[name]['right'] = all(
            np.array_equal(table.read(session, *bounds), rows) for bounds, rows in zip(some, before)
        )
    if strategy.is_chief:
        found['load weights'] = extra(keras_file_read.load_weights, model, path, block_bytes=block)
        found['file'] = os.path.getsize(path)
    job.start().barrier()
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


main(*sys.argv[1:])
