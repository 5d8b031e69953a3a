# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow and Horovod, which must fit, or a sentence says what to install.

Without Horovod a job has one process, for which `without_horovod` stands in.

Whoever imports one of their insides imports this first.
"""

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any, Tuple

from keras_parallax.compat.supported_versions import SUPPORTED, require, require_python, untested
from keras_parallax.errors import StackError

if TYPE_CHECKING:
    # It needs `typing_extensions`, which a Python without TensorFlow may lack.
    from keras_parallax.compat.generations import Generation

require_python()


def _require_keras(error: ImportError) -> None:
    """Names Keras 2 if that is what TensorFlow, or our module for it, could not import."""
    if 'tf_keras' in str(error):
        raise StackError(
            'keras-parallax needs Keras 2, which could not be imported (%s); get it with: %s'
            % (error, SUPPORTED['Keras'][1])
        ) from error


try:
    import tensorflow
except ImportError as error:
    _require_keras(error)
    raise StackError(
        'keras-parallax needs TensorFlow, which could not be imported (%s); get it with: %s'
        % (error, SUPPORTED['TensorFlow'][1])
    ) from error

require('TensorFlow', tensorflow.__version__)
_untested = untested(tensorflow.__version__)
if _untested:
    warnings.warn(_untested, stacklevel=2)


def _name_of_generation() -> str:
    if not tensorflow.__version__.startswith('1.'):
        return 'tensorflow_2'
    # 1.15 warns of each use of a name that it has in `compat.v1`, too.
    names = getattr(tensorflow.compat, 'v1', tensorflow)
    if not hasattr(names.Session, '_make_callable_from_options'):
        return 'tensorflow_1_6'
    has_newer_optimizers = hasattr(tensorflow.keras.optimizers, 'schedules')
    return 'tensorflow_1_15' if has_newer_optimizers else 'tensorflow_1'


def _generation() -> Any:
    try:
        return importlib.import_module('keras_parallax.compat.' + _name_of_generation())
    except StackError:
        raise
    except ImportError as error:
        _require_keras(error)
        raise StackError(
            'keras-parallax needs a part of TensorFlow that TensorFlow %s has not (%s); get one '
            'that has it with: %s' % (tensorflow.__version__, error, SUPPORTED['TensorFlow'][1])
        ) from error


#: The module of ours that knows this TensorFlow, and the Keras packages beside it.
generation: 'Generation' = _generation()

#: TensorFlow by the names of TensorFlow 1, which the engine uses.
tf = generation.tf


def _no_horovod(error: ImportError) -> StackError:
    return StackError(
        'keras-parallax needs Horovod built with TensorFlow support, but it could not be imported '
        '(%s); get it with: %s' % (error, SUPPORTED['Horovod'][1])
    )


def _find_horovod() -> Tuple[Any, Any]:
    """What has the names of `horovod.tensorflow`, and what has the operations in it."""
    try:
        import horovod
    except ImportError as error:
        if error.name != 'horovod':
            raise _no_horovod(error) from error
        # One process needs no Horovod.
        alone = importlib.import_module('keras_parallax.compat.without_horovod')
        alone.check_alone(os.environ)
        return alone, alone
    require('Horovod', horovod.__version__)
    try:
        # Only a Horovod that fits is asked for its insides.
        found = importlib.import_module('horovod.tensorflow')
        return found, importlib.import_module('horovod.tensorflow.mpi_ops')
    except ImportError as error:
        raise _no_horovod(error) from error


hvd, horovod_ops = _find_horovod()
