# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The known optimizers of TensorFlow move each row by itself, in one shard or in several.

An optimizer of TensorFlow that is added gets a line in `COMPARED`, where the names of those of
`tf.contrib.opt` begin with `contrib`.
"""

import importlib

import cases
import numpy as np
import ours
import pytest
import rested_rows
from frameworks import KERAS_PACKAGES, TF1_6, TF2

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates import optimizers
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.planning.classify import ANY_ROWS, Described

ROWS, WIDTH, SHARDS = 7, 3, 2
COMPARED = {
    **rested_rows.OF_TENSORFLOW,
    'contrib_adamax': rested_rows.of_contrib('AdaMax', 0.01),
    'contrib_lazy_adam': rested_rows.of_contrib('LazyAdam', 0.01),
}
del COMPARED['tf_own']
if TF2 or TF1_6:
    COMPARED = {name: of for name, of in COMPARED.items() if name.startswith('tf_')}
TABLE = Described('table', (9, 2), 'float32', rows=True)


def trained(optimizer, batches):
    """A table before training and after, once as a whole and once as shards, arrays."""
    start = np.linspace(-0.5, 0.5, ROWS * WIDTH, dtype=np.float32).reshape([ROWS, WIDTH])
    whole, *shards = [
        tf.get_variable('rows_%d' % number, initializer=part, use_resource=TF2)
        for number, part in enumerate([start, *[start[shard::SHARDS] for shard in range(SHARDS)]])
    ]
    ids = tf.placeholder(tf.int32, [None])
    factors = tf.constant([0.3, -0.2, 0.0])  # The last entry never has a gradient.
    loss = tf.reduce_sum(tf.square(tf.gather(whole, ids)) * factors)
    for number, shard in enumerate(shards):
        own = tf.boolean_mask(ids, tf.equal(ids % SHARDS, number)) // SHARDS
        loss += tf.reduce_sum(tf.square(tf.gather(shard, own)) * factors)
    pairs = optimizer.compute_gradients(loss, [whole, *shards])
    assert all(isinstance(gradient, tf.IndexedSlices) for gradient, _ in pairs)
    step = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in batches:
            session.run(step, {ids: batch})
        found, *parts = session.run([whole, *shards])
    return start, found, parts


@pytest.mark.parametrize('name', sorted(COMPARED))
def test_rows_of_shards_move_as_those_of_the_whole_table(name):
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    batches = [0, 1, 2, 1], [0, 0, 5], [0, 1], [3, 0]
    start, found, parts = trained(COMPARED[name](keras), batches)
    assert (found[0] != start[0]).any()
    for shard, part in enumerate(parts):
        np.testing.assert_array_equal(found[shard::SHARDS], part)


@pytest.mark.parametrize('name', sorted(set(COMPARED) - set(cases.CASES)))
def test_rows_and_dense_variables_move_as_in_plain_keras(name):
    """Others are compared on several workers, in `tests/parallel/test_equality.py`."""
    case = cases.Case(cases.embed_and_sum(), COMPARED[name], cases.ids_and_targets)
    ours.assert_equals_plain_keras(case, cases.keras_module(KERAS_PACKAGES[0]))


@pytest.mark.parametrize('name', sorted(COMPARED))
def test_the_plan_may_give_its_tables_shards(name):
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    adapter = adapter_of(kp.ParallaxOptimizer(COMPARED[name](keras), keras=KERAS_PACKAGES[0]))
    assert adapter.reach((TABLE,), frozenset(['table'])) == ANY_ROWS
    assert not adapter.takes_slices((TABLE,))


@pytest.mark.skipif(TF2 or TF1_6, reason='TensorFlow 1.11 has them all')
def test_every_optimizer_of_tensorflow_that_is_known_is_compared():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    known = {name for one in optimizers.KNOWN_OPTIMIZERS for name in one.tensorflow}
    assert {type(optimizer(keras)).__name__ for optimizer in COMPARED.values()} == known


@pytest.mark.skipif(TF2 or TF1_6, reason='TensorFlow 1.11 has it')
def test_nadam_of_tensorflow_mixes_rows_and_its_tables_have_no_shards():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    nadam = importlib.import_module('tensorflow.contrib.opt').NadamOptimizer(0.01)
    adapter = adapter_of(kp.ParallaxOptimizer(nadam, keras=KERAS_PACKAGES[0]))
    assert adapter.reach((TABLE,), frozenset(['table'])) != ANY_ROWS
    with pytest.raises(tf.errors.InvalidArgumentError, match='Incompatible shapes'):
        trained(nadam, [[0, 1, 2]])
