# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: tables whose ids are admitted and evicted, trained whole and in two parts.

Usage: turnover_worker.py FOLDER. Each worker trains on its share of the batches; rank 0 writes to
FOLDER/NAME.npz what has become of each run.
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import dynamic  # noqa: E402
import turnover  # noqa: E402
from any_keras import keras  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402


def compiled(name):
    """A strategy, and a compiled model."""
    keras.backend.clear_session()
    arguments, optimizer = turnover.RUNS[name]
    with kp.ParallaxStrategy(partitions=turnover.SHARDS) as strategy:
        ids = keras.layers.Input((dynamic.LENGTH,), dtype='int64')
        table = kp.layers.DynamicEmbedding(dynamic.WIDTH, name='table', **arguments)
        flat = keras.layers.Flatten()(table(ids))
        out = keras.layers.Dense(1, kernel_initializer='ones', name='out')(flat)
        model = keras.models.Model(ids, out)
        model.compile(getattr(keras.optimizers, optimizer)(lr=0.05), 'mse')
    return strategy, model


def train(strategy, model, begin, end):
    losses = []
    for step in range(begin, end):
        batch = cases.share(turnover.batch(step), strategy.rank, strategy.size)
        losses.append(float(model.train_on_batch(*batch)))
    return np.mean(job.start().gather(losses), 0).tolist()


def seen(model, losses):
    rows, ids = model.get_layer('table').get_weights()[:2]
    counts = model.get_layer('table').row_counts()
    return dict(counts, losses=losses, rows=rows, ids=ids, out=model.get_weights()[-2])


def run(name, path):
    """Trains, saving in the middle, and gives what is seen at the end and the losses until then."""
    strategy, model = compiled(name)
    half = train(strategy, model, 0, turnover.STEPS // 2)
    save_parts.save_parts(model, path)
    job.start().barrier()
    losses = half + train(strategy, model, turnover.STEPS // 2, turnover.STEPS)
    return seen(model, losses), half


def resumed(name, path, half):
    """What is seen at the end of a run that goes on from the middle, after such losses."""
    strategy, model = compiled(name)
    strategy.resume(model, path)
    return seen(model, half + train(strategy, model, turnover.STEPS // 2, turnover.STEPS))


def main(folder):
    rank, size = job.start().rank, job.start().size
    for name in turnover.RUNS_OF[size]:
        path = os.path.join(folder, name)
        found, half = run(name, path)
        np.savez('%s.%d.npz' % (path, rank), **found)
        job.start().barrier()
        if size == turnover.RESUMED_RANKS:
            np.savez('%s.resumed.%d.npz' % (path, rank), **resumed(name, path, half))
            job.start().barrier()


main(*sys.argv[1:])
