# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the graph of an optimizer's updates tells of its formula."""

import pytest

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates import update_dependencies


@pytest.mark.parametrize(
    'reads, expected',
    [
        # Each slot is read for its variable, and a counter for both.
        ({'v0': {0, 2, 4}, 'v1': {1, 3, 4}}, [0, 1, None]),
        # A slot that only gathers its variable's gradient, and one that follows that slot.
        ({'s0': {-1}, 's1': {2}}, [0, 0, ()]),
        # Through a counter nothing is passed on.
        ({'v0': {4}, 'v1': {4}, 's0': {4}, 's1': {-2}}, [(), 1, None]),
        ({}, [(), (), ()]),
    ],
    ids=['read', 'gathered', 'counter', 'unknown'],
)
def test_slots_are_assigned_to_the_one_variable_that_they_are_connected_with(reads, expected):
    found = update_dependencies.slots_by_variable(reads, ['v0', 'v1'], ['s0', 's1', 'counter'])
    assert found == expected


def test_a_variable_depends_on_what_its_update_reads_and_on_gradients_handed_out_twice():
    with tf.Graph().as_default():
        variables = [tf.Variable(tf.zeros([3])) for _ in range(2)]
        slot = tf.Variable(tf.zeros([3]))
        # As they are, and as they were clipped.
        gradients = [tf.placeholder(tf.float32, [3]) for _ in range(4)]
        velocity = tf.assign(slot, 0.9 * slot - gradients[2])
        updates = [
            tf.assign_add(variables[0], velocity).op,
            tf.assign_sub(variables[1], gradients[1]).op,
        ]
        reads = update_dependencies.dependencies(updates, variables, [slot], gradients)
    assert reads[slot] == {2, -1}
    assert 2 in reads[variables[0]] and reads[variables[1]] == {-2}


def test_draws_are_the_random_operations_since_a_moment_in_the_order_they_were_built_in():
    with tf.Graph().as_default():
        variable = tf.Variable(tf.zeros([3]))
        earlier = tf.random_uniform([3])
        since = tensorflow_api.operation_id(tf.no_op())
        noise = [tf.random_normal([3]), tf.random_uniform([3])]
        update = tf.group(tf.assign_add(variable, earlier + noise[1] * noise[0]))
        draws = update_dependencies.draws([update], since)
    assert [draw.type for draw in draws] == ['RandomStandardNormal', 'RandomUniform']
