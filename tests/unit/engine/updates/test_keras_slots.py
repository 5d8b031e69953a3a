# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The list of an optimizer's weights, in the order and by the names of Keras."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF2

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.keras_slots import (
    EqualSlots,
    UnusedRows,
    keras_order,
    names_in_keras,
)

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def variables_of(backend, *names):
    return [backend.variable(np.ones([3, 2]), name=name) for name in names]


@PACKAGES
def test_each_variable_has_its_first_slot_before_any_has_its_second(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    optimizer = keras.optimizers.Adam()
    first, second, *slots = variables_of(keras.backend, 'first', 'second', 'a', 'b', 'c', 'd')
    state = OptimizerState([optimizer.iterations], {first: slots[:2], second: slots[2:]})
    weights = keras_order(optimizer, state, [first, second])
    assert weights[:5] == [optimizer.iterations, slots[0], slots[2], slots[1], slots[3]]
    # Adam without amsgrad keeps a number in place of a third slot.
    assert [tuple(weight.shape.as_list()) for weight in weights[5:]] == [(1,), (1,)]
    names = names_in_keras(optimizer, weights, 1, 'training/Adam')
    assert names[1:4] == ['training/Adam/Variable%s:0' % end for end in ('', '_1', '_2')]


@PACKAGES
def test_a_slot_that_the_formula_does_not_use_reads_as_zeros_and_forgets_what_it_is_given(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    (table,) = variables_of(keras.backend, 'table')
    state = OptimizerState([], {table: []})
    (unused,) = keras_order(keras.optimizers.SGD(), state, [table])
    assert isinstance(unused, UnusedRows) and unused.name == 'table/unused_slot_0:0'
    session = keras.backend.get_session()
    unused.write(session, 0, np.ones([3, 2]))
    session.run(unused.assign(tf.ones([3, 2])))
    assert (session.run(unused) == np.zeros([3, 2])).all()
    assert (unused.read(session, 1, 3) == np.zeros([2, 2])).all()


@PACKAGES
def test_a_users_optimizer_keeps_its_order_and_a_number_of_each_shard_is_one_weight(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    kernel, table, slot = variables_of(keras.backend, 'kernel', 'table', 'slot')
    counter, *shards = [keras.backend.variable(1.0) for _ in range(3)]
    order = [(table, 0), counter, (kernel, 0)]
    slots = {kernel: [slot], table: [shards]}
    state = OptimizerState([counter], slots, order=order)
    # One whose order is not that of Keras 2.2.4.
    optimizer = keras.optimizers.SGD() if TF2 else cases.custom_optimizer(keras)
    equal, *others = keras_order(optimizer, state, [kernel, table])
    assert others == [counter, slot]
    assert isinstance(equal, EqualSlots) and equal.name == shards[0].name
    session = keras.backend.get_session()
    session.run(equal.assign(tf.constant(5.0)))
    assert session.run([equal] + shards) == [5.0] * 3
