# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which kind of optimizer an object is: Keras's own, TensorFlow's or a user's."""

import cases
import numpy as np
import pytest
import rested_rows
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp
from keras_parallax.compat import graph_queries
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizer_adapter import adapter_of

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@PACKAGES
def test_a_wrapped_optimizer_has_the_rule_of_its_class(package):
    optimizer = cases.keras_module(package).optimizers.Adam()
    rule = adapter_of(optimizer).rule
    assert rule is not None
    assert adapter_of(kp.ParallaxOptimizer(optimizer)).rule is rule


@PACKAGES
def test_every_optimizer_class_of_keras_has_a_rule(package):
    optimizers = cases.keras_module(package).optimizers
    for name in ('SGD', 'RMSprop', 'Adagrad', 'Adadelta', 'Adam', 'Adamax', 'Nadam'):
        assert adapter_of(getattr(optimizers, name)()).rule is not None


@PACKAGES
@pytest.mark.parametrize('name', ['SGD', 'Mine'])
def test_a_users_subclass_has_no_rule_whatever_its_name(package, name):
    parent = cases.keras_module(package).optimizers.SGD
    optimizer = type(name, (parent,), {})(lr=0.1)
    assert adapter_of(optimizer).rule is None
    assert adapter_of(kp.ParallaxOptimizer(optimizer)).rule is None


@PACKAGES
def test_an_optimizer_that_keeps_an_inner_one_is_not_one_of_tensorflows(package):
    keras = cases.keras_module(package)
    outer = type('Outer', (keras.optimizers.SGD,), {})(0.1)
    outer.optimizer = keras.optimizers.Adam()
    assert adapter_of(outer).inner is None
    assert adapter_of(kp.ParallaxOptimizer(outer)).name == 'Outer'
    inner = tf.train.AdamOptimizer()
    wrapped = kp.ParallaxOptimizer(inner, keras=package)
    assert adapter_of(wrapped).inner is inner
    assert adapter_of(wrapped).name == 'AdamOptimizer'


#: Optimizers of which some keep more slots than others.
KEEPERS = [
    ('SGD', {}),
    ('SGD', {'momentum': 0.9}),
    ('RMSprop', {}),
    ('Adagrad', {}),
    ('Adadelta', {}),
    ('Adam', {}),
    ('Adam', {'amsgrad': True}),
    ('Adamax', {}),
    ('Nadam', {}),
]
if TF2:
    KEEPERS += [('RMSprop', {'momentum': 0.9, 'centered': True}), ('Ftrl', {})]


@PACKAGES
@pytest.mark.parametrize('name, options', KEEPERS, ids=str)
def test_dense_variables_have_as_many_slots_as_it_says_before_it_has_any(package, name, options):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with tf.Graph().as_default():
        optimizer = keras.optimizers.get({'class_name': name, 'config': options})
        of_dense, of_table = adapter_of(optimizer).slots_of([7, 5])
        variable = keras.backend.zeros((7, 5))
        optimizer.get_updates(loss=keras.backend.sum(variable), params=[variable])
        kept = [weight for weight in optimizer.weights if tuple(weight.shape) == (7, 5)]
    assert of_dense == len(kept)
    # Without momentum, Keras 2.2.4 keeps a slot that a table does without.
    assert of_table == (0 if (name, options) == ('SGD', {}) else of_dense)


@PACKAGES
def test_how_many_slots_a_users_optimizer_keeps_is_not_known(package):
    parent = cases.keras_module(package).optimizers.SGD
    assert adapter_of(type('Mine', (parent,), {})(lr=0.1)).slots_of([7, 5]) == (None, None)


@pytest.mark.skipif(TF2, reason='Adam of TensorFlow 2 changes whole slots in a kernel')
@PACKAGES
def test_adam_of_tensorflow_lets_slots_decay_when_the_gradient_is_there(package):
    with tf.Graph().as_default() as graph:
        table = tf.get_variable('table', [3, 2])
        gradient = tf.IndexedSlices(tf.placeholder(tf.float32), tf.constant([0]), [3, 2])
        wrapped = kp.ParallaxOptimizer(tf.train.AdamOptimizer(), keras=package)
        adapter_of(wrapped).updates(None, [(table, gradient)], None)
    decays = [
        operation
        for operation in graph.get_operations()
        if operation.type == 'Assign' and 'update_table' in operation.name
    ]
    assert len(decays) == 2
    # What is assigned is computed then, too.
    for decay in decays:
        assert gradient.values.op in decay.inputs[1].op.control_inputs


def looked_up_and_multiplied(keras, optimizer, batches):
    """One table, trained twice by an optimizer: gradients are rows, or tensors with the same sums.

    Args:
        keras: the Keras package.
        optimizer: the optimizer, of Keras or of TensorFlow.
        batches: a list of lists of ids.

    Returns:
        The two tables, arrays.
    """
    start = np.linspace(-0.5, 0.5, 21, dtype=np.float32).reshape([7, 3])
    rows, whole = (
        tf.get_variable(name, initializer=start, use_resource=TF2) for name in ('rows', 'whole')
    )
    ids = tf.placeholder(tf.int32, [None])
    factors = tf.constant([[0.3, -0.2, 0.0]])  # The last entry never has a gradient.
    looked_up = tf.reduce_sum(tf.gather(rows, ids) * factors)
    multiplied = tf.reduce_sum(tf.matmul(tf.one_hot(ids, 7), whole + 0.0) * factors)
    updates = optimizer.get_updates(loss=looked_up + multiplied, params=[rows, whole])
    session = keras.backend.get_session()
    session.run(tf.global_variables_initializer())
    step = tf.group(*graph_queries.as_operations(updates))
    for batch in batches:
        session.run(step, {ids: batch})
    return session.run([rows, whole])


@PACKAGES
@pytest.mark.parametrize('name', sorted(set(rested_rows.OPTIMIZERS) - set(rested_rows.OF_CONTRIB)))
def test_what_needs_no_touched_rows_treats_zeros_as_no_gradient(package, name):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    optimizer = keras.optimizers.get(rested_rows.OPTIMIZERS[name](keras))
    found = looked_up_and_multiplied(keras, optimizer, [[0, 1, 2, 1], [0, 0], [0, 1], [3, 0]])
    assert np.allclose(*found, rtol=0, atol=1e-6) != adapter_of(optimizer).needs_touched_rows
    for table in found:
        assert np.isfinite(table).all()


@pytest.mark.skipif(not TF2, reason='as TensorFlow 2 has it')
def test_what_is_not_known_is_taken_to_need_touched_rows():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    own = type('Own', (keras.optimizers.SGD,), {})(0.1)
    assert adapter_of(own).needs_touched_rows
    assert not adapter_of(keras.optimizers.SGD(0.1)).needs_touched_rows


@PACKAGES
def test_a_row_of_zeros_is_not_divided_by_zero(package):
    keras = cases.keras_module(package)
    for epsilon, needs in ((0.0, True), (1e-4, False)):
        optimizer = cases.of_ours('RowwiseAdagrad', epsilon=epsilon)(keras)
        assert adapter_of(optimizer).needs_touched_rows == needs
