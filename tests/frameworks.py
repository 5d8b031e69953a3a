# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow 1's names, and the Keras packages that there are, whatever TensorFlow is installed.

What tests build is a graph. TensorFlow 2 still has graphs and sessions, in `tensorflow.compat.v1`.
"""

import functools
import importlib
import types

import small_graphs
import tensorflow

#: Whether this is TensorFlow 1.6.
TF1_6 = tensorflow.__version__.startswith('1.6.')
#: Whether this is TensorFlow 1.15.
TF1_15 = tensorflow.__version__.startswith('1.15')
#: Whether this is TensorFlow 2, or 1.15, whose Keras has the same optimizers, layers and variables.
TF2 = not tensorflow.__version__.startswith('1.') or TF1_15

small_graphs.make_faster(newer=TF2)
if not TF2:
    tf = tensorflow
    #: Names of the Keras packages to test with.
    KERAS_PACKAGES = ('keras',) if TF1_6 else ('keras', 'tf.keras')
    #: The name of an optimizer's rate, by which messages call it.
    RATE = 'lr'
else:
    tf = tensorflow.compat.v1
    tf.disable_v2_behavior()
    KERAS_PACKAGES = ('tf.keras',)
    RATE = 'learning_rate'


@functools.lru_cache(maxsize=None)
def keras_module(name):
    """The module called `'keras'` or `'tf.keras'`: Keras 2, not 3.

    Beside TensorFlow 2 it has the names of TensorFlow 1's: its `optimizers` are those for graphs,
    which Keras has in `optimizers.legacy`; its `backend` has the session, and its `callbacks` a
    `TensorBoard` for graphs, both of which it has among the names of TensorFlow 1. (`tf.keras` may
    be Keras 3, which has neither.)
    """
    if name == 'keras':
        return importlib.import_module('keras')
    if not TF2 or TF1_15:
        return tensorflow.keras
    try:
        keras = importlib.import_module('tf_keras')
    except ImportError:
        keras = importlib.import_module('keras')
    of_graphs = importlib.import_module(keras.__name__ + '.api._v1.keras')
    return _with(
        keras,
        optimizers=_with(keras.optimizers, **vars(keras.optimizers.legacy)),
        callbacks=_with(keras.callbacks, TensorBoard=of_graphs.callbacks.TensorBoard),
        backend=_with(
            keras.backend,
            get_session=of_graphs.backend.get_session,
            set_session=of_graphs.backend.set_session,
        ),
    )


def model_class(keras):
    """The class of a Keras package in which a model of graphs has `fit`.

    Beside TensorFlow 2 that is not its `Model`: a model gets another base as it is made.
    """
    return next(cls for cls in type(keras.models.Sequential()).__mro__ if 'fit' in vars(cls))


def _with(module, **names):
    """A module like another, with other names."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module), **names)
    return copy
