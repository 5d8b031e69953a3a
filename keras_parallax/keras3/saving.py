# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`save` and `save_weights` of Keras 3 models that several workers train.

In `fit`, where callbacks save, rank 0 saves alone. Elsewhere each worker that is called saves: any
one may be called alone, and may read the file in the next line. Workers of one host that save the
same to one path write it once.
"""

import collections
import functools
import hashlib
import os
from typing import Any, Callable, DefaultDict, Optional

from keras_parallax.checkpoint import write_once
from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_variable import EngineVariable
from keras_parallax.keras3.checkpoints import aside
from keras_parallax.keras3.scope import Keras3Scope

#: How often this process has saved to each path. Workers that save the same agree in it.
_saves: DefaultDict[str, int] = collections.defaultdict(int)


def install(
    scope_of: Callable[[Any], Optional[Keras3Scope]], is_in_fit: Callable[[Any], bool]
) -> None:
    """Has the workers of a host write a file of a model once.

    Args:
        scope_of: function from a model to its scope, or `None`.
        is_in_fit: function that tells whether a model is in a `fit` of several workers.
    """

    def once(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
            scope = scope_of(self)
            if scope is None or scope.job.size == 1:
                return original(self, filepath, *args, **kwargs)
            if args or kwargs or not _is_path_of_file(filepath) or is_in_fit(self):
                return None if scope.job.rank else original(self, filepath, *args, **kwargs)

            def write() -> str:
                with aside(path) as inner:
                    original(self, inner)
                return _digest(self)

            path = os.path.abspath(os.fspath(filepath))
            _saves[path] += 1
            own = getattr(self, 'optimizer', None)
            point = [_saves[path], 0 if own is None else int(own.iterations.value), 0]
            what = [original.__name__, type(self).__name__]
            write_once.save(scope.job, point, path, what, write, lambda: _digest(self))
            return None

        return save

    for name in ('save', 'save_weights'):
        keras3_api.replace_method('Model.' + name, keras3_api.Model, once)


def _is_path_of_file(filepath: Any) -> bool:
    return isinstance(filepath, (str, os.PathLike)) and os.fspath(filepath).endswith(
        ('.keras', '.h5')
    )


def _digest(model: Any) -> str:
    """The digest of what a worker has for itself of a model and its optimizer."""
    own = getattr(model, 'optimizer', None)
    variables = [*model.variables, *([] if own is None else own.variables)]
    digest = hashlib.sha256()
    for variable in variables:
        if not isinstance(variable, EngineVariable):
            digest.update(variable.numpy().tobytes())
    return digest.hexdigest()
