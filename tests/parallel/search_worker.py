"""Run by `horovodrun`: the search for the number of shards.

Usage: search_worker.py FOLDER. Rank 0 writes what came out to `FOLDER/found.npz`.
"""

import os
import sys

import numpy as np
from any_keras import keras

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402

import keras_parallax as kp  # noqa: E402

CASE = cases.CASES['adam']
#: At most ten numbers of shards are tried, with ten steps each.
STEPS = 105


def train():
    """Trains on this rank's share; returns the strategy, the model and the shards seen."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy(partitions='search') as strategy:
        model = CASE.model(keras)
        model.compile(kp.ParallaxOptimizer(CASE.optimizer(keras)), CASE.loss)
    model.set_weights(cases.start_weights(model))
    seen = []
    for batch in cases.joined_batches(CASE, strategy.size, STEPS):
        model.train_on_batch(*cases.share(batch, strategy.rank, strategy.size))
        seen.append(len(strategy.plan(model)['table/embeddings'].shards))
    return strategy, model, seen


def main(folder):
    found = {}
    for run in ('first', 'second'):
        strategy, model, seen = train()
        found[run + '_seen'] = seen
        weights = model.get_weights()
        if strategy.rank == 0:
            for number, value in enumerate(weights):
                found['%s_%d' % (run, number)] = value
        print('RUN %s ENDS' % run, flush=True)
    if strategy.rank == 0:
        np.savez(os.path.join(folder, 'found.npz'), **found)


main(*sys.argv[1:])
