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


def compare(case, strategy):
    """Largest differences of weights, predictions and history from plain Keras."""
    rank, ranks = strategy.rank, strategy.size
    data = case.data(STEPS * ranks * BATCH)
    optimizer = summing(case.optimizer())
    plain, plain_history = train(case, data, ranks * BATCH, optimizer, data)
    own_data = part_of(data, rank, ranks)
    with strategy:
        own = case.wrap(case.optimizer(), kp)
        model, history = train(case, own_data, BATCH, own, own_data)
    weights = [(np.asarray(ours), of) for ours, of in zip(model.get_weights(), plain.get_weights())]
    found = {
        'weights': max(float(np.abs(ours - of).max()) for ours, of in weights),
        'moved': case.moved(plain),
        'predictions': float(
            np.abs(
                np.asarray(model.predict(data[0], verbose=0), np.float32)
                - np.asarray(plain.predict(data[0], verbose=0), np.float32)
            ).max()
        ),
        'tables': sorted(variable.path for variable in sharded(model)),
    }
    found['history'] = {
        key: float(np.abs(np.subtract(history.get(key, np.nan), values)).max())
        for key, values in plain_history.items()
    }
    return found


def sharded(model):
    """The variables of tables that the engine keeps."""
    from keras_parallax.keras3 import embedding_layer

    return embedding_layer.tables_in(model)


def main(folder, names):
    strategy = kp.ParallaxStrategy()
    found = {}
    for name in names:
        try:
            found[name] = compare(CASES[name], strategy)
        except kp.ParallaxError as error:
            found[name] = {'refused': type(error).__name__, 'words': str(error)}
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


if __name__ == '__main__':
    main(sys.argv[2], sys.argv[3:])
