# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One process that trains the model of `keras3.py`. Rank 0 prints a line of JSON.

Usage: keras3_worker.py SYSTEM STEPS
"""

import json
import os
import resource
import sys
import time

import numpy as np

BATCH, WARMUP = 1024, 6
FIELDS, ROWS, WIDTH, NUMBERS = 26, 20000, 16, 13


def framework(system):
    """The Keras of a system."""
    if system == 'Keras 2':
        import tensorflow as tf

        tf.compat.v1.disable_v2_behavior()
        import tf_keras

        return tf_keras
    os.environ['KERAS_BACKEND'] = system.split(', ')[1]
    import keras

    return keras


def click_model(keras):
    """The model, of either Keras."""
    layers, uniform = keras.layers, keras.initializers.RandomUniform
    numbers = layers.Input((NUMBERS,))
    ids = layers.Input((FIELDS,), dtype='int32')
    rows = layers.Embedding(ROWS * FIELDS, WIDTH, embeddings_initializer=uniform(seed=1))(ids)
    wide = layers.Embedding(ROWS * FIELDS, 1, embeddings_initializer=uniform(seed=2))(ids)
    mean = layers.GlobalAveragePooling1D()(rows)
    hidden = layers.Concatenate()([layers.Flatten()(rows), numbers])
    for units in (256, 128):
        hidden = layers.Dense(units, activation='relu')(hidden)
    terms = [
        layers.Dense(1)(hidden),
        layers.Dense(1)(layers.Flatten()(wide)),
        layers.Dot(axes=1)([mean, mean]),
    ]
    return keras.Model([numbers, ids], layers.Activation('sigmoid')(layers.Add()(terms)))


def samples(count, seed):
    """Inputs and targets of some samples."""
    random = np.random.RandomState(seed)
    ids = (random.zipf(1.2, (count, FIELDS)) - 1) % ROWS + np.arange(FIELDS) * ROWS
    numbers = random.rand(count, NUMBERS).astype(np.float32)
    return [numbers, ids.astype(np.int32)], (random.rand(count, 1) < 0.3).astype(np.float32)


def train(system, steps):
    """Trains; returns the rank and what it measured."""
    keras, ends = framework(system), []
    rank, adagrad = 0, keras.optimizers.Adagrad
    if system == 'Keras 2':
        adagrad = keras.optimizers.legacy.Adagrad
    if system.startswith('plain'):
        model = click_model(keras)
        model.compile(adagrad(0.01), 'binary_crossentropy', jit_compile=system.endswith('jax'))
    else:
        import keras_parallax as kp

        with kp.ParallaxStrategy() as strategy:
            model = click_model(keras)
            model.compile(adagrad(0.01), 'binary_crossentropy')
        rank = strategy.rank
    x, y = samples(BATCH * (steps + WARMUP), rank)
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[clock])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rank, {'step_ms': 1e3 * float(np.median(np.diff(ends)[WARMUP:])), 'peak_gib': peak}


if __name__ == '__main__':
    rank, found = train(sys.argv[1], int(sys.argv[2]))
    if rank == 0:
        print(json.dumps(found), flush=True)
