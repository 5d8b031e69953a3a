# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""First values of rows follow from the id alone, and ids are spread evenly over shards."""

import dynamic
import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.tables import id_hashes

IDS = np.concatenate([dynamic.raw_ids(), np.arange(20000)])


def value_of(build, ids):
    with tf.Graph().as_default(), tf.Session() as session:
        given = tf.placeholder(tf.int64, [None])
        return session.run(build(given), {given: ids})


@pytest.mark.parametrize('seed', [0, 7, 2**40 + 1, -3])
def test_numbers_are_those_that_numpy_computes(seed):
    uniform = value_of(lambda ids: id_hashes.uniform(ids, 5, seed), IDS)
    config = {'minval': 0.0, 'maxval': 1.0, 'seed': seed % 2**64}
    expected = dynamic.first_rows(IDS, 5, 'RandomUniform', **config)
    np.testing.assert_array_equal(uniform.astype(np.float32), expected)
    normal = value_of(lambda ids: id_hashes.normal(ids, 5, seed), IDS)
    config = {'mean': 0.0, 'stddev': 1.0, 'seed': seed % 2**64}
    expected = dynamic.first_rows(IDS, 5, 'RandomNormal', **config)
    np.testing.assert_allclose(normal, expected, rtol=1e-6)


def test_numbers_do_not_depend_on_what_else_is_asked_for():
    def build(ids):
        return id_hashes.normal(ids, 5, 3)

    alone = [value_of(build, IDS[number : number + 1])[0] for number in (0, 3, 70)]
    np.testing.assert_array_equal(value_of(build, IDS)[[0, 3, 70]], alone)


def test_numbers_are_spread_as_their_names_say():
    uniform = value_of(lambda ids: id_hashes.uniform(ids, 5, 1), IDS)
    counts = np.histogram(uniform, 20, (0, 1))[0]
    np.testing.assert_allclose(counts, uniform.size / 20.0, rtol=0.06)
    normal = value_of(lambda ids: id_hashes.normal(ids, 5, 1), IDS)
    assert abs(normal.mean()) < 0.02
    np.testing.assert_allclose(normal.std(), 1, rtol=0.02)
    # Neither columns nor ids that follow each other have to do with each other.
    for pairs in ((normal[:, 0], normal[:, 1]), (normal[1:, 0], normal[:-1, 0])):
        assert abs(np.corrcoef(*pairs)[0, 1]) < 0.03


@pytest.mark.parametrize('count', [1, 2, 3, 8])
def test_ids_are_spread_evenly_over_shards(count):
    homes = value_of(lambda ids: id_hashes.homes_of(ids, 1000), IDS)
    assert set(homes) == set(range(1000))
    shards = homes % count
    np.testing.assert_allclose(np.bincount(shards), len(IDS) / float(count), rtol=0.06)
