# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Training without a barrier: every worker applies its own gradients to the shards as they come.

A worker's graph holds the updates of all shards, each on its shard's server, instead of those of
the shards that the worker owns. Two pushes that reach a row at the same moment may both start from
the same old values, as in TensorFlow's own asynchronous parameter-server training; what SGD without
momentum subtracts from a row is never lost.
"""

from typing import Dict, Iterable, List, Optional, Sequence

from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.step.exchange import (
    Exchange,
    PartGradient,
    Pushed,
    RowGradients,
    split_gradients,
)
from keras_parallax.engine.step.indexed_slices import RowMask
from keras_parallax.engine.step.push_queues import for_workers
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull_data import SplitIds
from keras_parallax.engine.tables.table import Table, as_indices, split_rows
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Optimizer, Queue, Tensor, Variable


def check_clipping(optimizer: Optimizer, together: bool, dense: Sequence[Variable]) -> None:
    """Refuses a clipping that would make the replicas of dense variables differ.

    Raises `PlanError` if the norm of all gradients together is bounded, of which only this worker
    has
    some: by `clipnorm` if it is of all `together`, or else by `global_clipnorm`.
    """
    bound = 'clipnorm' if together else 'global_clipnorm'
    if dense and (getattr(optimizer, bound, None) or 0) > 0:
        raise PlanError(
            '%s with sync=False would scale the dense gradients differently on each worker, '
            "because no worker has the others' gradients of tables; use clipvalue, "
            "architecture='ps' or sync=True." % bound
        )


def check_loss_scale(loss_scale: Optional[LossScale]) -> None:
    """Raises `PlanError` if a `LossScale`, or `None`, would leave out steps of all workers."""
    if loss_scale is not None and loss_scale.is_dynamic:
        raise PlanError(
            'A LossScaleOptimizer with dynamic=True leaves a step out if a gradient of any worker '
            'is not finite, but with sync=False no worker knows those of the others; give it '
            'dynamic=False and an initial_scale, or sync=True.'
        )


def push_rows(
    table: Exchanged, gradients: RowGradients, split: Optional[SplitIds], exchange: Exchange
) -> Pushed:
    """This worker's `RowGradients` of a sparse table, for each shard on its server.

    The `SplitIds` of the rows may be `None`, to split them here. Returns `Pushed`, with a part for
    every shard.
    """
    with tf.device(devices.shard_device(exchange.rank)):
        items, restore = split_gradients(table, gradients, split, exchange)
    parts = []
    for number, (shard, (rows, values)) in enumerate(zip(table.shards, items)):
        with tf.device(shard.device):
            arrived = restore(tf.identity(values))
            rows = RowGradients(as_indices(rows), arrived)
        parts.append(PartGradient(table.owned_shard(number), rows))
    return Pushed([], parts, [], [rows for rows, _ in items])


def push_whole(
    table: Table,
    gradient: Tensor,
    exchange: Exchange,
    after: Sequence[Operation],
    mask: Optional[RowMask] = None,
) -> Pushed:
    """This worker's gradient of a dense variable on servers, for each shard on its server.

    Operations `after` come before the push. Returns `Pushed`, with a part for every shard: with
    a `RowMask` the `IndexedSlices` of its rows.
    """
    with tf.device(devices.shard_device(exchange.rank)), tf.control_dependencies(after):
        small, context = exchange.compression.compress(tf.identity(gradient))
        pieces = split_rows(small, table)
        of_shards: List[Optional[RowMask]] = [mask] * len(pieces)
        if mask is not None and mask.numbers is not None:
            numbers = split_rows(exchange.as_sent(mask).numbers, table)
            of_shards = [RowMask(of_shard) for of_shard in numbers]
    parts = []
    for number, (shard, piece, of_shard) in enumerate(zip(table.shards, pieces, of_shards)):
        with tf.device(shard.device):
            arrived = exchange.compression.decompress(tf.identity(piece), context)
            arrived.set_shape(shard.shape)
            if of_shard is not None:
                arrived = of_shard.rows_of(arrived)
        parts.append(PartGradient(table.owned_shard(number), arrived))
    return Pushed([], parts, [])


class StalenessBound:
    """Keeps a worker from being too many steps ahead of the slowest one.

    There is a queue for each ordered pair of workers, on the second one's server. A worker puts a
    token into the queues to all others at the end of a step, and takes one from each of those to
    itself, which hold as many tokens as the bound in the beginning.

    Args:
        bound: how many steps a worker may be ahead.
        rank, size: the rank of this process, and the number of workers.
        prefix: starts the queues' names, the same on every worker.

    Attributes:
        queues: the queues to this worker.
    """

    def __init__(self, bound: int, rank: int, size: int, prefix: str) -> None:
        self._bound = bound

        def queues_to(worker: int, sources: Iterable[int]) -> Dict[int, Queue]:
            name = '%s/finished/to_%d/from' % (prefix, worker)
            # The other may be the bound ahead, on top of the tokens that were there.
            capacity, device = 2 * bound + 2, devices.shard_device(worker)
            return for_workers(sources, name, device, [tf.uint8], capacity, shapes=[[]])

        others = [other for other in range(size) if other != rank]
        self._to_others = [queues_to(other, [rank])[rank] for other in others]
        self.queues = list(queues_to(rank, others).values())

    def start(self) -> Operation:
        """An operation that puts the first tokens into the queues to this worker."""
        tokens = tf.zeros([self._bound], tf.uint8)
        return tf.group(*[queue.enqueue_many([tokens]) for queue in self.queues])

    def end_step(self, operations: Sequence[Operation]) -> List[Operation]:
        """Operations that, after a step's, tell the others and wait for who is too far behind."""
        with tf.control_dependencies(operations):
            enqueued = [queue.enqueue(tf.constant(0, tf.uint8)) for queue in self._to_others]
        return enqueued + [queue.dequeue().op for queue in self.queues]
