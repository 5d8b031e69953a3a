# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models, data and callbacks with which scripts train in a job and in plain Keras alike."""

import inspect
import os

import cases
import numpy as np
from frameworks import tf

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


def frozen_model(keras):
    """A model with a dense layer that is not trained."""
    layers = keras.layers
    return keras.models.Sequential(
        [
            layers.Embedding(cases.ROWS, cases.WIDTH, input_length=cases.LENGTH, name='table'),
            layers.Flatten(),
            layers.Dense(3, name='frozen', trainable=False),
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


def counter(keras):
    """A metric that counts samples of positive targets; it reads its state, and adds to it."""
    return _counting_layer(keras) if not hasattr(keras.metrics, 'Metric') else _counting(keras)


def _counting_layer(keras):
    """A metric as Keras 2.2.4 has them, which orders neither after the other."""
    backend = keras.backend

    class Count(keras.layers.Layer):
        def __init__(self):
            super().__init__(name='count')
            self.stateful, self.count = True, backend.variable(0, dtype='int32')

        def reset_states(self):
            backend.set_value(self.count, 0)

        def __call__(self, targets, predictions):
            positive = backend.sum(backend.cast(targets > 0, 'int32'))
            before = self.count * 1
            update = backend.update_add(self.count, positive)
            self.add_update(update, inputs=[targets, predictions])
            return before + positive

    return Count()


def _counting(keras):
    """A metric as later versions of Keras have them."""

    class Count(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name='count')
            self.count = self.add_weight(name='positive', initializer='zeros', dtype='int32')

        def update_state(self, targets, predictions, sample_weight=None):
            return self.count.assign_add(tf.reduce_sum(tf.cast(targets > 0, 'int32')))

        def result(self):
            return self.count * 1

    return Count()


def seeded(keras):
    """An initializer of values that are the same wherever a model is built."""
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=9)


def shapeless_model(keras):
    """A model that learns its shape from its first batch."""
    start, layers = {'kernel_initializer': seeded(keras)}, keras.layers
    scaled = layers.Lambda(lambda ids: keras.backend.cast(ids, 'float32') / float(cases.ROWS))
    hidden = layers.Dense(4, activation='tanh', **start)
    return keras.models.Sequential([scaled, hidden, layers.Dense(1, **start)])


def subclassed_model(keras):
    """A model of a class of its own, with a table."""

    class Regressor(keras.models.Model):
        def __init__(self):
            super().__init__()
            self.table = keras.layers.Embedding(
                cases.ROWS, cases.WIDTH, embeddings_initializer=seeded(keras)
            )
            self.mean = keras.layers.GlobalAveragePooling1D()
            self.out = keras.layers.Dense(1, kernel_initializer=seeded(keras))

        def call(self, ids):
            return self.out(self.mean(self.table(ids)))

    return Regressor()


def data(begin=0, end=BATCHES, rank=None):
    """Ids and targets of some batches: of one worker, or of the joined batches."""
    batches = cases.batches(cases.CASES['adagrad'], RANKS, begin, end, rank)
    ids, targets = (np.concatenate(parts) for parts in zip(*batches))
    return ids, targets


def datasets(size, rank=None):
    """Arguments of `fit` of `tf.keras` that give it the data in batches, a dict.

    Args:
        size: the number of samples in a batch.
        rank: as `data` takes it.
    """

    def batches(*bounds):
        ids, targets = data(*bounds, rank=rank)
        pairs = tf.data.Dataset.from_tensor_slices((ids, targets.astype(np.float32)))
        return pairs.batch(size).repeat()

    return {
        'x': batches(),
        'steps_per_epoch': BATCHES,
        'validation_data': batches(*HELD_OUT),
        'validation_steps': HELD_OUT[1] - HELD_OUT[0],
        'epochs': EPOCHS,
        'verbose': 0,
    }


def weights(begin=0, end=BATCHES, rank=None):
    """Sample weights for `data`: in each joined batch those of rank 0 are small, most are zero."""
    random = np.random.RandomState(23)
    batches = random.uniform(1, 3, (end, BATCH))[begin:]
    batches[:, 1 : BATCH // RANKS] = 0
    batches[:, 0] = 0.3
    batches[0, 0] = 0  # Of a batch of rank 0 all.
    if rank is not None:
        batches = batches[:, rank * BATCH // RANKS : (rank + 1) * BATCH // RANKS]
    return batches.ravel()


def masked_data(rank=None):
    """Arguments of `fit` for `cases.masked_outputs`: inputs, targets and weights, each a list."""
    case = cases.WEIGHTED_CASES['masked_outputs']
    batches = cases.batches(case, RANKS, 0, BATCHES, rank)
    return [[np.concatenate(arrays) for arrays in zip(*of_batches)] for of_batches in zip(*batches)]


#: How `masked_outputs` is compiled.
MASKED = {
    'loss': 'mse',
    'loss_weights': [0.3, 2.0],
    'sample_weight_mode': ['temporal', None],
    'metrics': ['mae'],
    'weighted_metrics': ['mse'],
}


def weighted_fits(model, fit, of_fit, batches):
    """Trains with and without sample weights in turn; returns what was reported.

    Args:
        model: a model that is compiled with weighted metrics, of which one is a class if there are
            classes.
        fit: function of further arguments of `fit` that returns what `History` has.
        of_fit: sample weights for `fit`.
        batches: inputs, targets and weights for `train_on_batch`.
    """
    histories = [fit(), fit(sample_weight=of_fit), fit()]
    losses = [np.ravel(model.train_on_batch(*batch))[0] for batch in batches]
    return {'histories': histories, 'losses': losses, 'weights': model.get_weights()}


#: Of `fit` on shares that `kp.data` makes: epochs, a seed, and the samples that validate.
SHARED_EPOCHS, SHARED_SEED, SPLIT = 3, 5, 0.25


def uneven_data():
    """Ids and targets that two workers cannot share evenly, nor one in whole batches."""
    ids, targets = data()
    return ids[:-1], targets[:-1]


def batches_of(keras, size):
    """A `Sequence` of batches of the data, which two workers cannot share evenly."""
    ids, targets = data()
    count = len(ids) // size - 1

    class Batches(keras.utils.Sequence):
        def __len__(self):
            return count

        def __getitem__(self, index):
            rows = slice(index * size, (index + 1) * size)
            return ids[rows], targets[rows]

    return Batches()


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


def restoring(callbacks):
    """A callback that stops after the third epoch and sets the weights of the first one again.

    Args:
        callbacks: the `callbacks` module of a Keras package.
    """
    arguments = {'monitor': 'loss', 'patience': 2, 'min_delta': 9}
    if 'restore_best_weights' in inspect.signature(callbacks.EarlyStopping.__init__).parameters:
        return callbacks.EarlyStopping(restore_best_weights=True, **arguments)

    class Restoring(callbacks.EarlyStopping):
        """As of later versions than `tf.keras` 1.11."""

        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            if epoch == 0:
                self.best_weights = self.model.get_weights()
            if self.model.stop_training:
                self.model.set_weights(self.best_weights)

    return Restoring(**arguments)
