# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: asynchronous training.

Usage: async_worker.py PACKAGE FOLDER [ADDRESS...]. Rank 0 writes what came out to
`FOLDER/found.npz`. Shards are on the dedicated servers at the addresses, if there are any.

The environment variable TIMINGS holds the names of what is to be trained.
"""

import functools
import os
import sys

import numpy as np
from frameworks import TF2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402
from keras_parallax.observing.step_meter import measure  # noqa: E402

STEPS = 30
TIMINGS = {
    'hybrid': {'architecture': 'hybrid'},
    'ps': {'architecture': 'ps'},
    'bound': {'architecture': 'ps', 'max_staleness': 2, 'partitions': 3},
    'lockstep': {'architecture': 'ps', 'max_staleness': 0},
    'accumulated': {'architecture': 'ps', 'max_staleness': 1, 'partitions': 3},
}
#: Of each timing the batches whose gradients are applied at once.
ACCUMULATED = {'accumulated': 3}


def linear(keras):
    """A model whose gradients do not depend on its weights: the loss is the sum of the rows.

    It has two tables alike, which travel together.
    """
    ids = keras.layers.Input((cases.LENGTH,))
    rows = [
        keras.layers.Embedding(cases.ROWS, 1, input_length=cases.LENGTH, name=name)(ids)
        for name in ('table', 'other')
    ]
    total = keras.layers.Lambda(
        lambda x: keras.backend.sum(x, axis=1), output_shape=(1,), name='sum'
    )
    return keras.models.Model(ids, total(keras.layers.add(rows)))


#: `servers` of every strategy.
SERVERS = sys.argv[3:] or None


def build(keras, package, model, optimizer, loss, steps=1, **strategy):
    keras.backend.clear_session()
    with kp.ParallaxStrategy(sync=False, servers=SERVERS, **strategy) as made:
        built = model(keras)
        wrapped = kp.ParallaxOptimizer(optimizer(), keras=package, accumulate_steps=steps)
        built.compile(wrapped, loss)
    built.set_weights(cases.start_weights(built))
    return made, built


def every_push_counts(keras, package, rank, size, steps, together=1, **strategy):
    """Start and end weights of `linear` under SGD, and how often each row was looked up.

    Then the density that this worker has measured, and that of its own first ten batches. Then what
    it knows of how far the workers are.
    """
    optimizer = functools.partial(keras.optimizers.SGD, lr=0.1)
    loss = cases.pass_through
    made, model = build(keras, package, linear, optimizer, loss, together, **strategy)
    before = cases.start_weights(model)
    random = np.random.RandomState(rank)
    counts, touched = np.zeros(cases.ROWS), []
    for _ in range(steps):
        ids = cases.skewed_ids(random, (4, cases.LENGTH))
        counts += np.bincount(ids.ravel(), minlength=cases.ROWS) / 4.0
        touched.append(len(np.unique(ids)) / cases.ROWS)
        model.train_on_batch(ids, np.zeros((4, 1)))
    # Nobody may read before all have written.
    total = np.sum(job.start().gather(counts.tolist()), 0)
    densities = made.plan(model).variables[0].density, np.mean(touched[:10])
    weights = [np.ravel(before), np.ravel(model.get_weights()), np.tile(total, 2) / together]
    return weights, densities, progress(model, steps)


def progress(model, steps):
    """What a worker knows of the steps and samples of all, before and after all have told."""
    step = model.optimizer._parallax_step
    measuring = measure(step)
    meter, alone = measuring.meter, []
    for rank in range(step.job.size):
        if step.job.rank == rank:
            alone = len(meter.progress(steps, 4 * steps))
        job.start().gather(None)
    known = meter.progress(steps, 4 * steps)
    measuring.end()
    return [[alone, step.job.size]] + [list(known[rank]) for rank in range(step.job.size)]


def converges(keras, package, rank, size, optimizer, together=1, **strategy):
    """The losses of a small regression."""
    built = cases.embed_and_sum()
    _, model = build(keras, package, built, optimizer, 'mse', together, **strategy)
    random = np.random.RandomState(3)
    ids, targets = cases.ids_and_targets(random, 16 * size)
    mine = cases.share([ids, targets], rank, size)
    losses = [float(model.train_on_batch(*mine)) for _ in range(50)]
    return [np.mean(job.start().gather(losses), 0)]


def lockstep_began():
    """When the last step began that ends for no worker before all have begun it."""
    return job.start().activity.lockstep_began


def main(package, folder):
    keras = cases.keras_module(package)
    made = kp.ParallaxStrategy(servers=SERVERS)
    given = keras, package, made.rank, made.size
    found = {}
    for name in sorted(os.environ['TIMINGS'].split()):
        strategy = dict(TIMINGS[name], together=ACCUMULATED.get(name, 1))
        # Only without a bound may workers take unequal numbers of steps. `linear` has no dense
        # variable, so nothing of it is synchronous.
        steps = STEPS + (5 * made.rank if 'max_staleness' not in strategy else 0)
        began = [lockstep_began()]
        counts, densities, known = every_push_counts(*given, steps, **strategy)
        began.append(lockstep_began())
        found.update({'counts_' + name: counts, 'density_' + name: densities})
        found['progress_' + name] = known
        optimizer = functools.partial(keras.optimizers.Adam, lr=0.05)
        if name == 'bound':
            # With TensorFlow 2, Keras begins with squares of 0.1, and takes smaller steps.
            begin = {'initial_accumulator_value': 0.0} if TF2 else {}
            optimizer = functools.partial(keras.optimizers.Adagrad, lr=0.05, **begin)
        found['losses_' + name] = converges(*given, optimizer, **strategy)
        found['began_' + name] = began + [lockstep_began()]
    if made.rank == 0:
        np.savez(os.path.join(folder, 'found.npz'), **found)


main(*sys.argv[1:3])
