# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: `DynamicEmbedding` on shards, and plain Keras on ids that a dict numbers.

Usage: dynamic_worker.py PACKAGE FOLDER RUN... Each worker trains on its share of the batches, and
writes to FOLDER/RUN.RANK.npz what it has seen; rank 0 also trains plain Keras on the joined
batches. What the job has saved goes to FOLDER, too.
"""

import os
import sys
from typing import Callable, NamedTuple, Optional

import horovod.tensorflow as hvd
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import dynamic  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402
from keras_parallax.engine.step import train_step  # noqa: E402
from keras_parallax.tuning.moves import replan  # noqa: E402

KIND = 'RandomUniform'


class Run(NamedTuple):
    """How a model is trained.

    Attributes:
        optimizer: function from a Keras package to an optimizer.
        strategy: arguments of the strategy.
        resumed: those of the one that goes on in the middle from what was saved; `None` for none.
        wrap: arguments of the `ParallaxOptimizer`.
        moves: what the request is changed to after each two steps.
        steps: how many there are.
        combiner: the layer's.
    """

    optimizer: Callable
    strategy: dict = {}
    resumed: Optional[dict] = None
    wrap: dict = {}
    moves: tuple = ()
    steps: int = dynamic.STEPS
    combiner: Optional[str] = None


def adagrad(keras):
    return keras.optimizers.Adagrad(lr=0.1, epsilon=0.01)


def adam(keras):
    return keras.optimizers.Adam(lr=0.02, epsilon=0.01)


FP16 = {'compression': hvd.Compression.fp16, 'pull_compression': hvd.Compression.fp16}
MOVES = (
    {'partitions': 3},
    {'partitions': 1, 'architecture': 'ps'},
    {'partitions': 2, 'architecture': 'hybrid'},
)
RUNS = {
    'adagrad': Run(adagrad, resumed={'partitions': 1}),
    'adam': Run(adam, {'architecture': 'ps'}, {'partitions': 2}),
    'moved': Run(adam, moves=MOVES),
    'fp16': Run(adagrad, wrap=FP16),
    'accumulated': Run(adagrad, wrap={'accumulate_steps': 2}),
    'auto': Run(adagrad, {'architecture': 'auto'}, steps=90),
    'search': Run(adagrad, {'partitions': 'search'}, steps=60),
    'bags': Run(adagrad, combiner='mean'),
}
#: Those of which it is checked what a table says that is full, and one that is frozen too late.
REFUSED = ('adagrad', 'adam')


def compiled(keras, package, run, arguments):
    """A strategy, and a compiled model of a run."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**arguments) as strategy:
        initializer = dynamic.initializer(keras, KIND)
        table = kp.layers.DynamicEmbedding(
            dynamic.WIDTH,
            dynamic.CAPACITY,
            initializer=initializer,
            combiner=run.combiner,
            keras=package,
            name='table',
        )
        model = dynamic.model_of(keras, table)
        optimizer = kp.ParallaxOptimizer(run.optimizer(keras), keras=package, **run.wrap)
        model.compile(optimizer, 'mse')
    return strategy, model


def small(keras, package):
    """A compiled model of one field, with 60 rows."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((dynamic.LENGTH,), dtype='int64')
        table = kp.layers.DynamicEmbedding(2, 60, keras=package, name='table')
        out = keras.layers.Dense(1, name='out')(keras.layers.Flatten()(table(ids)))
        model = keras.models.Model(ids, out)
        model.compile('sgd', 'mse')
    return model


def train(model, strategy, run, begin, end):
    """Trains on this worker's share of some batches; returns the losses of all workers together."""
    ids, losses = dynamic.raw_ids(), []
    parts = strategy.size * run.wrap.get('accumulate_steps', 1)
    for number in range(begin, end):
        if run.moves and number and number % 2 == 0:
            step = train_step.step_of(model)
            replan(step, step.request._replace(**run.moves[number // 2 - 1]))
        batch = dynamic.batch(number % dynamic.STEPS, ids)
        own = range(strategy.rank, parts, strategy.size)
        of_parts = [model.train_on_batch(*cases.share(batch, part, parts)) for part in own]
        losses.append(float(np.mean(of_parts)))
    return np.mean(job.start().gather(losses), 0).tolist()


def seen(model):
    """What a worker sees of a model, a dict of arrays."""
    table = model.get_layer('table')
    ids = dynamic.raw_ids()
    before = table.get_weights()[1]
    predicted = model.predict(dynamic.asked_inputs(ids))
    # None of these ids has a row, and none gets one.
    model.evaluate([*dynamic.asked_inputs(ids + 7)], np.zeros([len(predicted), 1]), verbose=0)
    rows, after = table.get_weights()
    assert (before == after).all()
    return {'predicted': predicted, 'rows': rows, 'ids': after}


def full(keras, package, rank):
    """What a table that is full says, and whether it then has what it had."""
    model, targets = small(keras, package), np.ones([12, 1])
    ids = np.arange(12 * dynamic.LENGTH).reshape([12, dynamic.LENGTH])
    model.train_on_batch(ids, targets)
    before = dynamic.rows_by_id(model.get_layer('table'))
    others = model.get_layer('out').get_weights()
    # A faster rank's step may give rows to those of its ids that fit, while this one reads.
    job.start().barrier()
    said = error_of(model.train_on_batch, ids + 100 * (1 + rank), targets)
    after = dynamic.rows_by_id(model.get_layer('table'))
    same = [np.array_equal(after[id_], row) for id_, row in before.items()]
    same += map(np.array_equal, others, model.get_layer('out').get_weights())
    job.start().barrier()
    return {'said': said, 'same': same}


def refused(keras, package):
    """What is said of a table that gives rows, and of one that does not, if that changes later."""
    ids, said = dynamic.raw_ids()[dynamic.numbers(0)[0]], []
    for later in (False, True):
        keras.backend.clear_session()
        with kp.ParallaxStrategy():
            inputs = keras.layers.Input((dynamic.LENGTH,), dtype='int64')
            table = kp.layers.DynamicEmbedding(2, 60, keras=package, trainable=not later)
            out = keras.layers.Dense(1)(keras.layers.Flatten()(table(inputs)))
            table.trainable = later
            model = keras.models.Model(inputs, out)
            model.compile('sgd', 'mse')
        said.append(error_of(model.train_on_batch, ids, np.ones([len(ids), 1])))
    return said


def frozen(keras, package, rank):
    """What is predicted with a table that is not trained, whose rows rank 0 alone has been given.

    Returns a dict: that, and what NumPy makes of the rows.
    """
    ids = dynamic.raw_ids()[dynamic.asked()]
    rows = dynamic.first_rows(ids.ravel(), 2, KIND, **dynamic.INITIALIZERS[KIND])
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        inputs = keras.layers.Input((dynamic.LENGTH,), dtype='int64')
        table = kp.layers.DynamicEmbedding(
            2, len(rows), initializer='ones', keras=package, trainable=False
        )
        out = keras.layers.Dense(1, kernel_initializer='ones')
        model = keras.models.Model(inputs, out(keras.layers.Flatten()(table(inputs))))
        model.compile(keras.optimizers.SGD(lr=0.0), 'mse')
    if rank == 0:
        table.set_weights([rows, ids.ravel()])
    for begin in (0, 4):
        model.train_on_batch(ids[begin : begin + 4] + begin, np.ones([4, 1]))
    # None of the second ones has a row.
    both = np.concatenate([model.predict(ids), model.predict(ids + 7)])
    expected = np.sum(rows.reshape([len(ids), -1]), 1, keepdims=True)
    return {'predicted': both, 'expected': np.concatenate([expected, np.full_like(expected, 6.0)])}


def trained(keras, package, name, path):
    """What is seen of a run, which may be saved in the middle, and go on with other shards."""
    run = RUNS[name]
    middle = run.steps if run.resumed is None else run.steps // 2
    strategy, model = compiled(keras, package, run, run.strategy)
    losses = train(model, strategy, run, 0, middle)
    if run.resumed is not None:
        if name == 'adagrad':
            save_parts.save_parts(model, path)
        elif strategy.rank == 0:
            model.save(path)
        job.start().barrier()
        strategy, model = compiled(keras, package, run, run.resumed)
        strategy.resume(model, path)
        losses += train(model, strategy, run, middle, run.steps)
    if name == 'adam' and strategy.rank == 0:
        # It compares what is exported with the model.
        inputs = dynamic.asked_inputs(dynamic.raw_ids())
        kp.export_saved_model(model, path + '.export', inputs=inputs)
    counts = model.get_layer('table').row_counts()
    placed = [len(planned.shards) for planned in strategy.plan(model).variables]
    return dict(seen(model), losses=losses, placed=placed, **counts)


def main(package, folder, *names):
    keras, rank = cases.keras_module(package), job.start().rank
    for name in names:
        found = {}
        for key, value in trained(keras, package, name, os.path.join(folder, name)).items():
            found['ours.' + key] = value
        if rank == 0:
            run = RUNS[name]
            # By the layer itself, or in Keras's own way.
            combine = {'combine': dynamic.mean_of(keras)} if run.combiner else {}
            plain = dynamic.plain(keras, KIND, run.optimizer, run.steps, **combine)
            found.update(zip(['plain.' + key for key in PLAIN], plain))
        job.start().barrier()
        if name in REFUSED:
            found.update(('full.' + key, of) for key, of in full(keras, package, rank).items())
            # What is refused in one job need not be in another.
            found['refused'] = refused(keras, package) if name == 'adam' else ''
            found.update(('frozen.' + key, of) for key, of in frozen(keras, package, rank).items())
        np.savez(os.path.join(folder, '%s.%d.npz' % (name, rank)), **found)


#: What `dynamic.plain` returns.
PLAIN = ('losses', 'rows', 'predicted')

main(*sys.argv[1:])
