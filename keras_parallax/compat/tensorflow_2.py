"""What is special about TensorFlow 2 and its Keras 2; `stack` chooses it.

The engine builds graphs, which TensorFlow 2 has in `tensorflow.compat.v1`.
"""

import importlib
import importlib.util

import tensorflow

from keras_parallax.errors import StackError

# isort: split
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.ops import gen_training_ops as training_ops
from tensorflow.python.ops import gradients as _gradients
from tensorflow.python.ops import gradients_impl as _gradients_impl

tf = tensorflow.compat.v1

__all__ = ['c_api', 'tf', 'training_ops']

SUMS_ACTIVITY_PENALTIES = False

FOR_GRAPHS = (
    'call tf.compat.v1.disable_v2_behavior() at the top of the script, right after '
    '`import tensorflow as tf`.'
)

BY_RESOURCE = True

GRADIENTS_IN = (tf, _gradients_impl, _gradients)


def _keras_inside():
    """The name of Keras 2: `tf_keras` beside a TensorFlow whose own is Keras 3, else `keras`."""
    if importlib.util.find_spec('tf_keras'):
        return 'tf_keras'
    try:
        version = importlib.import_module('keras').__version__
    except ImportError as error:
        version = str(error)
    if not version.startswith('2.'):
        raise StackError(
            'keras-parallax needs Keras 2, which builds graphs, but beside TensorFlow %s there is '
            'Keras %s; get it with: pip install tf-keras==%s, and set TF_USE_LEGACY_KERAS=1, so '
            'that tf.keras is Keras 2.'
            % (
                tensorflow.__version__,
                version,
                '.'.join(tensorflow.__version__.split('.')[:2]) + '.0',
            )
        )
    return 'keras'


#: One package, whatever a script calls it.
KERAS_PACKAGES = {'tf.keras': _keras_inside() + '.src'}


OPTIMIZER_MODULES = (KERAS_PACKAGES['tf.keras'] + '.optimizers.optimizer_v1',)

OPTIMIZER_V2 = importlib.import_module(
    KERAS_PACKAGES['tf.keras'] + '.optimizers.legacy.optimizer_v2'
).OptimizerV2


def keras_module(name):
    """The package, as scripts have it."""
    del name
    return importlib.import_module(_keras_inside())


def keras_classes(name):
    """Dict from names, as `PATCHES` has them, to classes: those of models that are graphs."""
    inside = KERAS_PACKAGES[name]
    model = importlib.import_module(inside + '.engine.training_v1').Model
    return {
        'Layer': importlib.import_module(inside + '.engine.base_layer_v1').Layer,
        'Network': model,
        'Model': model,
        'Optimizer': OPTIMIZER_V2,
        'CallbackList': importlib.import_module(inside + '.callbacks').CallbackList,
    }


def keras_backend(name):
    """Its `backend`, with what TensorFlow 2 shows in `tf.compat.v1.keras` alone."""
    return importlib.import_module(KERAS_PACKAGES[name] + '.backend')


def track_slots(name, optimizer):
    """Has Keras initialize the slots of an optimizer that stands for a `tf.train.Optimizer`.

    It knows such optimizers by a set of weak references, and initializes what it knows
    (`tests/parallel/test_equality.py`, the case `tf_adam`).
    """
    keras_backend(name).track_tf_optimizer(optimizer)


def keras_saving(name):
    """The module that reads and writes HDF5 files."""
    return importlib.import_module(KERAS_PACKAGES[name] + '.saving.legacy.hdf5_format')


def keras_session(name):
    """The session that Keras has open, or `None`."""
    return getattr(keras_backend(name)._SESSION, 'session', None)
