# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whole tables and slots that the engine keeps, read and written block by block."""

from typing import Any, Callable, Optional, Tuple

import numpy as np

from keras_parallax.compat import keras_api
from keras_parallax.engine.tables.row_transfer import ShardedRows


def engine_backend() -> Any:
    """The backend of Keras in the engine's graph."""
    return keras_api.keras_package('tf.keras').backend


class StoredRows:
    """A table or a slot of one, as Keras reads and writes it: as a whole.

    Args:
        graph: the engine's `tf.Graph`.
        name: its name.
        shape: `(rows, width)`.
        find: function of nothing that returns the `ShardedRows`, once the engine has them.

    Attributes:
        name, shape: as given.
    """

    def __init__(
        self, graph: Any, name: str, shape: Tuple[int, int], find: Callable[[], ShardedRows]
    ) -> None:
        self.name, self.shape, self._graph, self._find = name, shape, graph, find

    @property
    def rows(self) -> Optional[ShardedRows]:
        """The rows, where the engine has them; `None` as long as it does not."""
        with self._graph.as_default():
            return self._find()

    def read(self) -> np.ndarray:
        """The whole, float32 of its shape."""
        whole = np.empty(self.shape, np.float32)
        self.copy_to(whole)
        return whole

    def copy_to(self, target: Any) -> None:
        """Copies the whole to an array or an HDF5 dataset, block by block."""
        with self._graph.as_default():
            self._find().copy_to(target, engine_backend().get_session())

    def write(self, values: Any, share: Tuple[int, int] = (0, 1)) -> None:
        """Sets the whole, block by block.

        Args:
            values: an array or an HDF5 dataset, or what is cut into rows as they are.
            share: `(number, of)`: every block whose number modulo `of` is `number` is written.

        Raises:
            ValueError: the values are not of its shape.
        """
        if tuple(values.shape) != self.shape:
            raise ValueError(
                '%s has the shape %s, but values of shape %s were given.'
                % (self.name, self.shape, tuple(values.shape))
            )
        with self._graph.as_default():
            self._find().fill(values, engine_backend().get_session(), share=share)
