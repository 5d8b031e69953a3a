# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What travels of a table in a step, for those who count it."""

from typing import List, NamedTuple, Sequence

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.exchanged import Exchanged


class TableTraffic(NamedTuple):
    """What travels of a table, or of a group of tables, in a step of this worker.

    Attributes:
        table: the `Exchanged`.
        arrived: the rows that this worker has pulled, a list of tensors; empty if it has them all.
        pulled: for each pull of this worker's from the servers the numbers of rows, a tensor
            `[n_k]` for each shard.
        pushed: numbers of the rows whose gradients this worker sends, the same; a single tensor of
            a table without shards.
        pushes: the operations that push these gradients.
    """

    table: Exchanged
    arrived: List[tf.Tensor]
    pulled: List[List[tf.Tensor]]
    pushed: Sequence[tf.Tensor]
    pushes: Sequence[tf.Operation] = ()
