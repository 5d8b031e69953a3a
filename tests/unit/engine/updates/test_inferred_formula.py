# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers and regularizers as users write them, against plain Keras in one process."""

import cases
import numpy as np
import ours
import pytest
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_scope import scope_of

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@pytest.fixture(autouse=True)
def fresh_graphs():
    yield
    for package in KERAS_PACKAGES:
        cases.keras_module(package).backend.clear_session()


# --- regularizers that say nothing ---------------------------------------------------------------


def _no_penalty(weight):
    return None


def _constant_penalty(weight):
    return tf.constant(0.5)


REGULARIZERS = {
    'l2 of 0': lambda keras: keras.regularizers.l2(0.0),
    'l1_l2 of 0': lambda keras: keras.regularizers.l1_l2(0.0, 0.0),
    'constant': lambda keras: _constant_penalty,
    'none': lambda keras: _no_penalty,
}


# tf.keras itself takes no `None` for a penalty.
PAIRS = [
    (package, name)
    for package in KERAS_PACKAGES
    for name in sorted(REGULARIZERS)
    if (package, name) != ('tf.keras', 'none')
]


@pytest.mark.parametrize('package, name', PAIRS)
def test_a_regularizer_without_a_penalty_changes_nothing(package, name):
    case = cases.Case(
        cases.embed_and_sum(embeddings_regularizer=REGULARIZERS[name]), batch=cases.ids_and_targets
    )
    model, _ = ours.assert_equals_plain_keras(case, cases.keras_module(package))
    records = scope_of(model.total_loss.graph).records
    record = records[model.get_layer('table').weights[0]]
    assert record.regularizer is None and record.penalties == []


# --- what a summary may touch --------------------------------------------------------------------


@PACKAGES
@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_a_summary_initializes_no_table(package, momentum):
    keras = cases.keras_module(package)
    case = cases.Case(
        cases.embed_and_sum(), lambda keras: keras.optimizers.SGD(0.1, momentum=momentum)
    )
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = case.model(keras)
        model.compile(kp.ParallaxOptimizer(case.optimizer(keras)), case.loss)
    texts = []
    strategy.summary(model, print_fn=texts.append)
    if TF2:
        assert "Keras's own sparse update (SGD)" in texts[0]
    else:
        assert ('which is exact' in texts[0]) == (momentum == 0.0)
    table = model.get_layer('table').weights[0]
    session = keras_api.open_session_of(keras_api.keras_package(package), table.graph)
    with table.graph.as_default():
        assert not session.run(tf.is_variable_initialized(table))


@PACKAGES
def test_a_momentum_that_was_set_counts_rather_than_the_initial_one(package):
    keras = cases.keras_module(package)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    assert keras_api.number_in(optimizer.momentum) == np.float32(0.9)
    keras.backend.set_value(optimizer.momentum, 0.5)
    assert keras_api.number_in(optimizer.momentum) == np.float32(0.5)
