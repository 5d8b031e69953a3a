# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow by the names of TensorFlow 1, and Keras 2, whichever TensorFlow is installed.

With one TensorFlow alone a script imports both as ever; with TensorFlow 2 these lines lead it:

    import tensorflow as tf
    tf.compat.v1.disable_v2_behavior()
"""

import inspect
import warnings

import tensorflow as tf

if tf.__version__.startswith('1.15'):
    keras, tf = tf.keras, tf.compat.v1
    tf.logging.set_verbosity(tf.logging.ERROR)
elif tf.__version__.startswith('1.'):
    import keras
else:
    tf = tf.compat.v1
    # Of what is deprecated, graphs among it, TensorFlow and Keras tell in many lines.
    tf.logging.set_verbosity(tf.logging.ERROR)
    warnings.filterwarnings('ignore', module='tf_keras|keras')
    tf.disable_v2_behavior()  # Keras builds graphs then.
    try:
        import tf_keras as keras  # Beside TensorFlow 2.16 and later, whose own is Keras 3.
    except ImportError:
        import keras

__all__ = ['SeededUniform', 'adagrad', 'keras', 'tf']


def adagrad(rate):
    """Adagrad whose sums of squares begin at 0; that of newer Keras would begin with 0.1."""
    # Of Keras's newer optimizers plain Keras takes none into a graph.
    made = getattr(keras.optimizers, 'legacy', keras.optimizers).Adagrad
    if 'initial_accumulator_value' in inspect.signature(made).parameters:
        return made(rate, initial_accumulator_value=0.0)
    return made(rate)


class SeededUniform(keras.initializers.Initializer):
    """Begins with numbers that are the same with every TensorFlow, for one seed of the graph.

    Keras's own initializers draw by another generator from one version to the next.

    Args:
        seed: Another one for each variable.
        limit: Numbers are between it and its negative. Default: as `glorot_uniform` has it, which
            depends on the shape of a matrix.
    """

    def __init__(self, seed, limit=None):
        self.seed, self.limit = seed, limit

    def __call__(self, shape, dtype=None, **_):
        limit = self.limit or (6 / sum(map(int, shape))) ** 0.5
        return tf.random_uniform(shape, -limit, limit, dtype or 'float32', self.seed)

    def get_config(self):
        return {'seed': self.seed, 'limit': self.limit}
