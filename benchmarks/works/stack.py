# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow and Keras of the stack that runs, by the names that one code has for both.

Of TensorFlow 2 that is `tensorflow.compat.v1` and its Keras 2, in graph mode, which our library
needs and Horovod's optimizers are for as well. A process with `EAGER` in its environment is left in
the mode that TensorFlow 2 has by default.
"""

import importlib
import os

# Before TensorFlow is imported: from 2.16 on, its own Keras would be Keras 3.
os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')

import tensorflow  # noqa: E402

#: An environment variable, for what TensorFlow 2 shows without graphs.
EAGER = 'BENCHMARKS_EAGER'
#: The stack that the published pages began with.
FIRST = 'tf1.11'
#: As requirements/stacks.txt names it.
NAME = 'tf' + '.'.join(tensorflow.__version__.split('.')[:2])
HAS_TENSORFLOW_2 = not tensorflow.__version__.startswith('1.')

if HAS_TENSORFLOW_2:
    tf = tensorflow.compat.v1
    if EAGER not in os.environ:
        tf.disable_v2_behavior()
    # Its backend for graphs has what `keras.backend` of TensorFlow 2 leaves out, such as sessions.
    try:
        # Where another has imported TensorFlow first, its own Keras may be Keras 3.
        import tf_keras as keras

        K = importlib.import_module('tf_keras.api._v1.keras').backend
    except ImportError:
        from tensorflow import keras

        K = tf.keras.backend
else:
    import keras  # noqa: F401 - for all
    import keras.backend as K  # noqa: F401

    tf = tensorflow


def keras_optimizers():
    """The optimizers of Keras that a model of graphs takes."""
    return keras.optimizers.legacy if HAS_TENSORFLOW_2 else keras.optimizers


def horovod_keras():
    """Horovod's module for the Keras of the stack."""
    if HAS_TENSORFLOW_2:
        import horovod.tensorflow.keras as hvd
    else:
        import horovod.keras as hvd
    return hvd
