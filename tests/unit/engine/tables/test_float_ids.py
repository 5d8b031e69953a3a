# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Ids that come through an input of float32 and are too large for it."""

import warnings

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.engine.tables import float_ids


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    module = cases.keras_module(request.param)
    module.backend.clear_session()
    yield module
    module.backend.clear_session()


def told(act):
    """What a function warns of about ids."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        act()
    return [str(one.message) for one in caught if 'float32' in str(one.message)]


def compiled(keras, rows, **named):
    """Compiles a model with a table of so many rows, which no session ever makes."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((2,), **named)
        table = keras.layers.Embedding(rows, 1, name='table')
        last = keras.layers.Lambda(lambda ids: ids[:, 1:])(ids)
        both = keras.layers.concatenate([table(ids), table(last)], axis=1)
        model = keras.models.Model(ids, keras.layers.Flatten()(both))
        model.compile('sgd', 'mse')


def test_a_large_table_whose_ids_come_from_floats_is_told_when_the_model_is_compiled(keras):
    large = float_ids.LARGEST + 1
    (text,) = told(lambda: compiled(keras, large))
    assert 'table/embeddings' in text and str(float_ids.LARGEST) in text
    for dtype in ('int32', 'int64', 'float64'):
        assert not told(lambda: compiled(keras, large, dtype=dtype))  # noqa: B023
    assert not told(lambda: compiled(keras, float_ids.LARGEST))


@pytest.mark.parametrize('combiner', [None, 'sum'])
def test_a_large_id_that_comes_from_a_float_is_told_once_when_it_is_looked_up(keras, combiner):
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((2,))
        cast = keras.layers.Lambda(lambda ids: keras.backend.cast(ids, 'int64'))(ids)
        # Of the package of the model.
        table = kp.layers.DynamicEmbedding(
            1, capacity=9, name='table', combiner=combiner, keras=package_name(keras)
        )
        model = keras.models.Model(ids, table(cast))
        model.compile('sgd', 'mse')
    shape = (1, 1) if combiner else (1, 2, 1)

    def train(*batch):
        return told(lambda: model.train_on_batch(np.array([batch]), np.zeros(shape)))

    assert not train(5, -float_ids.LARGEST)
    (text,) = train(5, float_ids.LARGEST + 3)
    # The id that it has become.
    assert 'The layer table looks up the id %d' % (float_ids.LARGEST + 4) in text
    assert not train(5, float_ids.LARGEST + 3)


def package_name(keras):
    return 'tf.keras' if keras.__name__ != 'keras' or len(KERAS_PACKAGES) == 1 else 'keras'


def test_ids_that_are_integers_are_not_looked_at(keras):
    ids = keras.backend.placeholder((None,), dtype='int32')
    wide = tf.cast(ids, tf.int64)
    assert float_ids.watched(wide, 'table') is wide
    constant = tf.cast(tf.constant([3.0]), tf.int64)
    assert float_ids.watched(constant, 'table') is constant
