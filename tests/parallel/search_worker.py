# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: the search for the number of shards, and for the architecture.

Usage: search_worker.py FOLDER. Rank 0 writes what came out to `FOLDER/found.npz`.
"""

import os
import sys

import numpy as np
from any_keras import keras

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

CASE = cases.CASES['adam']
#: At most ten numbers of shards are tried, or three architectures twice, with ten steps each.
STEPS = 105
#: So small a table would be dense from the start, and have no shards.
AUTO = {'architecture': 'auto', 'overrides': {'table/embeddings': 'sparse'}}


def train(see, **asked):
    """Trains on this worker's share; returns the strategy, the model and what was seen of plans."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**asked) as strategy:
        model = CASE.model(keras)
        model.compile(kp.ParallaxOptimizer(CASE.optimizer(keras)), CASE.loss)
    model.set_weights(cases.start_weights(model))
    seen = []
    for batch in cases.joined_batches(CASE, strategy.size, STEPS):
        model.train_on_batch(*cases.share(batch, strategy.rank, strategy.size))
        seen.append(see(strategy.plan(model)))
    return strategy, model, seen


def shards(plan):
    return len(plan['table/embeddings'].shards)


def architecture(plan):
    return plan.architecture


def summary_of(strategy, model):
    lines = []
    strategy.summary(model, print_fn=lines.append)
    return lines[0]


def main(folder):
    found = {}
    runs = {
        'first': (shards, {'partitions': 'search'}),
        'second': (shards, {'partitions': 'search'}),
        'auto': (architecture, AUTO),
    }
    for run, (see, asked) in runs.items():
        strategy, model, seen = train(see, **asked)
        found[run + '_seen'] = seen
        found[run + '_exchanges'] = [one.exchange for one in strategy.plan(model).variables]
        weights = model.get_weights()
        if strategy.rank == 0:
            for number, value in enumerate(weights):
                found['%s_%d' % (run, number)] = value
        print('RUN %s ENDS' % run, flush=True)
    of_ranks = job.start().gather([seen, summary_of(strategy, model)])
    found['auto_of_ranks'] = [of_rank[0] for of_rank in of_ranks]
    found['auto_summary'] = of_ranks[0][1]
    if strategy.rank == 0:
        np.savez(os.path.join(folder, 'found.npz'), **found)


main(*sys.argv[1:])
