"""Adagrad with dual averaging, which only `tf.train` has."""

from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    RowsOfTensorFlow,
)

KNOWN = KnownOptimizer(tensorflow={'AdagradDAOptimizer': RowsOfTensorFlow()})
