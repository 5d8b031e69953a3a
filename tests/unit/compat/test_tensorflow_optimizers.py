# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a `tf.train.Optimizer` keeps is found by its slots, and how it takes rows by its class."""

import pytest
from frameworks import tf

from keras_parallax.compat import tensorflow_optimizers


class Own(tf.train.AdamOptimizer):
    """A user's that sums rows itself."""

    def _apply_sparse_duplicate_indices(self, grad, var):
        return super()._apply_sparse_duplicate_indices(grad, var)


def test_a_users_class_that_sums_rows_itself_is_told_from_those_of_tensorflow():
    assert tensorflow_optimizers.sums_own_rows(Own())
    assert not tensorflow_optimizers.sums_own_rows(tf.train.AdamOptimizer())


def test_what_an_optimizer_keeps_is_found_and_can_be_made_anew():
    with tf.Graph().as_default() as graph:
        variable = tf.Variable([1.0, 2.0])
        optimizer = tf.train.AdamOptimizer()
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
        others, slots = tensorflow_optimizers.kept_by(optimizer, graph, [variable])
        assert set(others) == {'beta1_power', 'beta2_power'} and set(slots) == {'m', 'v'}
        tensorflow_optimizers.forget_slots(optimizer, [variable])
        assert tensorflow_optimizers.kept_by(optimizer, graph, [variable]) is None


def ancestors(operation):
    """The operations that must have run before one."""
    found, todo = set(), [operation]
    while todo:
        last = todo.pop()
        before = [tensor.op for tensor in last.inputs] + list(last.control_inputs)
        todo += [other for other in before if other not in found]
        found.update(before)
    return found


@pytest.mark.parametrize('by_resource', [False, True])
def test_what_is_built_for_rows_waits_for_their_gradient(by_resource):
    with tf.Graph().as_default() as graph:
        variable = tf.get_variable('table', [3, 2], use_resource=by_resource)
        gradient = tf.IndexedSlices(tf.placeholder(tf.float32), tf.constant([0]), [3, 2])
        optimizer = tf.train.AdamOptimizer()
        tensorflow_optimizers.waiting_for_rows(optimizer).apply_gradients([(gradient, variable)])
        # It has the slots, and is otherwise as before.
        assert type(optimizer) is tf.train.AdamOptimizer
        assert optimizer.get_slot(variable, 'm') is not None
        assert not any(
            callable(getattr(tf.train.Optimizer, name, None)) for name in vars(optimizer)
        )
        changes = [
            operation
            for operation in graph.get_operations()
            if operation.type.startswith(('Assign', 'ResourceScatter', 'Scatter'))
            and 'update_table' in operation.name
        ]
        assert len(changes) >= 4
        assert all(gradient.values.op in ancestors(operation) for operation in changes)
        assert not tensorflow_optimizers.sums_own_rows(optimizer)
