# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Aggregated gradients are clipped as Keras clips them, with norms over all workers' shards."""

from typing import NamedTuple, Optional

import numpy as np
import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.clipping import clipped
from keras_parallax.engine.updates.table_updates import PartUpdate


class Bounds(NamedTuple):
    clipnorm: Optional[float] = None
    clipvalue: Optional[float] = None


class Part(NamedTuple):
    table: str


def clip(optimizer, together):
    """A dense gradient and one of rows after clipping, where other workers have squares of 11."""
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.IndexedSlices(tf.constant([[3.0]]), tf.constant([7]), tf.constant([9, 1]))
        dense, parts = clipped(
            [tf.constant([4.0])],
            [PartUpdate(Part('table'), rows)],
            optimizer,
            together,
            lambda squares: {table: square + 11 for table, square in squares.items()},
        )
        (update,) = parts
        assert session.run(update.gradient.indices) == [7]
        return np.ravel(session.run([dense[0], update.gradient.values[0]])).tolist()


@pytest.mark.parametrize(
    'optimizer, together, expected',
    [
        # The squares are 16, and 9 + 11.
        (Bounds(clipnorm=3.0), True, [4 * 3 / 6, 3 * 3 / 6]),
        (Bounds(clipnorm=6.5), True, [4, 3]),
        (Bounds(clipnorm=2.0), False, [2, 3 * 2 / 20**0.5]),
        (Bounds(clipvalue=3.5), True, [3.5, 3]),
        (Bounds(clipvalue=1.0), False, [1, 1]),
        # Keras takes a bound of 0 for no clipping; tf.keras clips to 0.
        (Bounds(clipnorm=0.0, clipvalue=0.0), True, [4, 3]),
        (Bounds(clipvalue=0.0), False, [0, 0]),
        (Bounds(), True, [4, 3]),
    ],
    ids=str,
)
def test_norms_and_values_are_bounded(optimizer, together, expected):
    np.testing.assert_allclose(clip(optimizer, together), expected, rtol=1e-6)
