# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`fit` and the epochs of shares, in one process."""

import warnings

import cases
import numpy as np
import pytest
import reference
import scipy.sparse
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.data.sample_order import Order

COUNT, BATCH = 23, 8


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    keras = cases.keras_module(request.param)
    keras.backend.clear_session()
    yield keras
    keras.backend.clear_session()


def build(keras, gated=lambda optimizer: optimizer):
    """A model with two inputs, whose start weights do not differ."""
    layers = keras.layers
    ids, numbers = layers.Input((3,), name='ids'), layers.Input((1,), name='numbers')
    rows = layers.Flatten()(layers.Embedding(9, 2, embeddings_initializer='ones')(ids))
    out = layers.Dense(1, kernel_initializer='ones')(layers.concatenate([rows, numbers]))
    model = keras.models.Model([ids, numbers], out)
    model.compile(gated(keras.optimizers.SGD()), 'mse')
    return model


def data():
    random = np.random.RandomState(0)
    ids, numbers = random.randint(0, 9, (COUNT, 3)), random.uniform(size=COUNT)
    return [ids, numbers], random.uniform(size=COUNT), random.uniform(size=COUNT)


def test_fit_trains_on_the_rows_of_each_epoch(keras):
    x, y, weights = data()
    model = build(keras, reference.gated)
    for epoch in (2, 3, 4):
        rows = Order(COUNT, 1, 6).of_all(epoch)
        model.fit(
            [array[rows] for array in x], y[rows], sample_weight=weights[rows], batch_size=BATCH,
            shuffle=False, verbose=0,
        )  # fmt: skip
    plain = model.get_weights()
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = build(keras)
    given = kp.data.arrays(x, y, weights, seed=6)
    model.fit(**given, batch_size=BATCH, initial_epoch=2, epochs=5, verbose=0)
    for own, other in zip(model.get_weights(), plain):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_fit_trains_on_strings_and_on_sparse_rows_of_each_epoch(keras):
    layers, random = keras.layers, np.random.RandomState(0)
    users = np.array(['user %d' % number for number in random.randint(0, 5, COUNT)], object)
    words, targets = scipy.sparse.random(COUNT, 6, 0.3, random_state=0), random.uniform(size=COUNT)

    def build_one(gated):
        names, counts = layers.Input((1,), dtype='string', name='users'), layers.Input((6,))
        numbered = layers.Lambda(
            lambda texts: tf.cast(tf.string_to_hash_bucket_fast(texts, 9), 'int32'),
            output_shape=(1,),
        )(names)
        rows = layers.Flatten()(layers.Embedding(9, 2, embeddings_initializer='ones')(numbered))
        out = layers.Dense(1, kernel_initializer='ones')(layers.concatenate([rows, counts]))
        model = keras.models.Model([names, counts], out)
        model.compile(gated(keras.optimizers.SGD(0.1)), 'mse')
        return model

    model, matrix = build_one(reference.gated), words.tocsr()
    for epoch in range(3):
        rows = Order(COUNT, 1, 6).of_all(epoch)
        x, y = [users[rows], matrix[rows].toarray()], targets[rows]
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    plain = model.get_weights()
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = build_one(lambda optimizer: optimizer)
    given = kp.data.arrays([users, words], targets, seed=6)
    model.fit(**given, batch_size=BATCH, epochs=3, verbose=0)
    for own, other in zip(model.get_weights(), plain):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_fit_refuses_what_keras_takes_from_the_first_rows(keras):
    with kp.ParallaxStrategy():
        model = build(keras)
    given = kp.data.arrays(*data())
    with pytest.raises(kp.DataError, match='validation_split to kp.data.arrays'):
        model.fit(**given, validation_split=0.1)
    with pytest.raises(kp.DataError, match='class_weight'):
        model.fit(**given, class_weight={0: 1.0})


def test_fit_refuses_arrays_that_do_not_change_beside_such_that_do(keras):
    with kp.ParallaxStrategy():
        model = build(keras)
    x, y, weights = data()
    given = kp.data.arrays(x, y, seed=1)
    ids, numbers = given['x']
    for other in (
        {'x': [ids, numbers / 2], 'y': given['y']},
        {'x': [ids, numbers], 'y': y},
        {'x': [ids, numbers], 'y': given['y'], 'sample_weight': weights},
        {'x': [ids, numbers], 'y': kp.data.arrays(x, y, seed=2)['y']},
    ):
        with pytest.raises(kp.DataError, match='no longer belong together'):
            model.fit(shuffle=False, **other)


def test_without_shuffling_fit_may_get_everything(keras):
    with kp.ParallaxStrategy():
        model = build(keras)
    given = kp.data.arrays(*data(), shuffle=False)
    ids, numbers = given['x']
    given['x'] = [ids, numbers / 2]
    weights = {number: 1.0 for number in np.ravel(given['y'])}
    model.fit(**given, validation_split=0.1, class_weight=weights, batch_size=BATCH, verbose=0)


def test_fit_says_that_a_share_is_shorter_than_a_batch(keras):
    with kp.ParallaxStrategy():
        model = build(keras)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        model.fit(**kp.data.arrays(*data()), batch_size=BATCH, verbose=0)
        model.fit(**kp.data.arrays(*data()), verbose=0)
    told = [str(warning.message) for warning in caught if 'fewer than' in str(warning.message)]
    assert told == [
        'The share of a worker has 23 samples, fewer than a batch of 32: an epoch is one batch of '
        '23.'
    ]
