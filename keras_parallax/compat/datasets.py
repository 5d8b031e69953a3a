# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`tf.data.Dataset`s: which elements of one a worker takes."""

from typing import Any

from keras_parallax.compat.installed_frameworks import generation, tf
from keras_parallax.framework_types import Tensor


def is_dataset(data: Any) -> bool:
    """Whether something is a `tf.data.Dataset`, of TensorFlow 1 or 2."""
    return isinstance(data, generation.DATASET)


def is_tensor(data: Any) -> bool:
    """Whether something is a tensor or a variable of a graph."""
    return isinstance(data, (tf.Tensor, tf.Variable))


def every_nth(dataset: Any, ranks: int, rank: int, drop_remainder: bool) -> Any:
    """Of each `ranks` elements in a row, the one of a worker.

    `dataset.shard` would give more to the first workers where the rest is not enough for all.

    Args:
        dataset: the `tf.data.Dataset`.
        ranks: the number of workers.
        rank: the rank.
        drop_remainder: whether the last elements, fewer than `ranks`, are left out. Otherwise they
            are repeated.

    Returns:
        A `tf.data.Dataset`.
    """

    def group_of(*element: Any) -> Tensor:
        return tf.constant(0, tf.int64)

    def own_of(group: Any, elements: Any) -> Any:
        if not drop_remainder:
            return elements.repeat().skip(rank).take(1)
        last = elements.skip(ranks - 1).take(1)
        if hasattr(last, 'reduce'):  # From TensorFlow 1.12 on.
            # A function that gives an element back would make a plain tensor of a ragged one.
            count = last.reduce(tf.constant(0, tf.int64), lambda count, element: count + 1)
            return elements.skip(rank).take(count)
        pair = tf.data.Dataset.zip((elements.skip(rank).take(1), last))
        return pair.map(lambda own, last: own)

    return generation.group_by_window(dataset, group_of, own_of, ranks)
