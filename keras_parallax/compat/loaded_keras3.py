# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether a script uses Keras 3; in graph mode, in which Keras 3 builds no step, it is refused.

From TensorFlow 2.16 on, `tf.keras` is Keras 3 unless a script asks for Keras 2. Horovod imports
`tf.keras`, so that the package `keras` may be loaded where no script uses it.
"""

import importlib
import sys
from typing import Any, List, Tuple

from keras_parallax.compat import remedies
from keras_parallax.compat.installed_frameworks import generation, tf
from keras_parallax.errors import ScopeError

#: Where to find the ways out.
_WAYS_OUT = (
    'Set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, so that tf.keras is Keras 2 '
    '(%s), or write `import tf_keras as keras`.' % remedies.tf_keras(tf.__version__)
)


def _package() -> Any:
    """The package `keras` if it is loaded and is Keras 3, else `None`."""
    package = sys.modules.get('keras')
    return package if getattr(package, '__version__', '').startswith('3.') else None


def compiling_classes() -> Tuple[Any, ...]:
    """The class that Keras 3's models have `compile` of; empty where Keras 3 is not loaded.

    Keras compiles no model of a file whose class has a `compile` of its own.
    """
    model = getattr(_package(), 'Model', None)
    return tuple(cls for cls in getattr(model, '__mro__', ()) if 'compile' in vars(cls))[-1:]


def is_in_use() -> bool:
    """Whether a script trains models of Keras 3: it is loaded, and nothing is in graph mode."""
    return _package() is not None and tf.executing_eagerly()


def eager_layers() -> List[type]:
    """The base classes of layers of Keras 2 that execute eagerly."""
    inside = generation.KERAS_PACKAGES['tf.keras']
    return [importlib.import_module(inside + '.engine.base_layer').Layer]


def others() -> List[type]:
    """The base classes of optimizers that are not of Keras 3."""
    return [tf.train.Optimizer] + [generation.OPTIMIZER_V2] * bool(generation.OPTIMIZER_V2)


def hint() -> str:
    """What a script that executes eagerly has to do besides, a sentence after a space, or `''`."""
    package = _package()
    if package is None:
        return ''
    return ' The model must also be one of Keras 2, not of Keras %s. %s' % (
        package.__version__,
        _WAYS_OUT,
    )


def check(thing: Any) -> None:
    """Refuses a model or an optimizer of Keras 3.

    Args:
        thing: the model or the optimizer.

    Raises:
        ScopeError: it is one of Keras 3.
    """
    package = _package()
    classes = type(thing).__mro__
    if package is None or not any(cls.__module__.startswith('keras.') for cls in classes):
        return
    raise ScopeError(
        'keras-parallax trains models of Keras 2, with optimizers of Keras 2, but %s is one of '
        'Keras %s. %s' % (type(thing).__name__, package.__version__, _WAYS_OUT)
    )
