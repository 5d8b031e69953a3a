"""Models of Keras 3 for serving: exported by rank 0, from a plain model with the same weights."""

import functools
import os
import tempfile
from typing import Any, Callable, Dict

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
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
            return plain_copy(self).export(*args, **kwargs)

        return export

    keras3_api.replace_method('Model.export', keras3_api.Model, as_plain)
    keras3_api.replace_method('ExportArchive.track', keras3_api.class_of_archives(), _checked)


def plain_copy(model: Any) -> Any:
    """A model of plain Keras with the weights of a model that has sharded tables.

    It holds the tables whole. They are written to a file and read from it block by block.
    """
    with tempfile.TemporaryDirectory() as folder, outside():
        path = os.path.join(folder, 'model.keras')
        model.save(path)
        return keras.saving.load_model(path, custom_objects=_own_classes(model), compile=False)


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
