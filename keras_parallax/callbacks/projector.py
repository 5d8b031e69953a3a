# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What TensorBoard's projector shows: rows of tables, or what layers make of inputs."""

import os
import warnings
from typing import Any, Iterable, Iterator, List, Optional, Set

import numpy as np
from google.protobuf import text_encoding

from keras_parallax.atomic_files import written_aside
from keras_parallax.callbacks.sampled_model import sampled_ids
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Array, Callback, Model

#: As TensorBoard calls it.
_CONFIG = 'projector_config.pbtxt'


class Projector:
    """The embeddings of a model, which are written as text: TensorBoard reads that without a graph.

    Keras makes a variable and a checkpoint of them, for which TensorFlow 2 needs TensorBoard
    installed, and that of TensorFlow 1.11 fails.

    Args:
        callback: the `TensorBoard` callback.
        model: its model.
    """

    def __init__(self, callback: Callback, model: Model) -> None:
        self._callback, self._model = callback, model
        chosen = callback.embeddings_layer_names
        layers = [
            layer
            for layer in model.layers
            if (layer.name in chosen if chosen else type(layer).__name__ == 'Embedding')
        ]
        self._names = [layer.name for layer in layers]
        if callback.embeddings_data is None:
            tables = [layer.weights[0] for layer in layers]
            self._ids = [
                sampled_ids(table.shape.as_list()[0], callback.sampled_rows) for table in tables
            ]
            # Built once: each write of an epoch runs the same.
            self._rows = [tf.gather(*pair) for pair in zip(tables, self._ids)]
        else:
            package = keras_api.package_of(model)
            outputs = [layer.output for layer in layers]
            self._outputs = package.module.models.Model(model.inputs, outputs)

    def write(self) -> None:
        """Writes the embeddings as they are now, or warns that they cannot be written."""
        callback, config = self._callback, []
        try:
            for number, (name, values) in enumerate(zip(self._names, self._values())):
                path = 'embedding-%d.tsv' % number
                lines = ('\t'.join('%.6g' % value for value in row) for row in values)
                _write(os.path.join(callback.log_dir, path), lines)
                config += ['embeddings {']
                config += ['  tensor_name: "%s"' % _escaped(name), '  tensor_path: "%s"' % path]
                labels = self._labels(number, name)
                if labels:
                    config += ['  metadata_path: "%s"' % _escaped(labels)]
                config += ['}']
            _write(os.path.join(callback.log_dir, _CONFIG), config)
        except OSError as error:
            warnings.warn(
                'TensorBoard could not write embeddings to %s: %s. Training goes on without them.'
                % (callback.log_dir, error),
                stacklevel=3,
            )

    def _values(self) -> List[Array]:
        """Of each layer what is shown, an array `[points, width]`."""
        data = self._callback.embeddings_data
        if data is None:
            values = keras_api.package_of(self._model).backend.get_session().run(self._rows)
        elif self._names:
            values = self._outputs.predict(data, self._callback.batch_size)
            values = values if isinstance(values, list) else [values]
        else:
            values = []
        return [np.reshape(value, [len(value), -1]) for value in values]

    def _labels(self, number: int, name: str) -> Optional[str]:
        """The path of what the points of a layer are called, or `None`."""
        given = self._callback.embeddings_metadata
        path = given.get(name) if isinstance(given, dict) else given
        if self._callback.embeddings_data is not None:
            return path
        ids, own = self._ids[number], 'embedding-%d-labels.tsv' % number
        if path is None:
            lines = list(map(str, ids))
        else:
            with open(os.path.join(self._callback.log_dir, path), encoding='utf-8') as file:
                lines = list(_lines_of(file, set(ids)))
        _write(os.path.join(self._callback.log_dir, own), lines)
        return own


def _lines_of(file: Iterator[str], ids: Set[int]) -> Iterator[str]:
    """The lines of a file of labels for some rows.

    With several columns, the first line is their titles (TensorBoard's way).
    """
    first = next(file, '').rstrip('\n')
    has_titles = '\t' in first
    if has_titles or 0 in ids:
        yield first
    for row, line in enumerate(file, 0 if has_titles else 1):
        if row in ids:
            yield line.rstrip('\n')


def _write(path: str, lines: Iterable[str]) -> None:
    with written_aside(path) as aside, open(aside, 'w', encoding='utf-8') as file:
        file.writelines(line + '\n' for line in lines)


def _escaped(text: str) -> Any:
    return text_encoding.CEscape(text.encode('utf-8'), False)
