# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: metrics of all samples, where workers have unequal shares.

Usage: metrics_worker.py FOLDER PACKAGE... Each worker writes to FOLDER/RANK.json what it has seen
with each Keras package: a dict by package.
"""

import json
import os
import sys
import warnings

import cases
import horovod.tensorflow as hvd
import numpy as np

import keras_parallax as kp

#: How many samples each worker trains on in three batches, and validates on.
TRAINED, VALIDATED = (48, 24), (40, 150)


def samples(rank, number):
    """Ids and labels of samples; each worker has more positive ones than the one before."""
    random = np.random.RandomState(rank + number)
    ids = random.randint(0, 50, [number, 3])
    return ids, (random.rand(number) < 0.2 + 0.5 * rank).astype('float32')


def compiled(keras, metrics):
    """A model that learns nothing, so that what it predicts is what it has predicted."""
    normal = keras.initializers.RandomNormal(stddev=1.0, seed=0)
    with kp.ParallaxStrategy():
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(50, 4, input_length=3, embeddings_initializer=normal),
                keras.layers.Flatten(),
                keras.layers.Dense(1, activation='sigmoid', kernel_initializer=normal),
            ]
        )
        model.compile(keras.optimizers.SGD(lr=0.0), 'binary_crossentropy', metrics=metrics)
    return model


def seen(keras, rank):
    """What a worker sees of a model's metrics, in `fit` and in `evaluate`."""
    metrics = [
        kp.metrics.AUC(),
        kp.metrics.LogLoss(),
        kp.metrics.NormalizedEntropy(),
        kp.metrics.Calibration(),
    ]
    model = compiled(keras, metrics + ['acc'])
    trained, validated = samples(rank, TRAINED[rank]), samples(rank, VALIDATED[rank])
    logs_of_first, batches = [], []
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs_of_first.append(dict(logs)),
            on_batch_end=lambda batch, logs: batches.append(float(logs['auc'])),
        ),
        keras.callbacks.EarlyStopping('val_auc', mode='max', patience=1),
        kp.callbacks.MetricAverageCallback(),
    ]
    arguments = {'epochs': 4, 'shuffle': False, 'verbose': 0, 'callbacks': callbacks}
    history = model.fit(
        *trained, batch_size=TRAINED[rank] // 3, validation_data=validated, **arguments
    ).history
    found = {
        'first': logs_of_first,
        'history': history,
        'batches': batches,
        'evaluated': model.evaluate(*validated, verbose=0),
        'names': model.metrics_names,
    }
    parts = 10

    def batches_of(ids, labels):
        while True:
            yield from zip(np.split(ids, parts), np.split(labels, parts))

    found['generated'] = model.evaluate_generator(batches_of(*validated), parts)
    model.fit_generator(
        batches_of(*(part[:20] for part in trained)),
        parts,
        epochs=1,
        verbose=0,
        callbacks=callbacks[:1],
        validation_data=batches_of(*validated),
        validation_steps=parts,
    )
    found['fit_generator'] = logs_of_first[-1]
    for name, (ids, labels) in (('trained', trained), ('validated', validated)):
        found[name] = [labels.tolist(), model.predict(ids)[:, 0].tolist()]
    found['ranked'] = ranked(keras, rank)
    found['grouped'] = grouped(keras, rank)
    return found


def ranked(keras, rank):
    """What a worker sees of metrics of several items a sample, its labels and its predictions."""
    keras.backend.clear_session()
    random = np.random.RandomState(rank)
    samples = [20, 70][rank]
    scores = random.randint(0, 9, [samples, 6]).astype('float32')
    # On rank 1, high scores tell right items.
    labels = (random.rand(samples, 6) < [0.7, scores / 16][rank]).astype('float32')
    with kp.ParallaxStrategy():
        layer = keras.layers.Dense(
            6, use_bias=False, kernel_initializer='identity', input_shape=(6,)
        )
        model = keras.models.Sequential([layer])
        metrics = [kp.metrics.PrecisionAtK(2), kp.metrics.RecallAtK(2)]
        model.compile(keras.optimizers.SGD(lr=0.0), 'mse', metrics=metrics)
    logs = model.fit(scores[:20], labels[:20], validation_data=(scores, labels), verbose=0).history
    values = dict(zip(model.metrics_names, model.evaluate(scores, labels, verbose=0)))
    return {'logs': logs, 'values': values, 'shares': [labels.tolist(), scores.tolist()]}


def grouped(keras, rank):
    """What a worker sees of the area within groups, and its labels, scores and groups."""
    keras.backend.clear_session()
    random = np.random.RandomState(rank)
    samples = [40, 150][rank]
    groups, scores = random.randint(0, 12, samples), random.randint(0, 20, samples)
    # Groups are on both workers; what is higher on rank 0 is ahead in many of them.
    labels = (random.rand(samples) < [0.3, scores / 20][rank]).astype('float32')
    scores = (scores + 10 * rank + 5 * (groups % 3)).astype('float32')
    with kp.ParallaxStrategy():
        user, score = keras.layers.Input((1,), dtype='int64'), keras.layers.Input((1,))
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer='identity')
        model = keras.models.Model([user, score], layer(score))
        name = model.input_names[0]
        metrics = [
            kp.metrics.GroupAUC(name),
            kp.metrics.GroupAUC(name, max_samples=60, name='of_some'),
        ]
        model.compile(keras.optimizers.SGD(lr=0.0), 'mse', metrics=metrics)
    inputs = [groups, scores]
    validates = {'validation_data': (inputs, labels)}
    trained = [part[:40] for part in inputs], labels[:40]
    logs = model.fit(*trained, verbose=0, **validates).history
    # Rank 0 alone validates.
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        alone = model.fit(*trained, verbose=0, **({} if rank else validates)).history
    values = dict(zip(model.metrics_names, model.evaluate(inputs, labels, verbose=0)))
    shares = [labels.tolist(), scores.tolist(), groups.tolist()]
    return {'logs': logs, 'alone': alone, 'values': values, 'shares': shares}


def different(keras, rank):
    """What a worker is told if the workers compile with other metrics."""
    model = compiled(keras, [kp.metrics.AUC(100 * (rank + 1))])
    try:
        model.fit(*samples(0, 24), verbose=0)
    except kp.MetricMismatchError as error:
        return str(error)


def main(folder, *packages):
    warnings.simplefilter('ignore')
    found = {}
    for package in packages:
        keras = cases.keras_module(package)
        keras.backend.clear_session()
        kp.ParallaxStrategy()
        found[package] = seen(keras, hvd.rank())
    found['different'] = different(cases.keras_module(packages[-1]), hvd.rank())
    with open(os.path.join(folder, '%d.json' % hvd.rank()), 'w') as file:
        json.dump(found, file, default=float)


main(*sys.argv[1:])
