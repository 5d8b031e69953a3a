# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains cases on this worker's share of the batches, rank 0 writes results.

Usage: equality_worker.py PACKAGE FOLDER CASE...

The environment variable STRATEGY may hold further arguments of `ParallaxStrategy`, as JSON.
"""

import json
import os
import sys
import traceback

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import moving  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.session.graph_scope import scope_of  # noqa: E402

EXTRA = json.loads(os.environ.get('STRATEGY', '{}'))


def run(case, keras, name):
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**dict(case.strategy, **EXTRA)) as strategy:
        model = case.model(keras)
        wrap = dict(case.wrap)
        for way in ('compression', 'pull_compression'):
            wrap[way] = getattr(kp.Compression, wrap.get(way, 'none'))
        if 'tables' in wrap:
            wrap['tables'] = wrap['tables'](keras)
        optimizer = kp.ParallaxOptimizer(case.optimizer(keras), keras=name, **wrap)
        model.compile(optimizer, cases.as_lists(case.loss), **cases.compile_arguments(case))
    model.set_weights(cases.start_weights(model))
    losses = []
    for number, batch in enumerate(cases.joined_batches(case, strategy.size)):
        moving.follow(model, case, number)
        parts = strategy.size * case.accumulated
        own = range(strategy.rank * case.accumulated, (strategy.rank + 1) * case.accumulated)
        of_parts = [model.train_on_batch(*cases.share(batch, part, parts)) for part in own]
        losses.append(float(np.mean([np.ravel(loss)[0] for loss in of_parts])))
    return strategy, losses, model


def devices_of_shards(model):
    """The devices on which shards of a model lie."""
    tables = scope_of(model.total_loss.graph).tables_by_name.values()
    return {shard.device for table in tables for shard in table.shards}


def main(package, folder, names):
    keras = cases.keras_module(package)
    for name in names:
        try:
            strategy, losses, model = run(cases.find(name), keras, package)
            from keras_parallax.engine.job import job

            losses = np.mean(job.start().gather(losses), 0) if strategy.size > 1 else losses
            if strategy.rank == 0:
                weights = model.get_weights()
                planned = strategy.plan(model).variables
                kinds = [variable.kind for variable in planned]
                np.savez(
                    os.path.join(folder, name + '.npz'),
                    *weights,
                    losses=losses,
                    kinds=kinds,
                    shards=[len(variable.shards) for variable in planned],
                    devices=sorted(devices_of_shards(model)),
                )
        except Exception:
            with open(os.path.join(folder, name + '.error'), 'a') as file:
                file.write(traceback.format_exc())
            raise


main(sys.argv[1], sys.argv[2], sys.argv[3:])
