# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: models of Keras 3 go on from checkpoints of Keras 2.

Usage: keras3_former_worker.py BACKEND FOLDER. FOLDER has `batches.npz`: what the models of
`fixtures/other_keras` were trained on after their checkpoints were written. Each rank writes
FOLDER/RANK.json.
"""

import json
import os
import sys

BACKEND, FOLDER = sys.argv[1:]
os.environ['KERAS_BACKEND'] = BACKEND

import h5py  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, 'fixtures')
STACKS = ('tf1.11', 'tf2.21')
KINDS = [kind for kind in ('keras', 'tf.keras') if os.path.isdir(
    os.path.join(FIXTURES, 'before_rooms', kind))]  # fmt: skip
OPTIMIZERS = {
    'adam': lambda: keras.optimizers.Adam(0.01),
    'adagrad': lambda: keras.optimizers.Adagrad(0.1, epsilon=1e-14),
    'sgd': lambda: keras.optimizers.SGD(0.1),
}
layers = keras.layers


def trained(optimizer):
    """The model of `fixtures/other_keras`."""
    model = keras.Sequential([
        keras.Input((5,), dtype='int32'),
        layers.Embedding(23, 4, name='table'),
        layers.Flatten(),
        layers.Dense(3, activation='tanh', name='hidden'),
        layers.Dense(1, name='out'),
    ])  # fmt: skip
    model.compile(optimizer, 'mse')
    return model


def small(optimizer):
    """The model of `fixtures/before_rooms`."""
    model = keras.Sequential([
        keras.Input((2,), dtype='int32'),
        layers.Embedding(11, 3, name='table'),
        layers.Flatten(),
        layers.Dense(1, name='out'),
    ])  # fmt: skip
    model.compile(optimizer, 'mse')
    return model


def recurrent(activation):
    model = keras.Sequential([
        keras.Input((5,), dtype='int32'),
        layers.Embedding(6, 2, name='table'),
        layers.LSTM(2, recurrent_activation=activation),
    ])  # fmt: skip
    model.compile('sgd', 'mse')
    return model


def distance(arrays, others):
    """The largest difference, in parts of the largest number of each array."""
    assert len(arrays) == len(others)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(arrays, others))


def slots_of(model):
    """The slots, variable by variable of the first, then of the second, as Keras 2 lists them."""
    own = [np.asarray(variable.numpy()) for variable in model.optimizer.variables[2:]]
    names = [variable.name.rsplit('_', 1)[1] for variable in model.optimizer.variables[2:]]
    return [slot for name in dict.fromkeys(names) for of, slot in zip(names, own) if of == name]


def arrays_of(file, group):
    return [file[group][str(number)][()] for number in range(len(file[group]))]


def error_of(act):
    try:
        act()
    except kp.errors.ParallaxError as error:
        return type(error).__name__
    return None


def goes_on(strategy, stack, name):
    """How far from what the job that saved had, and from how that one went on."""
    path = os.path.join(FIXTURES, 'other_keras', stack, name + '.h5')
    with strategy:
        model = trained(OPTIMIZERS[name]())
    found = {'epoch': strategy.resume(model, path)}
    found['steps'] = int(model.optimizer.iterations.numpy())
    found['rate'] = float(np.asarray(model.optimizer.learning_rate))
    with h5py.File(path, 'r') as file:
        found['weights'] = distance(model.get_weights(), arrays_of(file, 'saved'))
        after = arrays_of(file, 'goes_on')
    batches = np.load(os.path.join(FOLDER, 'batches.npz'))
    for ids, targets in zip(batches['ids'], batches['targets']):
        model.train_on_batch(*(of[strategy.rank :: strategy.size] for of in (ids, targets)))
    found['after'] = distance(model.get_weights(), after)
    return found


def loaded(strategy, kind, name):
    """How far the weights and slots are from those that were saved."""
    folder = os.path.join(FIXTURES, 'before_rooms', kind)
    with strategy:
        model = small(keras.optimizers.Adam(0.05))
    model.train_on_batch(np.zeros((4, 2), 'int32'), np.ones((4, 1)))
    arrays = np.load(os.path.join(folder, 'expected.npz'))
    saved = [arrays['arr_%d' % number] for number in range(10)]
    if name == 'weights.h5':
        model.load_weights(os.path.join(folder, name))
        return {'weights': distance(model.get_weights(), saved[:3])}
    epoch = strategy.resume(model, os.path.join(folder, name))
    return {
        'epoch': epoch,
        'steps': [int(model.optimizer.iterations.numpy()), int(saved[3])],
        'weights': distance(model.get_weights(), saved[:3]),
        'slots': distance(slots_of(model), saved[4:10]),
    }


def of_keras_3(strategy):
    """How far from a model whose HDF5 file Keras 3 has written in the form of Keras 2."""
    path = os.path.join(FOLDER, 'of-keras-3.h5')
    with strategy:
        saved, model = small(keras.optimizers.Adam(0.05)), small(keras.optimizers.Adam(0.05))
    saved.train_on_batch(np.zeros((4, 2), 'int32'), np.ones((4, 1)))
    saved.save(path)
    strategy.resume(model, path)
    with strategy:
        other = small('adamax')
    return {
        'weights': distance(model.get_weights(), saved.get_weights()),
        'slots': distance(slots_of(model), slots_of(saved)),
        'another optimizer': error_of(lambda: strategy.resume(other, path)),
    }


def main():
    strategy = kp.ParallaxStrategy()
    refused = {}
    with strategy:
        other_optimizer, nadam = trained('adagrad'), trained('nadam')
        other_model = small('adam')
        gates = [recurrent('sigmoid'), recurrent('hard_sigmoid')]
        decay = trained(keras.optimizers.SGD(0.1))
    adam = os.path.join(FIXTURES, 'other_keras', STACKS[0], 'adam.h5')
    of_tensorflow = os.path.join(FIXTURES, 'before_rooms', 'tf.train', 'saved-02.h5')
    for name, model, path in (
        ('optimizer', other_optimizer, adam),
        ('formula', nadam, os.path.join(FIXTURES, 'other_keras', STACKS[0], 'nadam.h5')),
        ('model', other_model, adam),
        ('of tf.train', small('adam'), of_tensorflow),
        ('default gates', gates[0], os.path.join(FOLDER, 'gates.h5')),
        ('gates of the same name', gates[1], os.path.join(FOLDER, 'gates.h5')),
        ('decay', decay, os.path.join(FOLDER, 'decay.h5')),
        ('decay of plain Keras', decay, os.path.join(FOLDER, 'plain-decay.h5')),
        ('within an epoch', decay, os.path.join(FOLDER, 'within.h5')),
    ):
        refused[name] = error_of(lambda model=model, path=path: strategy.resume(model, path))
    found = {
        'refused': refused,
        'of Keras 3': of_keras_3(strategy),
        'loaded': {
            '%s %s' % (kind, name): loaded(strategy, kind, name)
            for kind in KINDS
            for name in ('saved-02.h5', 'parts-02', 'weights.h5')
        },
        'goes on': {
            '%s %s' % (stack, name): goes_on(strategy, stack, name)
            for stack in STACKS
            for name in OPTIMIZERS
        },
    }
    with open(os.path.join(FOLDER, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


main()
