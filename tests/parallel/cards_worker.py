# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A worker of `test_cards.py`: where TensorFlow would put its steps if it had graphics cards."""

import json
import os
import sys

import horovod.tensorflow as hvd
import numpy as np
import pretended_cards
from frameworks import keras_module

import keras_parallax as kp
from keras_parallax.compat.installed_frameworks import generation

#: Rows, width, lookups of an example: a table that goes alone, and two that are grouped. The sizes
#: in `docs/gpus.md` are of others.
TABLES = [
    tuple(map(int, table.split('x')))
    for table in os.environ.get('CARDS_TABLES', '5000x512x4 1000x64x1 1000x64x1').split()
]
BATCH = int(os.environ.get('CARDS_BATCH', '256'))
_SUMS = {'UnsortedSegmentSum', 'SparseSegmentSumWithNumSegments', 'AddN'}
_ARRIVALS = {'QueueDequeueV2', 'HorovodAllgather'}


def batch(rank):
    """Inputs and target of a worker: row k is named in proportion to 1 / (k + 1)."""
    random, ids = np.random.RandomState(rank), []
    for rows, _, lookups in TABLES:
        weights = 1 / np.arange(1, rows + 1)
        ids.append(random.choice(rows, (BATCH, lookups), p=weights / weights.sum()))
    return ids, random.rand(BATCH, 1)


def model_of(keras):
    """A model with `TABLES` and a dense layer, compiled."""
    layers = keras.layers
    inputs = [layers.Input((lookups,), dtype='int64') for _, _, lookups in TABLES]
    rows = [
        layers.Flatten()(
            layers.Embedding(rows, width, input_length=lookups, name='table_%d' % t)(ids)
        )
        for t, ((rows, width, lookups), ids) in enumerate(zip(TABLES, inputs))
    ]
    model = keras.models.Model(inputs, layers.Dense(1, name='dense')(layers.concatenate(rows)))
    model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(0.1)), 'mse')
    return model


def kinds(placement):
    """The types of devices of what a step has, a dict from what it is to a list."""
    found = {}
    for name, device in placement.devices.items():
        kind, of_table = placement.kind(name), 'table_' in name
        what = {
            'VarHandleOp': 'slot' if 'accumulator' in name else 'variable',
            'ResourceSparseApplyAdagradV2': 'update',
            'ResourceApplyAdagradV2': 'update',
            'ResourceGather': 'lookup',
            'FIFOQueueV2': 'queue',
            'HorovodAllreduce': 'collective',
            'HorovodAllgather': 'collective',
            'MatMul': 'layer',
        }.get(kind)
        if what in ('slot', 'variable', 'update') and 'handle' not in name:
            what = '%s of a %s' % (what, 'table' if of_table else 'dense layer')
            if 'dense' not in name and not of_table:
                continue
        if what:
            found.setdefault(what, set()).add(device.split(':')[0])
    return {what: sorted(devices) for what, devices in found.items()}


def described(call, cards, with_bytes):
    """What `test_cards.py` reads of a step: `kinds`, and its copies."""
    placement = call.placement(cards, hvd.rank(), hvd.size())
    copies = [copy for copy in placement.copies if copy.tensor is not None]
    sizes = call.bytes_of(copies) if with_bytes else [None] * len(copies)
    return {
        'kinds': kinds(placement),
        # Of the gradients that have arrived from the workers.
        'sums over workers': [
            device.split(':')[0]
            for name, device in placement.devices.items()
            if placement.kind(name) in _SUMS and placement.follows(name, _ARRIVALS)
        ],
        'checks': [
            device.split(':')[0]
            for name, device in placement.devices.items()
            if placement.kind(name) == 'Assert'
        ],
        'unknown': [copy.name for copy in placement.copies if copy.tensor is None],
        'copies': [
            [copy.name, copy.operation, copy.source, copy.target, copy.tensor.shape.as_list(), size]
            for copy, size in zip(copies, sizes)
        ],
    }


def main(path, *architectures):
    keras, results = keras_module('tf.keras'), {}
    # As if TensorFlow saw so many cards on this host.
    generation.visible_cards = lambda: int(os.environ.get('CARDS_OF_A_HOST', '2'))
    with kp.ParallaxStrategy():
        pass  # Starts the job.
    for architecture in architectures:
        keras.backend.clear_session()
        with kp.ParallaxStrategy(architecture=architecture):
            model = model_of(keras)
        inputs, target = batch(hvd.rank())
        with pretended_cards.calls_of_sessions() as calls:
            model.train_on_batch(inputs, target)
            model.predict_on_batch(inputs)
        step, prediction = [call for call in calls if call.options.feed][-2:]
        results[architecture] = {
            'step': described(step, 1, True),
            'prediction': described(prediction, 1, True),
            'without': described(step, 0, False),
            'distinct': [len(np.unique(ids)) for ids in inputs],
        }
    with open('%s/%d.json' % (path, hvd.rank()), 'w') as file:
        json.dump(results, file)


if __name__ == '__main__':
    main(*sys.argv[1:])
