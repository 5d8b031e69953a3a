# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lookup tables of TensorFlow 2 are initialized before the first run that reads them."""

import importlib

import numpy as np
import pytest
from frameworks import TF1_15, TF2, keras_module, tf

import keras_parallax as kp

pytestmark = pytest.mark.skipif(not TF2 or TF1_15, reason='scripts initialize tables themselves')

WORDS = ['a', 'b', 'c']


@pytest.fixture
def session():
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        yield keras.backend.get_session()


def table_of(values):
    lookup = importlib.import_module('tensorflow.python.ops.lookup_ops')
    initializer = lookup.KeyValueTensorInitializer(tf.constant(WORDS), values)
    return lookup.StaticHashTable(initializer, -1)


def test_a_run_initializes_the_tables_that_it_reads(session):
    for first in (3, 7):  # The second table appears after a run.
        found = table_of(tf.constant([first, 4, 5])).lookup(tf.constant(['a', 'c', 'z']))
        assert session.run(found).tolist() == [first, 5, -1]


def test_a_table_is_initialized_once_and_only_if_it_is_read(session):
    runs = []
    values = tf.py_func(lambda: runs.append(1) or np.array([3, 4, 5]), [], tf.int64)
    values.set_shape([3])
    found = table_of(values).lookup(tf.constant('b'))
    session.run(tf.constant(1))
    assert not runs
    assert [session.run(found) for _ in range(3)] == [4] * 3
    assert len(runs) == 1


def test_a_script_feeds_the_initializer_that_reads_a_placeholder(session):
    values = tf.placeholder(tf.int32, [3])
    table = table_of(values)
    found = table.lookup(tf.constant('b'))
    with pytest.raises(tf.errors.FailedPreconditionError):
        session.run(found)
    session.run(tf.tables_initializer(), {values: [6, 7, 8]})
    assert session.run(found) == 7
