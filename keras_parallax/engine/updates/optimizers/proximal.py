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
