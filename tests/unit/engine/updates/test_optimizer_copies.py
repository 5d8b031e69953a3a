# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A copy of an optimizer holds nothing of the original's graph."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.optimizer_copies import Copies, named

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@PACKAGES
def test_what_an_optimizer_holds_is_copied_once_with_its_value(package):
    keras = cases.keras_module(package)
    optimizer = keras.optimizers.SGD(lr=0.25)
    optimizer.rates = {'twice': [optimizer.lr, optimizer.lr * 2]}
    optimizer.rate_of = lambda: optimizer.lr
    with tf.Graph().as_default() as graph, tf.Session() as session:
        copy = Copies(keras_api.keras_package(package)).of(optimizer)
        session.run(tf.global_variables_initializer())
        assert type(copy) is keras.optimizers.SGD and copy is not optimizer
        assert copy.lr.graph is graph and copy.rates['twice'][0] is copy.lr
        assert copy.rate_of() is copy.lr
        assert session.run(copy.lr) == np.float32(0.25)
        assert copy.rates['twice'][1].graph is graph


@PACKAGES
def test_an_optimizer_that_holds_a_table_is_not_copied(package):
    keras = cases.keras_module(package)
    optimizer = keras.optimizers.SGD()
    optimizer.table = keras.backend.variable(np.zeros([20000, 1]), name='words')
    with tf.Graph().as_default(), pytest.raises(ValueError, match='holds the variable words'):
        Copies(keras_api.keras_package(package)).of(optimizer)


def test_a_variable_has_another_name_than_its_storage_and_no_other_variable_has():
    with tf.Graph().as_default():
        variables = [tf.Variable(0.0, name=name) for name in 'ab']
        assert named(variables[0], 'table:0') is variables[0]
        assert [variable.name for variable in variables] == ['table:0', 'b:0']
        assert variables[0].op.name == 'a'
