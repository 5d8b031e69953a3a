# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What tests of incremental saves train, and how they look at what was saved."""

import os

import numpy as np
from any_keras import keras
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.checkpoint import keras_file_read, manifest, resume

#: Such that a shard of three is saved by rows; a save comes after so many batches.
ROWS, WIDTH, LENGTH, STEPS = 30000, 8, 3, 3
#: Of all workers; an epoch has six batches.
SAMPLES, BATCH, EPOCHS = 72, 12, 2
#: Of each worker, in a batch outside of `fit`.
TRAINED = 5


def build(optimizer='adagrad', **arguments):
    """A compiled model of one table in the scope of a strategy, and the strategy."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**arguments) as strategy:
        layers = [
            keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH, name='table'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, kernel_initializer='ones'),
        ]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer(optimizer, keras=KERAS_PACKAGES[0]), 'mse')
    model.layers[0].set_weights([np.random.RandomState(1).uniform(-1, 1, (ROWS, WIDTH))])
    return strategy, model


def start(model):
    """Gives a model that has trained the state that a new one has."""
    table = np.random.RandomState(1).uniform(-1, 1, (ROWS, WIDTH))
    model.set_weights([table, np.ones([LENGTH * WIDTH, 1]), np.zeros([1])])
    # Keras 2.15's Adagrad begins with other slots than 0.
    initial = model.optimizer.get_config().get('initial_accumulator_value', 0.0)
    weights = model.optimizer.get_weights()
    model.optimizer.set_weights(
        [np.full_like(one, initial if np.ndim(one) else 0) for one in weights]
    )


def data():
    random = np.random.RandomState(0)
    return random.randint(0, ROWS, (SAMPLES, LENGTH)), random.rand(SAMPLES, 1)


def state(model):
    """Every weight and slot."""
    return model.get_weights() + model.optimizer.get_weights()


def touched(number):
    """How many rows batch `number` of both workers touches."""
    ids, _ = data()
    return len(np.unique(ids[2 * TRAINED * number : 2 * TRAINED * (number + 1)]))


def contents(path):
    """Every array of a checkpoint, by its name in Keras's file."""
    found = {}
    with resume.opened(path) as (file, sources, _):

        def visit(name, node):
            if hasattr(node, 'dtype') and not name.startswith('keras_parallax/state'):
                found['/' + name] = node[()]

        file.visititems(visit)
        for name, source in sources.items():
            found[name] = source[: source.shape[0]]
    return found


def rows_of_table(path):
    """How many rows of the table the last delta has; `None` if it has all, or is a base."""
    saved = manifest.read_manifest(path)
    if not saved.deltas:
        return None
    (table,) = [name for name in saved.tables if name.startswith('/model_weights/table/')]
    total = 0
    for _, part, dataset, ids in saved.deltas[-1].tables[table]:
        if ids is None:
            return None
        with keras_file_read.opened(os.path.join(path, part)) as file:
            total += len(file[dataset])
    return total
