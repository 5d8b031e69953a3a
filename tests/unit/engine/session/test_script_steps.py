# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which steps of a script's own train a weight on one worker alone."""

import pytest
import shards
from frameworks import tf

from keras_parallax.compat import horovod_api
from keras_parallax.engine.session.script_steps import trained_alone


@pytest.fixture(params=shards.KINDS)
def weight(request):
    with tf.Graph().as_default():
        yield shards.variable_of([1.0, 2.0], request.param)


def found(weight, operation, tables=None):
    operation = getattr(operation, 'op', operation)
    return trained_alone([tf.group(operation)], {weight.op: 'weight'}, tables or {})


def gradient_of(weight):
    (gradient,) = tf.gradients(tf.reduce_sum(tf.square(weight)), [weight])
    return gradient


def test_a_weight_that_is_assigned_its_own_gradient_is_trained_alone(weight):
    for write in (
        tf.assign(weight, weight - 0.1 * gradient_of(weight)),
        tf.assign_sub(weight, gradient_of(weight)),
        tf.scatter_sub(weight, [1], gradient_of(weight)[1:]),
    ):
        assert found(weight, write) == 'weight'


def test_a_gradient_that_all_workers_have_exchanged_is_not_of_one_alone(weight):
    mean = horovod_api.allreduce(gradient_of(weight), name='gradient') / 2
    assert found(weight, tf.assign_sub(weight, mean)) is None


def test_what_is_assigned_without_a_gradient_trains_nothing(weight):
    gradient = gradient_of(weight)
    assert found(weight, tf.assign(weight, weight / tf.norm(weight))) is None
    # A gradient that is only waited for is not what is written.
    with tf.control_dependencies([gradient]):
        assert found(weight, tf.assign(weight, tf.zeros([2]))) is None


def test_a_variable_that_is_no_weight_may_have_any_value(weight):
    other = tf.Variable([0.0, 0.0])
    assert found(weight, tf.assign(other, gradient_of(weight))) is None


def test_a_table_is_trained_alone_by_an_operation_that_writes_to_its_shards(weight):
    rows = tf.Variable([0.0, 0.0])
    write = tf.assign_add(rows, gradient_of(weight)).op
    assert found(weight, write, {write: 'table'}) == 'table'
    still = tf.assign_add(rows, tf.ones([2])).op
    assert found(weight, still, {still: 'table'}) is None
