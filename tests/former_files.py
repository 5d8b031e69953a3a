# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files that the version before the package had folders (9b33afa) has written, and their model."""

import os

import cases
import numpy as np
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp

#: A folder for each kind of optimizer, with `expected.npz`: what the saving job had.
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'fixtures', 'before_rooms')
#: Adam of each Keras package, and TensorFlow's in the first of them.
KINDS = KERAS_PACKAGES + ('tf.train',)
#: In how many ways the files of a kind are loaded.
WAYS = {'keras': 7, 'tf.keras': 7, 'tf.train': 2}
#: What `ModelCheckpoint` has been told to write to, in both forms.
FORMS = ('saved-{epoch:02d}.h5', 'parts-{epoch:02d}')
EPOCHS = 2
_ROWS, _SAMPLES = 11, 12


def build(kind, **strategy):
    """A compiled model of one sharded table and a dense layer, and its strategy."""
    name = kind if kind in KERAS_PACKAGES else KERAS_PACKAGES[0]
    package = cases.keras_module(name)
    package.backend.clear_session()
    layers = package.layers
    with kp.ParallaxStrategy(**strategy) as scope:
        model = package.models.Sequential(
            [
                layers.Embedding(_ROWS, 3, input_length=2, name='table'),
                layers.Flatten(name='flat'),
                layers.Dense(1, name='out'),
            ]
        )
        if kind == 'tf.train':
            adam = tf.train.AdamOptimizer(0.05)
        else:
            adam = package.optimizers.Adam(lr=0.05)
        model.compile(kp.ParallaxOptimizer(adam, keras=name), 'mse')
    return scope, model


def batch(rank, size):
    """A worker's share of the samples; the same for every epoch."""
    random = np.random.RandomState(3)
    ids, targets = random.randint(_ROWS, size=(_SAMPLES, 2)), random.uniform(-1, 1, (_SAMPLES, 1))
    return ids[rank::size], targets[rank::size]


def state(model):
    """Every weight, slot and counter."""
    return model.get_weights() + model.optimizer.get_weights()


def expected(kind):
    """What the job that wrote the files had: its state, its weights alone, its predictions."""
    arrays = np.load(os.path.join(FOLDER, kind, 'expected.npz'))
    values = [arrays['arr_%d' % number] for number in range(len(arrays.files) - 1)]
    return values, values[:3], arrays['predictions']


def loaded(kind, **strategy):
    """Loads each of a kind's files into a model that was trained before, in each way there is.

    Yields:
        The state of the model after each, or its weights alone.
    """
    scope, model = build(kind, **strategy)
    path = os.path.join(FOLDER, kind)
    for form in FORMS:
        model.train_on_batch(*batch(scope.rank, scope.size))
        latest = kp.latest_checkpoint(os.path.join(path, form))
        assert scope.resume(model, latest) == EPOCHS
        yield state(model)
    if kind == 'tf.train':
        return
    for name in ('model.h5', 'weights.h5'):
        model.train_on_batch(*batch(scope.rank, scope.size))
        model.load_weights(os.path.join(path, name))
        yield model.get_weights()
    for name in ('model.h5',) + FORMS:
        with scope:
            model = kp.load_model(os.path.join(path, name.format(epoch=EPOCHS)))
        yield state(model)


def assert_equal(kind, arrays):
    """Compares a state, or weights, with what was saved; to the bit."""
    whole, weights, _ = expected(kind)
    if TF2 and kind != 'tf.train':
        # Keras 2.2.4 lists a slot more of each weight, which Adam without amsgrad does not use.
        whole = whole[: -len(weights)]
    saved = weights if len(arrays) == len(weights) else whole
    assert len(arrays) == len(saved)
    for array, other in zip(arrays, saved):
        np.testing.assert_array_equal(array, other)
