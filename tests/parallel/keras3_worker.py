# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains models of Keras 3 in a strategy and plainly, and compares them.

Usage: keras3_worker.py BACKEND FOLDER CASE... Each rank writes FOLDER/RANK.json: for each case
what `compare` returns, or the error that refused it.
"""

import json
import os
import sys

import hidden_packages

hidden_packages.hide()
BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras3_cases import BATCH, CASES, STEPS, summing  # noqa: E402

import keras_parallax as kp  # noqa: E402


def part_of(data, rank, ranks):
    """The part of each joined batch that a rank has."""
    places = np.arange(STEPS * ranks * BATCH).reshape(STEPS, ranks, BATCH)[:, rank].ravel()
    return keras.tree.map_structure(lambda of: None if of is None else of[places], data)


def train(case, data, size, optimizer, validation):
    """Builds, compiles and fits a model; returns it, and the history."""
    keras.utils.set_random_seed(3)
    model = case.build()
    model.compile(optimizer, **case.compile_arguments())
    if case.builds_first:
        model.optimizer.build(model.trainable_variables)
    x, y, weight = data
    history = case.fit(model, x, y, weight, size, validation)
    return model, history


def train_plainly(case, ranks, path):
    """Writes to a file what plain Keras comes to on the joined batches."""
    data = case.data(STEPS * ranks * BATCH)
    plain, history = train(case, data, ranks * BATCH, summing(case.plain()), data)
    moved = case.moved(plain)
    # A file of NumPy has no bfloat16.
    weights = [np.asarray(weight, np.float32) for weight in plain.get_weights()]
    np.savez(
        path,
        history=json.dumps(history),
        moved=np.nan if moved is None else moved,
        predictions=predictions_of(plain, data),
        **{'weight%d' % number: weight for number, weight in enumerate(weights)},
    )


def predictions_of(model, data):
    return np.asarray(model.predict(data[0], verbose=0), np.float32)


def compare(case, strategy, path):
    """Largest differences of weights, predictions and history from those in a file."""
    data, plain = case.data(STEPS * strategy.size * BATCH), dict(np.load(path))
    own_data = part_of(data, strategy.rank, strategy.size)
    with strategy:
        own = case.wrap(case.optimizer(), kp)
        model, history = train(case, own_data, BATCH, own, own_data)
    differences = [
        float(np.abs(np.asarray(ours, np.float32) - plain['weight%d' % number]).max())
        for number, ours in enumerate(model.get_weights())
    ]
    moved = float(plain['moved'])
    return {
        'weights': max(differences),
        'moved': None if np.isnan(moved) else moved,
        'predictions': float(np.abs(predictions_of(model, data) - plain['predictions']).max()),
        'tables': sorted(variable.path for variable in sharded(model)),
        'history': {
            key: float(np.abs(np.subtract(history.get(key, np.nan), values)).max())
            for key, values in json.loads(str(plain['history'])).items()
        },
    }


def sharded(model):
    """The variables of tables that the engine keeps."""
    from keras_parallax.keras3 import embedding_layer

    return embedding_layer.tables_in(model)


def main(folder, names):
    strategy = kp.ParallaxStrategy()
    found, paths = {}, {name: os.path.join(folder, name + '.npz') for name in names}
    if strategy.rank == 0:
        for name, path in paths.items():
            train_plainly(CASES[name], strategy.size, path)
        # Layers get the same numbers on every worker from now on.
        keras.utils.clear_session()
    strategy._job.barrier()
    for name, path in paths.items():
        try:
            found[name] = compare(CASES[name], strategy, path)
        except kp.ParallaxError as error:
            found[name] = {'refused': type(error).__name__, 'words': str(error)}
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


if __name__ == '__main__':
    main(sys.argv[2], sys.argv[3:])
