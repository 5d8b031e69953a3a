# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How an optimizer updates a table, and what is said of it."""

import cases
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.table_updates import EXACT, LAZY, choose_method
from keras_parallax.planning.classify import BY_ROW, WHOLE_TABLE

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@PACKAGES
@pytest.mark.parametrize(
    'name, sparse_update, penalized, constrained, by_rule, words',
    [
        ('SGD', EXACT, False, None, True, 'touched rows only, which is exact'),
        ('SGD', EXACT, True, None, False, 'its regularizer moves every row'),
        ('SGD', EXACT, False, BY_ROW, False, 'its constraint is for every row'),
        ('Adam', EXACT, False, None, False, 'Adam moves every row'),
        ('Adam', LAZY, True, BY_ROW, True, "'lazy', not the numbers of Keras's Adam"),
    ],
)
def test_rows_alone_are_updated_where_that_is_exact_or_asked_for(
    package, name, sparse_update, penalized, constrained, by_rule, words
):
    optimizer = getattr(cases.keras_module(package).optimizers, name)()
    method = choose_method(optimizer, sparse_update, penalized, constrained)
    assert (method.rule is not None) == by_rule and words in method.words


@PACKAGES
def test_an_optimizer_of_tensorflows_takes_rows_itself(package):
    optimizer = cases.keras_module(package).optimizers.get(tf.train.AdamOptimizer())
    method = choose_method(optimizer, EXACT, penalized=False, constrained=None)
    assert method.rule is None and method.words == "TensorFlow's own sparse update (AdamOptimizer)"


@PACKAGES
def test_lazy_updates_need_a_constraint_by_row(package):
    optimizer = cases.keras_module(package).optimizers.SGD()
    with pytest.raises(kp.PlanError, match='a constraint along axis 1'):
        choose_method(optimizer, LAZY, penalized=False, constrained=WHOLE_TABLE)
