"""TensorFlow and Horovod, which must be there and fit, or a sentence says what to install.

Whoever imports one of their insides imports this first.
"""

import importlib
import warnings

from keras_parallax.compat.versions import SUPPORTED, require, require_python, untested
from keras_parallax.errors import StackError

require_python()

try:
    import tensorflow
except ImportError as error:
    raise StackError(
        'keras-parallax needs TensorFlow, which could not be imported (%s); get it with: %s'
        % (error, SUPPORTED['TensorFlow'][1])
    ) from error

require('TensorFlow', tensorflow.__version__)
if untested(tensorflow.__version__):
    warnings.warn(untested(tensorflow.__version__), stacklevel=2)


def _name_of_generation():
    if not tensorflow.__version__.startswith('1.'):
        return 'tensorflow_2'
    if not hasattr(tensorflow.Session, '_make_callable_from_options'):
        return 'tensorflow_1_6'
    has_newer_optimizers = hasattr(tensorflow.keras.optimizers, 'schedules')
    return 'tensorflow_1_15' if has_newer_optimizers else 'tensorflow_1'


def _generation():
    try:
        return importlib.import_module('keras_parallax.compat.' + _name_of_generation())
    except StackError:
        raise
    except ImportError as error:
        raise StackError(
            'keras-parallax needs a part of TensorFlow that TensorFlow %s has not (%s); get one '
            'that has it with: %s' % (tensorflow.__version__, error, SUPPORTED['TensorFlow'][1])
        ) from error


#: The module of ours that knows this TensorFlow, and the Keras packages beside it.
generation = _generation()

#: TensorFlow by the names of TensorFlow 1, which the engine uses.
tf = generation.tf


def _no_horovod(error):
    return StackError(
        'keras-parallax needs Horovod built with TensorFlow support, but it could not be imported '
        '(%s); get it with: %s' % (error, SUPPORTED['Horovod'][1])
    )


try:
    import horovod
except ImportError as error:
    raise _no_horovod(error) from error

require('Horovod', horovod.__version__)

try:
    import horovod.tensorflow as hvd  # noqa: F401 - for all
except ImportError as error:
    raise _no_horovod(error) from error
