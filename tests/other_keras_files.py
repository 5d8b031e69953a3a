# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of each generation of Keras, which the other resumes, in `fixtures/other_keras`.

Run as a script, it writes those of the stack that is installed: `python other_keras_files.py`.
"""

import os

import cases
import h5py
import numpy as np
from frameworks import TF2, keras_module

import keras_parallax as kp
from keras_parallax.checkpoint import save

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'fixtures', 'other_keras')
OWN, OTHER = ('tf2.21', 'tf1.11') if TF2 else ('tf1.11', 'tf2.21')
STEPS, RATE = 3, 0.02
#: In the order in which they are written. After a resume the first three move as before it: Adam
#: moves all rows in both generations, and no row without a gradient moves in the others.
OPTIMIZERS = {
    'adam': lambda keras: keras.optimizers.Adam(lr=0.01),
    'adagrad': lambda keras: keras.optimizers.Adagrad(lr=0.1),
    'sgd': lambda keras: keras.optimizers.SGD(lr=0.1),
    'nadam': lambda keras: keras.optimizers.Nadam(lr=0.01),
}
MOVE_ALIKE = ('adam', 'adagrad', 'sgd')


def path(stack, name):
    """The path of the checkpoint of a stack."""
    return os.path.join(FOLDER, stack, name + '.h5')


def built(name, **strategy):
    """A strategy, and a model in its scope with an optimizer of `OPTIMIZERS`."""
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**strategy) as strategy:
        model = cases.embed_and_sum()(keras)
        model.compile(OPTIMIZERS[name](keras), 'mse')
    return strategy, model


def train(model, begin, end):
    """Trains a model on some of the batches."""
    cases.train(model, cases.batches(cases.CASES['adam'], 2, begin, end))


def _write():
    for name in OPTIMIZERS:
        _, model = built(name)
        model.set_weights(cases.start_weights(model))
        train(model, 0, STEPS)
        # As a callback does: the rate is none of what the model is compiled with.
        keras_module('tf.keras').backend.set_value(model.optimizer.lr, RATE)
        os.makedirs(os.path.join(FOLDER, OWN), exist_ok=True)
        save.save(model, path(OWN, name), 2)
        weights = model.get_weights()
        train(model, STEPS, 2 * STEPS)
        with h5py.File(path(OWN, name), 'a') as file:
            for when, arrays in (('saved', weights), ('goes_on', model.get_weights())):
                for number, array in enumerate(arrays):
                    file['%s/%d' % (when, number)] = np.asarray(array)


if __name__ == '__main__':
    _write()
