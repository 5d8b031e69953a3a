# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step is built of, in a strategy's scope and without one."""

import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step import step_spec as spec_module
from keras_parallax.errors import ScopeError


@pytest.fixture(autouse=True)
def in_a_graph():
    with tf.Graph().as_default():
        yield
    keras.backend.clear_session()


def spec_of_a_model():
    model = keras.models.Sequential([keras.layers.Embedding(100, 4, input_length=1, name='words')])
    optimizer = kp.ParallaxOptimizer(keras.optimizers.SGD())
    model.compile(optimizer, 'mse')
    settings = optimizer._parallax_settings
    return spec_module.spec_of(
        model.optimizer, model, model.total_loss, model.trainable_weights, settings, None
    )


def test_without_a_strategy_the_ranks_are_horovods(monkeypatch):
    monkeypatch.setattr(hvd, 'rank', lambda: 3)
    monkeypatch.setattr(hvd, 'size', lambda: 4)
    spec = spec_of_a_model()
    assert (spec.job.rank, spec.job.size, spec.scope, spec.records) == (3, 4, None, {})
    assert spec.timing.sync and spec.request.partitions is None
    with spec.job.call('a call'):
        assert spec.job.collective(lambda call: ['ran', call]) == ['ran', None]


def test_without_ranks_it_says_what_to_do(monkeypatch):
    def not_initialized():
        raise ValueError('Horovod has not been initialized; use hvd.init().')

    monkeypatch.setattr(hvd, 'rank', not_initialized)
    with pytest.raises(ScopeError, match=r'needs a ParallaxStrategy, or hvd.init\(\)'):
        spec_of_a_model()


def test_in_a_scope_it_has_what_the_strategy_was_asked():
    with kp.ParallaxStrategy(overrides={'words': 'dense'}, architecture='allreduce') as strategy:
        spec = spec_of_a_model()
    overrides = {'words/embeddings': 'dense'}
    assert spec.request == strategy.request._replace(overrides=overrides) and spec.job.rank == 0
    assert set(spec.variables) <= set(spec.records) and not spec.has_shards
