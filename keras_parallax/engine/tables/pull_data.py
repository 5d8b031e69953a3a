# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is pulled for lookups: ids, split by shard, and their rows. Data alone."""

from typing import List, NamedTuple, Tuple

from keras_parallax.compat.tensorflow_api import tf


class SplitIds(NamedTuple):
    """Unique ids, split by shard.

    Attributes:
        ids: `[n]`, the unique ids.
        rows: for each shard the rows within it, `[n_k]`, of the integer type they travel in.
        positions: for each shard the positions of its ids in `ids`, `[n_k]` int32.
    """

    ids: tf.Tensor
    rows: List[tf.Tensor]
    positions: List[tf.Tensor]


class Connection(NamedTuple):
    """What a training step reads in place of a tensor.

    Predictions and evaluations run at times, and with inputs, of their own; so the model's graph
    pulls each table by itself. What a training step does instead holds for the callables of
    training steps only (`session.ParallaxSession`).

    Attributes:
        replaced: the tensor that the graph reads, the first output of its operation.
        replacement: the tensor that is read in a training step.
    """

    replaced: tf.Tensor
    replacement: tf.Tensor


class Pull(NamedTuple):
    """Rows pulled for one or several lookups of a table, or of a group of tables.

    Attributes:
        split: the `SplitIds` of all lookups together.
        rows: `[n] + row_shape`, the pulled rows, one for each of `split.ids`; `None` of a group
            whose rows nobody has pulled yet.
        outputs: for each lookup the looked-up rows, of shape `ids.shape + row_shape`.
        inverses: for each lookup the positions of its ids in `split.ids`, flat, int32.
        ids: for each lookup its ids, as the model has them.
        members: of a group, the `Pull`s of its members; they have `inverses` and `ids`.
    """

    split: SplitIds
    rows: tf.Tensor
    outputs: List[tf.Tensor]
    inverses: List[tf.Tensor]
    ids: List[tf.Tensor]
    members: Tuple['Pull', ...] = ()
