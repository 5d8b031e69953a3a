# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: notes the start values of tables, and what memory they took a worker.

Usage: start_worker.py FOLDER PARTITIONS [ADDRESS], the address of a dedicated server. Each worker
writes FOLDER/RANK.npz.
"""

import hashlib
import os
import sys

import numpy as np
from any_keras import keras
from frameworks import TF2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import memory  # noqa: E402

import keras_parallax as kp  # noqa: E402

LARGE_ROWS, WIDTH = 2**20 + 1, 64
SMALL_ROWS = 101
INITIALIZERS = ['zeros', 'ones', 'uniform', 'normal', 'lecun_normal', 'orthogonal']


def initializer(name):
    """An initializer that draws what NumPy's seed says, as all of Keras 2.2.4 do."""
    made = keras.initializers.get(name)
    if not TF2 or not hasattr(made, 'seed'):
        return made
    return type(made)(**dict(made.get_config(), seed=np.random.randint(10**6)))


def build(rows):
    """A model with a table of some rows, and small ones with start values of every kind."""
    ids = keras.layers.Input((1,))
    sizes = {name: SMALL_ROWS for name in INITIALIZERS}
    sizes['large'] = rows
    looked_up = [
        keras.layers.Embedding(
            sizes[name],
            WIDTH,
            name=name,
            embeddings_initializer=initializer('uniform' if name == 'large' else name),
        )(ids)
        for name in sorted(sizes)
    ]
    flat = keras.layers.Flatten()(keras.layers.concatenate(looked_up))
    return keras.models.Model(ids, keras.layers.Dense(1)(flat))


def values_of(model):
    """The values of each small table, and the digest of those of the large one."""
    session, found = keras.backend.get_session(), {'small': []}
    for name in INITIALIZERS:
        found['small'].append(keras.backend.get_value(model.get_layer(name).embeddings))
    large, digest = model.get_layer('large').embeddings.sharded_rows, hashlib.sha256()
    for first in range(0, LARGE_ROWS, 2**16):
        digest.update(large.read(session, first, min(LARGE_ROWS, first + 2**16)).tobytes())
    found['large'] = digest.hexdigest()
    return found


def plain_values():
    """The values of each small table in plain Keras, with the seeds of rank 0."""
    keras.backend.clear_session()
    np.random.seed(7)
    # The large table draws one seed, however many rows it has.
    model = build(10)
    return [keras.backend.get_value(model.get_layer(name).embeddings) for name in INITIALIZERS]


def main(folder, partitions, servers):
    with kp.ParallaxStrategy(partitions=int(partitions), servers=servers or None) as strategy:
        # Seeds of rank 0 count.
        np.random.seed(7 + strategy.rank)
        model = build(LARGE_ROWS)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(lr=0.0)), 'mse')
    before = memory.size('VmRSS')
    memory.reset_peak()
    model.train_on_batch(np.array([[3]]), np.ones((1, 1)))
    found = {'extra': memory.size('VmHWM') - before, 'large_bytes': LARGE_ROWS * WIDTH * 4}
    if strategy.is_chief:
        found.update(values_of(model))
        found['plain'] = plain_values()
    np.savez(os.path.join(folder, '%d.npz' % strategy.rank), **found)


main(sys.argv[1], sys.argv[2], sys.argv[3:])
