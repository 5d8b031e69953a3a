# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a model's training step is built, and what is left of one that is refused."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.engine.session.graph_scope import scope_of
from keras_parallax.engine.step.build import build_step, last_step_of
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.errors import PlanError


class Refused(Exception):
    """What a test raises."""


def compiled(optimizer='sgd'):
    """A model of one table in the scope of a strategy."""
    with kp.ParallaxStrategy():
        layers = [
            keras.layers.Embedding(7, 2, input_length=3, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, name='out'),
        ]
        model = keras.models.Sequential(layers)
        model.compile(optimizer, 'mse')
    return model


def train(model):
    model.train_on_batch(np.zeros([2, 3]), np.ones([2, 1]))
    return step_of(model)


@pytest.fixture(autouse=True)
def graph():
    keras.backend.clear_session()
    yield
    keras.backend.clear_session()


def test_a_step_is_noted_with_its_scope_and_has_tables_of_what_is_looked_up():
    model = compiled()
    step = train(model)
    scope = scope_of(tf.get_default_graph())
    assert scope.runs.train_steps == [step]
    assert [table.name for table in step.tables.values()] == ['words/embeddings']
    assert [planned.kind for planned in step.plan.variables] == ['sparse', 'dense', 'dense']


def test_a_step_that_is_refused_is_none_and_nothing_of_it_has_run():
    model = compiled()
    spec, before = train(model).spec, model.get_weights()
    scope = scope_of(tf.get_default_graph())
    steps, seen = scope.runs.train_steps, []

    def refuse(of_spec, operations):
        seen.append((of_spec, operations.operations))
        raise Refused

    with pytest.raises(Refused):
        build_step(spec, refuse)
    ((found, operations),) = seen
    assert found is spec and operations
    assert scope.runs.train_steps == steps
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_an_optimizer_for_a_table_that_is_none_is_refused_before_anything_is_built():
    optimizer = kp.ParallaxOptimizer('sgd', per_table={'out': 'adam'}, keras=_package())
    model = compiled(optimizer)
    with pytest.raises(PlanError, match='per_table has an optimizer for out'):
        train(model)
    assert scope_of(tf.get_default_graph()).runs.train_steps == []


def test_the_last_step_of_an_optimizer_is_found_whether_it_is_wrapped_again_or_not():
    class Step(NamedTuple):
        spec: Any

    class Spec(NamedTuple):
        optimizer: Any

    one, other = keras.optimizers.Adam(), keras.optimizers.Adam()
    steps = [
        Step(Spec(kp.ParallaxOptimizer(optimizer, keras=_package())))
        for optimizer in (one, one, other)
    ]
    again = kp.ParallaxOptimizer(one, keras=_package())
    assert last_step_of(again, steps) is steps[1]
    assert last_step_of(other, steps) is steps[2]
    assert last_step_of(keras.optimizers.Adam(), steps) is None


def _package():
    return 'keras' if keras.__name__ == 'keras' else 'tf.keras'
