# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which metrics and updates of layers a training step has to wait for."""

import pytest
from frameworks import KERAS_PACKAGES, keras_module

from keras_parallax.compat import keras_api
from keras_parallax.engine.step.other_reads import other_reads


@pytest.fixture(params=map(keras_module, KERAS_PACKAGES), ids=KERAS_PACKAGES)
def keras(request):
    request.param.backend.clear_session()
    yield request.param
    request.param.backend.clear_session()


def awaited(keras, model, metrics):
    """What the step of a model that is compiled with metrics waits for."""
    model.compile('sgd', 'mse', metrics=metrics)
    # The loss and the metrics of a model that does not train yet.
    beside = keras_api.run_beside(model)
    assert len(beside.fetched) == len(metrics)
    return other_reads(model.total_loss, beside, model.trainable_weights), beside.fetched


def test_metrics_and_averages_that_read_no_weights_are_not_awaited(keras):
    layers = keras.layers
    model = keras.models.Sequential(
        [layers.Dense(3, input_shape=(2,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    waits, _ = awaited(keras, model, ['mae', 'mse'])
    assert waits == []


def test_a_metric_that_reads_a_weight_is_awaited_and_no_other_is(keras):
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])

    def size(truth, predicted):
        return keras.backend.sum(model.layers[0].kernel * 1.0)

    waits, fetched = awaited(keras, model, ['mae', size])
    assert waits == [fetched[1].op]


def test_what_a_layer_writes_of_a_weight_is_awaited_and_its_assignment_is_not(keras):
    class Shadow(keras.layers.Layer):
        """Keeps the kernel of another layer."""

        def __init__(self, other, **named):
            super().__init__(**named)
            self.other = other

        def build(self, shape):
            self.shadow = self.add_weight(
                name='shadow', shape=(2, 1), initializer='zeros', trainable=False
            )
            super().build(shape)

        def call(self, inputs):
            update = keras.backend.update(self.shadow, self.other.kernel * 0.5)
            self.add_update(update)
            return inputs * 1.0

        def compute_output_shape(self, shape):
            return shape

    inner = keras.layers.Dense(1)
    inputs = keras.layers.Input((2,))
    model = keras.models.Model(inputs, Shadow(inner)(inner(inputs)))
    waits, _ = awaited(keras, model, [])
    # Its assignment waits for the step.
    assert [operation.type for operation in waits] == ['Mul']
