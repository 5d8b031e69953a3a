# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Terms of a loss that count differently on each worker."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.step.loss_terms import LossTerm, joined


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_a_term_counts_as_often_as_its_factor_says_and_others_stay(graph):
    x = tf.placeholder(tf.float32, [])
    first, second = tf.square(x), 3.0 * x
    total = tf.add_n([0.5 * first, tf.cast(second, tf.float32) * 2.0]) + 7.0
    factor = x - 1.0  # A gradient through it would show.
    (counted,) = joined([total], [LossTerm(first, factor)])
    gradient = tf.gradients(counted, x)[0]
    with tf.Session() as session:
        assert session.run([counted, gradient], {x: 4.0}) == [
            0.5 * 16 * 3 + 24 + 7,
            0.5 * 8 * 3 + 6,
        ]
        assert session.run(total, {x: 4.0}) == 0.5 * 16 + 24 + 7


def test_a_value_that_is_not_a_number_is_not_computed_where_there_is_something_instead(graph):
    x, count = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    value = x * count / count
    total = 2.0 * value + x
    counted, alone = joined([total, value], [LossTerm(value, 0.25, x * count)])
    gradient = tf.gradients(counted, x)[0]
    with tf.Session() as session:
        assert session.run([counted, alone, gradient], {x: 3.0, count: 0.0}) == [3.0, 0.0, 1.0]
        assert session.run([counted, alone, gradient], {x: 3.0, count: 2.0}) == [6.0, 1.5, 2.0]


def test_factors_of_one_value_and_of_values_within_values_are_multiplied(graph):
    x = tf.placeholder(tf.float32, [])
    inner = 3.0 * x
    outer = 2.0 * inner
    terms = [LossTerm(outer, 5.0), LossTerm(inner, 7), LossTerm(inner, np.float32(2.0))]
    (counted,) = joined([outer + x], terms)
    with tf.Session() as session:
        assert session.run(counted, {x: 1.0}) == 6.0 * 5 * 7 * 2 + 1


def test_a_tensor_without_terms_is_returned_itself_and_nothing_is_added(graph):
    x = tf.placeholder(tf.float32, [])
    total, other = 2.0 * x, 3.0 * x
    before = len(graph.get_operations())
    assert joined([total], []) == [total]
    assert len(graph.get_operations()) == before
    assert joined([total], [LossTerm(other, 2.0)]) == [total]


def test_one_value_has_only_one_thing_instead_of_it(graph):
    x = tf.placeholder(tf.float32, [])
    value = 2.0 * x
    with pytest.raises(ValueError):
        joined([value], [LossTerm(value, 1.0, x), LossTerm(value, 1.0, x + 1.0)])
