# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""SGD and Adagrad with proximal steps, which only `tf.train` has."""

from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    RowsOfTensorFlow,
)

KNOWN = KnownOptimizer(
    tensorflow={
        'ProximalAdagradOptimizer': RowsOfTensorFlow(),
        'ProximalGradientDescentOptimizer': RowsOfTensorFlow(),
    }
)
