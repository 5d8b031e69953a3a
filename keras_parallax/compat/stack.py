"""TensorFlow and Horovod, which must be there and fit, or a sentence says what to install.

Whoever imports one of their insides imports this first.
"""

from keras_parallax.compat.versions import SUPPORTED, require, require_python
from keras_parallax.errors import StackError

require_python()

try:
    import tensorflow as tf
except ImportError as error:
    raise StackError(
        'keras-parallax needs TensorFlow, which could not be imported (%s); get it with: %s'
        % (error, SUPPORTED['TensorFlow'][1])
    ) from error

require('TensorFlow', tf.__version__)


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
