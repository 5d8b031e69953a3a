# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a worker has for itself of a model."""

import pytest
from frameworks import KERAS_PACKAGES, keras_module

from keras_parallax.callbacks import replicas


@pytest.mark.parametrize('keras', map(keras_module, KERAS_PACKAGES), ids=KERAS_PACKAGES)
def test_states_of_recurrent_layers_are_found_beside_a_layer_with_a_number_called_layers(keras):
    class Deep(keras.layers.Layer):
        def __init__(self, layers, **kwargs):
            super().__init__(**kwargs)
            self.layers, self.cell = layers, 'gru'

    keras.backend.clear_session()
    stateful = keras.layers.LSTM(2, stateful=True)
    inner = keras.models.Sequential([keras.layers.Dense(2, batch_input_shape=(1, 3, 2)), stateful])
    inputs = keras.layers.Input(batch_shape=(1, 3, 2))
    model = keras.models.Model(inputs, inner(Deep(2)(inputs)))
    assert set(replicas.own_states(model)) == set(stateful.states)
