"""Models, data and callbacks with which scripts train in a job and in plain Keras alike."""

import os

import cases
import numpy as np

RANKS, BATCH, BATCHES, EPOCHS = 2, 12, 8, 14
#: The batches that validate.
HELD_OUT = (20, 24)
#: Of the joined data: in the fifth batch, and of rank 1.
BAD_SAMPLE = 4 * BATCH + BATCH // RANKS


def model(keras):
    """An embedding and dense layers."""
    return cases.CASES['adagrad'].model(keras)


def optimizer(keras):
    """Adagrad with a rate that decays by `ReduceLROnPlateau` alone."""
    return keras.optimizers.Adagrad(lr=0.1)


def normalized_model(keras):
    """A model with batch normalization."""
    layers = keras.layers
    return keras.models.Sequential(
        [
            layers.Embedding(cases.ROWS, cases.WIDTH, input_length=cases.LENGTH, name='table'),
            layers.Flatten(),
            layers.BatchNormalization(name='normal'),
            layers.Dense(1, name='out'),
        ]
    )


def stateful_model(keras):
    """A model with a recurrent layer that keeps its states from batch to batch."""
    layers = keras.layers
    ids = layers.Input(batch_shape=(BATCH // RANKS, cases.LENGTH))
    rows = layers.Embedding(cases.ROWS, cases.WIDTH, name='table')(ids)
    hidden = layers.SimpleRNN(3, stateful=True, name='recurrent')(rows)
    return keras.models.Model(ids, layers.Dense(1, name='out')(hidden))


def data(begin=0, end=BATCHES, rank=None):
    """Ids and targets of some batches: of one rank, or of the joined batches."""
    batches = list(cases.joined_batches(cases.CASES['adagrad'], RANKS, end))[begin:]
    if rank is not None:
        batches = [cases.share(batch, rank, RANKS) for batch in batches]
    ids, targets = (np.concatenate(parts) for parts in zip(*batches))
    return ids, targets


def deciding(callbacks, monitor='loss'):
    """Keras's callbacks that decide by a metric: they lower the rate, and stop early.

    Args:
        callbacks: the `callbacks` module of a Keras package.
        monitor: the metric.
    """
    return [
        callbacks.ReduceLROnPlateau(monitor, factor=0.5, patience=1, min_delta=0.02),
        callbacks.EarlyStopping(monitor, patience=3, min_delta=0.02),
    ]


def writing(callbacks, folder, histograms=True):
    """Keras's callbacks that write: events in `FOLDER/events`, lines in `FOLDER/log.csv`.

    Args:
        callbacks: the `callbacks` module of a Keras package.
        folder: the folder.
        histograms: whether events have those of weights and gradients. Two such callbacks of one
            process write each other's.
    """
    events = {'histogram_freq': 1, 'write_grads': True} if histograms else {}
    return [
        callbacks.TensorBoard(os.path.join(folder, 'events'), **events),
        callbacks.CSVLogger(os.path.join(folder, 'log.csv'), append=True),
    ]


def printing(callbacks, path):
    """Keras's callbacks that print when they act, as they do here after the second epoch.

    Args:
        callbacks: the `callbacks` module of a Keras package.
        path: the path of a checkpoint.
    """
    return [
        callbacks.ModelCheckpoint(path, verbose=1),
        callbacks.ReduceLROnPlateau('loss', patience=1, min_delta=9, verbose=1),
        callbacks.EarlyStopping('loss', patience=1, min_delta=9, verbose=1),
    ]
