# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The values of a table until a training step takes it, which are made block by block."""

import math
import tempfile
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, cast

import numpy as np

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, row_blocks

_initializers = keras.initializers
#: Initializers that give each element the same value.
_UNIFORM = (_initializers.Zeros, _initializers.Ones, _initializers.Constant)


class Distribution(NamedTuple):
    """What an initializer draws each element from.

    Attributes:
        kind: `'uniform'`, `'normal'` or `'truncated_normal'`.
        first: the lower bound, or the mean.
        second: the upper bound, or the standard deviation.
    """

    kind: str
    first: float
    second: float


def distribution_of(initializer: Any, shape: Tuple[int, int]) -> Optional[Distribution]:
    """What an initializer of Keras draws each element from.

    Args:
        initializer: the initializer.
        shape: the shape of the table, of which the scale of some initializers is a function, as in
            `keras.initializers.VarianceScaling` of Keras 3.15.

    Returns:
        The `Distribution`; `None` if it is not known.
    """
    if _calls(initializer, _initializers.RandomUniform):
        return Distribution('uniform', float(initializer.minval), float(initializer.maxval))
    if _calls(initializer, _initializers.RandomNormal):
        return Distribution('normal', float(initializer.mean), float(initializer.stddev))
    if _calls(initializer, _initializers.TruncatedNormal):
        mean, deviation = float(initializer.mean), float(initializer.stddev)
        return Distribution('truncated_normal', mean, deviation)
    if _calls(initializer, _initializers.VarianceScaling):
        fans = keras3_api.fans_of(initializer, shape)
        fan = {'fan_in': fans[0], 'fan_out': fans[1]}.get(initializer.mode, sum(fans) / 2.0)
        scale = initializer.scale / max(1.0, fan)
        if initializer.distribution == 'truncated_normal':
            # Cut at two standard deviations, it has the asked variance.
            return Distribution('truncated_normal', 0.0, math.sqrt(scale) / 0.87962566103423978)
        if initializer.distribution == 'untruncated_normal':
            return Distribution('normal', 0.0, math.sqrt(scale))
        limit = math.sqrt(3.0 * scale)
        return Distribution('uniform', -limit, limit)
    return None


def _calls(initializer: Any, cls: Any) -> bool:
    """Whether an initializer makes values as those of a class do, and not in a way of its own."""
    return isinstance(initializer, cls) and type(initializer).__call__ is cls.__call__


class StartValues:
    """The values of a table until a training step takes it.

    They are those of plain Keras with the same seed. Initializers whose elements have one known
    distribution make rows when they are asked for; others make the whole table at once.

    Args:
        initializer: the initializer of the layer, a function of a shape and a dtype.
        shape: `(rows, width)`.
        block_bytes: a table of more bytes, if all of it must be held, lies in a temporary file.

    Attributes:
        shape: as given.
    """

    def __init__(
        self, initializer: Any, shape: Tuple[int, int], block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.shape, self._initializer, self._block_bytes = shape, initializer, block_bytes
        self._drawn: Optional[Distribution] = None
        self._seed: Any = None
        self._constant = 0.0
        self._held: Optional[np.ndarray] = None
        self._is_ready = False

    def prepare(self) -> None:
        """Draws the seed, or all values, when Keras would; a second call does nothing."""
        if self._is_ready:
            return
        self._is_ready = True
        backend = keras3_api.backend_module()
        with backend.outside_steps():
            if isinstance(self._initializer, _UNIFORM):
                self._constant = float(self._made((1, 1))[0, 0])
                return
            self._drawn = distribution_of(self._initializer, self.shape)
            if self._drawn is not None:
                self._seed = backend.seed_of_draws(self._initializer)
            if self._seed is None:
                self._drawn, self._held = None, self._made(self.shape)

    @property
    def draws(self) -> Optional[List[Any]]:
        """What any worker makes the rows of, plain data; `None` if this one holds them."""
        self.prepare()
        if self._held is not None:
            return None
        seed = None if self._drawn is None else np.asarray(self._seed).tolist()
        return [self._drawn, seed, self._constant]

    def take(self, draws: Sequence[Any]) -> None:
        """Has rows be made of the `draws` of another worker."""
        drawn, seed, self._constant = draws
        self._is_ready, self._held = True, None
        self._drawn = self._seed = None
        if drawn is not None:
            self._drawn = Distribution(*drawn)
            self._seed = keras3_api.backend_module().seed_of_numbers(seed)

    def at(self, ids: np.ndarray) -> np.ndarray:
        """The rows of some ids: float32 of shape `[n, width]` for integers of shape `[n]`."""
        self.prepare()
        if self._held is None:
            # Ids are anywhere, and rows are made in blocks.
            self.fill(self)
        return cast(np.ndarray, self._held)[ids]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Rows that follow each other, float32 of shape `[n, width]`."""
        self.prepare()
        if self._held is not None:
            return self._held[rows]
        first, last, _ = rows.indices(self.shape[0])
        if self._drawn is None:
            return np.full((last - first, self.shape[1]), self._constant, np.float32)
        with keras3_api.backend_module().outside_steps():
            return keras3_api.backend_module().drawn_rows(
                *self._drawn, seed=self._seed, first=first, shape=(last - first, self.shape[1])
            )

    def fill(self, source: Any) -> None:
        """Takes other values, block by block.

        Args:
            source: an array or an HDF5 dataset of the table's shape.
        """
        self._is_ready = True
        row_bytes = 4 * self.shape[1]
        held: np.ndarray
        if self.shape[0] * row_bytes <= self._block_bytes:
            held = np.empty(self.shape, np.float32)
        else:
            # The system may take its pages out of memory.
            with tempfile.TemporaryFile() as file:
                held = np.memmap(file, np.float32, shape=self.shape, mode='w+')
        for first, last in row_blocks(self.shape[0], row_bytes, self._block_bytes):
            held[first:last] = source[first:last]
        self._held = held

    def _made(self, shape: Tuple[int, int]) -> np.ndarray:
        with keras3_api.backend_module().outside_steps():
            made = keras.ops.convert_to_numpy(self._initializer(shape, dtype='float32'))
        return np.array(made, np.float32)
