# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 for serving: exported by rank 0, from a plain model with the same weights."""

import contextlib
import functools
import os
import tempfile
from typing import Any, Callable, Dict, Iterator, Tuple

import numpy as np

from keras_parallax.compat import keras3_api, keras3_files
from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_variable import EngineVariable, TableVariable
from keras_parallax.errors import PlanError
from keras_parallax.keras3 import embedding_layer
from keras_parallax.keras3.scope import outside


def install(rank_of: Callable[[Any], int]) -> None:
    """Has models exported as plain ones, whose tables are variables of Keras.

    Args:
        rank_of: function from a model to its worker's rank, 0 if it is not trained by several.
    """

    def as_plain(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def export(self: Any, *args: Any, **kwargs: Any) -> Any:
            if rank_of(self):
                return None
            if not embedding_layer.tables_in(self):
                return original(self, *args, **kwargs)
            with plain_copy(self) as copy:
                return copy.export(*args, **kwargs)

        return export

    keras3_api.replace_method('Model.export', keras3_api.Model, as_plain)
    keras3_api.replace_method('ExportArchive.track', keras3_api.class_of_archives(), _checked)


@contextlib.contextmanager
def plain_copy(model: Any) -> Iterator[Any]:
    """While open, a model of plain Keras with the weights of a model that has sharded tables.

    Its tables lie in temporary files of their size, which the operating system reads as they are
    used: they need no memory. Nothing may train it.
    """
    owners = [model, getattr(model, 'optimizer', None)]
    variables = [one for owner in owners if owner is not None for one in owner.variables]
    of_engine = [
        (variable, str(number))
        for number, variable in enumerate(variables)
        if isinstance(variable, EngineVariable)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'model.keras')
        with keras3_files.rows_left_out(of_engine):
            model.save(path)
        tables = {}
        for variable, name in of_engine:
            if isinstance(variable, TableVariable):
                mapped = _mapped(os.path.join(folder, name), variable.whole.shape, reserved=True)
                variable.copy_to(mapped)
                tables[name] = keras3_files.Shared(_tensor_of(mapped))

        def zeros(shape: Tuple[int, ...], dtype: Any = None) -> Any:
            """What a table holds until its rows are loaded: a file of zeros, which has no pages."""
            file, name = tempfile.mkstemp(dir=folder)
            os.close(file)
            return _tensor_of(_mapped(name, shape))

        with outside(), keras3_files.rows_given(tables), embedding_layer.plain_starts(zeros):
            copy = keras.saving.load_model(path, custom_objects=_own_classes(model), compile=False)
        yield copy


def _mapped(path: str, shape: Tuple[int, ...], reserved: bool = False) -> np.ndarray:
    """An array of zeros that lies in a file.

    Args:
        path: path of the file.
        shape: shape of the array, float32.
        reserved: whether the disk is to have room for all of it now. A process that writes to the
            array when the disk is full is killed (SIGBUS).

    Raises:
        OSError: there is no room.
    """
    array = np.memmap(path, np.float32, 'w+', shape=shape)
    if reserved:
        with open(path, 'r+b') as file:
            os.posix_fallocate(file.fileno(), 0, array.nbytes)
    return array


def _tensor_of(array: np.ndarray) -> Any:
    """A tensor of Keras's backend that shares the memory of an array."""
    return keras3_api.backend_module().sharing(np.asarray(array))


def _own_classes(model: Any) -> Dict[str, type]:
    """The classes of a model and its layers that Keras may not know by name."""
    classes = {type(layer) for layer in keras3_api.layers_of(model)}
    return {cls.__name__: cls for cls in classes if cls.__module__.split('.')[0] != 'keras'}


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def track(self: Any, resource: Any) -> Any:
        tables = embedding_layer.tables_in(resource) if isinstance(resource, keras.Layer) else []
        if tables:
            raise PlanError(
                'An ExportArchive cannot take table %s, whose rows are on the workers of the job. '
                'Call model.export(path), or save the model and load it in a process without a '
                'strategy.' % tables[0].table.name
            )
        return original(self, resource)

    return track
