# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a loss does with a variable, in the plan's plain terms."""

import cases
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.planning.classify import BY_ROW, WHOLE_TABLE

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def test_lookups_and_whole_reads_are_told_apart_and_equal_ids_have_one_number():
    with tf.Graph().as_default():
        tables = [tf.Variable(tf.zeros([5, 2]), name='table_%d' % n) for n in range(3)]
        kernel = tf.Variable(tf.zeros([2, 1]), name='kernel')
        ids, others = [tf.placeholder(tf.int32, [None]) for _ in range(2)]
        rows = tf.gather(tables[0], ids) + tf.gather(tables[1], ids) + tf.gather(tables[2], others)
        loss = tf.reduce_sum(tf.matmul(rows, kernel))
        uses = loss_analysis.describe(loss, tables + [kernel], {})
    assert [use.name for use in uses] == ['table_0', 'table_1', 'table_2', 'kernel']
    assert [use.lookups for use in uses] == [1, 1, 1, 0]
    assert [use.ids_key for use in uses] == [0, 0, 1, None]
    assert uses[3].whole_reads == ('MatMul',)
    assert [described.rows for described in loss_analysis.described(uses)] == [True] * 3 + [False]


@PACKAGES
@pytest.mark.parametrize(
    'constraint, reach',
    [
        (lambda keras: None, None),
        (lambda keras: keras.constraints.NonNeg(), BY_ROW),
        (lambda keras: keras.constraints.MaxNorm(1, axis=1), BY_ROW),
        (lambda keras: keras.constraints.MaxNorm(1, axis=-1), BY_ROW),
        (lambda keras: keras.constraints.MaxNorm(1, axis=0), WHOLE_TABLE),
        (lambda keras: keras.constraints.UnitNorm(axis=[0, 1]), WHOLE_TABLE),
        (lambda keras: abs, WHOLE_TABLE),
    ],
    ids=['none', 'non negative', 'row norm', 'last axis', 'column norm', 'both axes', "a user's"],
)
def test_a_constraint_reaches_over_rows_or_over_the_whole_table(package, constraint, reach):
    found = loss_analysis.reach_of_constraint(constraint(cases.keras_module(package)), 2)
    assert found == reach
