# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gradients that are `IndexedSlices`, of variables that are exchanged whole.

In plain Keras the gradient of a table that is only looked up is `IndexedSlices`. Most optimizers
leave the other rows alone: momentum of such a row neither decays nor moves it. If the gradient is
exchanged whole, a row that no worker has looked up has a gradient of zeros, and a row that a worker
has looked up may have zeros too. A `RowMask`, which travels besides, tells the two apart.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Gradient, Operation, Slices


class RowMask(NamedTuple):
    """Which rows of a variable a gradient has values for.

    Attributes:
        numbers: a tensor `[rows]` of numbers that are greater than 0 for such a row and 0 for any
            other; `None` if the graph shows that the gradient has values for all rows.
    """

    numbers: Optional[tf.Tensor]

    def mapped(self, function: Callable[[tf.Tensor], tf.Tensor]) -> 'RowMask':
        """The mask with other numbers, if it has any."""
        return self if self.numbers is None else RowMask(function(self.numbers))

    def rows_of(self, gradient: tf.Tensor) -> Slices:
        """The rows of a whole gradient: `IndexedSlices` with each row once, in order."""
        shape = tf.shape(gradient)
        if self.numbers is None:
            return tf.IndexedSlices(gradient, tf.range(shape[0]), shape)
        rows = tf.reshape(tf.where(self.numbers > 0), [-1])
        return tf.IndexedSlices(tf.gather(gradient, rows), rows, shape)


def looked_up(variables: List[Any], gradients: List[Gradient]) -> Dict[Any, Slices]:
    """Those gradients that are `IndexedSlices`, by variable: TensorFlow has found lookups alone."""
    return {
        variable: gradient
        for variable, gradient in zip(variables, gradients)
        if isinstance(gradient, tf.IndexedSlices)
    }


def row_mask_of(gradient: Gradient, rows: int) -> RowMask:
    """The `RowMask` of `IndexedSlices` of a variable with some rows: 1 or 0 for each row."""
    if _has_all_rows(gradient, rows):
        return RowMask(None)
    ones = tf.ones_like(gradient.indices, gradient.values.dtype)
    counts = tf.unsorted_segment_sum(ones, gradient.indices, rows)
    return RowMask(tf.cast(counts > 0, ones.dtype))


def _has_all_rows(gradient: Gradient, rows: int) -> bool:
    return any(
        part.outputs[0].shape.as_list() == [rows]
        and tensorflow_api.constant_value(part.inputs[0]) == 0
        and tensorflow_api.constant_value(part.inputs[2]) == 1
        for part in _ranges(gradient)
    )


def may_have_whole_table(gradient: Gradient) -> bool:
    """Whether TensorFlow may have joined a tensor to `IndexedSlices` of lookups (TF 1.11)."""
    return bool(_ranges(gradient))


def _ranges(gradient: Gradient) -> List[Operation]:
    """The operations that count up row numbers of `IndexedSlices`, a list."""
    rows = gradient.indices.op
    parts = [tensor.op for tensor in rows.inputs] if rows.type == 'ConcatV2' else [rows]
    return [part for part in parts if part.type == 'Range']


def bounded(gradient: Gradient, bound: float) -> Gradient:
    """`IndexedSlices` whose entries are at most so large; a tensor as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values = tf.clip_by_value(gradient.values, -bound, bound)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def values_of(gradient: Gradient) -> tf.Tensor:
    """The values of `IndexedSlices`; a tensor as it is."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def copy_of(gradient: Gradient) -> Gradient:
    """A gradient once more, which waits for what is to come first."""
    if isinstance(gradient, tf.IndexedSlices):
        values = copy_of(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    with tensorflow_api.colocated_with(gradient):
        return tf.identity(gradient)
