# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A network that `examples/resnet50.py` trains in tests: small, and without normalization.

Normalization would have two workers differ from one process with the joined batches, as each
worker normalizes by its own.
"""

from any_keras import keras
from example_runs import module

resnet50 = module('resnet50')
NAME = 'small'


def build(include_top, weights, input_tensor, pooling):
    """As a network of `keras.applications`."""
    assert (include_top, weights, pooling) == (False, None, 'avg')
    layers = keras.layers
    found = layers.Conv2D(16, 3, strides=2, activation='relu')(input_tensor)
    found = layers.Conv2D(32, 3, strides=2, activation='relu')(found)
    return keras.models.Model(input_tensor, layers.GlobalAveragePooling2D()(found))


resnet50.NETWORKS[NAME] = build, 32
