# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of any optimizer, and what the graph of its updates tells of its slots."""

from types import SimpleNamespace

import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.engine.updates import adapter_base
from keras_parallax.engine.updates.adapter_base import OptimizerAdapter, OptimizerState
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.engine.updates.optimizers.known_optimizer import RowRule


def wrapped(optimizer):
    return kp.ParallaxOptimizer(optimizer, keras=KERAS_PACKAGES[0])


def test_ours_are_told_from_kerass_and_from_subclasses_whether_they_are_wrapped_or_not():
    ours = kp.optimizers.LazyAdam(keras=KERAS_PACKAGES[0])
    theirs = keras.optimizers.Adam()
    users = type('Mine', (type(ours),), {'__module__': 'a_script'})()
    for optimizer, expected in ((ours, True), (theirs, False), (users, False)):
        assert adapter_base.is_of_ours(optimizer) == expected
        assert adapter_base.is_of_ours(wrapped(optimizer)) == expected


def test_a_wrapped_optimizer_has_the_class_that_it_had():
    optimizer = keras.optimizers.Adam()
    cls = type(optimizer)
    assert adapter_base.own_class(wrapped(optimizer)) is cls
    assert adapter_base.own_class(optimizer) is cls


def test_slots_that_are_known_by_name_are_those_of_each_variable_in_order():
    by_name = {'m': ['m of a', 'm of b'], 'v': ['v of a', 'v of b']}
    state = adapter_base.state_of_names(['steps'], ['a', 'b'], by_name, ['an order'])
    slots = {'a': ['m of a', 'v of a'], 'b': ['m of b', 'v of b']}
    assert state == OptimizerState(['steps'], slots, ('m', 'v'), ['an order'])


def rule(keeps, uses, **fields):
    return RowRule(None, None, keeps, lambda optimizer: uses, **fields)


@pytest.mark.parametrize(
    'of, shape, expected',
    [
        (None, [7, 4], (None, None)),
        (rule(1, 0), [7, 4], (1, 0)),
        (rule(2, 2), [7, 4], (2, 2)),
        # Keras's Adam without amsgrad keeps one number in place of its third slot.
        (rule(3, 2), [7, 4], (2, 2)),
        (rule(1, 1, slot_shape=lambda shape: shape[:1]), [7, 4], (0.25, 0.25)),
        (rule(1, 1, slot_shape=lambda shape: shape[:1]), [0, 4], (0, 0)),
    ],
)
def test_slots_are_counted_in_sizes_of_their_variable(of, shape, expected):
    adapter = OptimizerAdapter(keras.optimizers.SGD())
    adapter.rule = of
    assert adapter.slots_of(shape) == expected
    assert adapter.rows_alone == (of is not None)


def test_an_optimizer_clips_if_any_of_its_bounds_is_set():
    adapter = OptimizerAdapter(keras.optimizers.SGD())
    assert not adapter.clips
    for bounds, expected in ((Bounds(), False), (Bounds(clipnorm=0.0), True)):
        adapter.bounds = bounds
        assert adapter.clips == expected


def test_what_an_optimizer_keeps_is_a_slot_of_the_variable_for_which_it_is_written():
    with tf.Graph().as_default():
        first, second = tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([4]))
        before = tf.global_variables()
        steps = tf.Variable(0.0)
        slots = [tf.Variable(tf.zeros(of.shape)) for of in (first, second)]
        unused = [tf.Variable(tf.zeros([1])) for _ in range(2)]
        gradients = [tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [4])]
        rate = 1.0 / tf.assign_add(steps, 1.0)
        operations = [
            tf.assign_sub(variable, rate * tf.assign(slot, 0.9 * slot + gradient)).op
            for variable, slot, gradient in zip((first, second), slots, gradients)
        ]
        # As Keras lists them: counters, and what it may keep in place of another slot.
        listed = [steps, slots[1], slots[0]] + unused
        optimizer = SimpleNamespace(own_weights=listed)
        kept = OptimizerAdapter(optimizer).kept(before, [first, second], operations, gradients)
    assert kept.counters == [steps]
    assert kept.slots == {first: [slots[0], unused[0]], second: [slots[1], unused[1]]}
    assert kept.order == [steps, (second, 0), (first, 0), (first, 1), (second, 1)]
