# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Exchange of sparse gradients: deduplicate, send each row to its owner, sum, average."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries, horovod_api
from keras_parallax.compat.horovod_api import horovod_ops, hvd
from keras_parallax.compat.segment_sums import segment_sum
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.job.collectives import unmerged
from keras_parallax.engine.step.indexed_slices import RowMask
from keras_parallax.engine.step.local_aggregation import HostWorkers
from keras_parallax.engine.step.push_queues import for_workers
from keras_parallax.engine.tables import half_precision
from keras_parallax.engine.tables.exchanged import Exchanged, OwnedShard
from keras_parallax.engine.tables.exchanged import PartGradient as PartGradient
from keras_parallax.engine.tables.exchanged import RowGradients as RowGradients
from keras_parallax.engine.tables.pull import split_by_shard
from keras_parallax.engine.tables.pull_data import SplitIds
from keras_parallax.engine.tables.table import Table, as_indices, split_rows
from keras_parallax.framework_types import Operation, Queue, Slices, Tensor

MEAN, SUM = 'mean', 'sum'


def sum_by_row(pairs: Sequence[Tuple[Tensor, Tensor]], on_card: bool = False) -> RowGradients:
    """Sums the gradients of repeated rows: `RowGradients` of each once, as they first appear.

    The pairs are row numbers `[n]`, repeats allowed, and values `[n] + row_shape`. The sum is on a
    card or on the CPU, as `segment_sum` takes it.
    """
    if len(pairs) == 1 and graph_queries.has_no_repeats(pairs[0][0]):
        return RowGradients(*pairs[0])
    wide = max((rows.dtype for rows, _ in pairs), key=lambda dtype: dtype.size)
    unique, inverse = tf.unique(tf.concat([tf.cast(rows, wide) for rows, _ in pairs], 0))
    values = tf.concat([values for _, values in pairs], 0)
    return RowGradients(unique, segment_sum(values, inverse, tf.size(unique), on_card))


def merged(
    by_pull: Sequence[Tuple[RowGradients, Optional[SplitIds]]],
) -> Tuple[RowGradients, Optional[SplitIds]]:
    """Merges the `RowGradients` of a table's pulls, given in pairs with the `SplitIds` of the rows.

    Returns such a pair, with `None` if the rows must be split anew.
    """
    if len(by_pull) == 1:
        return by_pull[0]
    return sum_by_row([gradients for gradients, _ in by_pull]), None


class Exchange(NamedTuple):
    """How this worker's gradients are exchanged with those of the others.

    Attributes:
        rank, size: the rank of this process, and the number of workers.
        reduction: `'mean'` or `'sum'` over the workers, for rows.
        compression: one of `hvd.Compression`: the form in which gradients travel.
        pull_compression: the same of rows that are pulled.
        prefix: prefix of the names of collectives and queues, the same on every worker.
        host: the `HostWorkers` whose leader pushes for all workers of the host, or `None`.
    """

    rank: int
    size: int
    reduction: str
    compression: Any
    pull_compression: Any
    prefix: str
    host: Optional[HostWorkers] = None

    @property
    def pushers(self) -> Sequence[int]:
        """The workers that push to servers, in order."""
        return self.host.leaders if self.host else range(self.size)

    def allreduce(self, tensor: Tensor, name: str) -> Tensor:
        """The sum of a tensor over all workers.

        Args:
            tensor: this worker's tensor.
            name: the collective's name. Horovod matches collectives by name; a given one cannot
                differ between workers because of an operation that only one of them has built.
        """
        with tf.name_scope(None):
            return unmerged(horovod_api.allreduce(tensor, name='%s.%s' % (self.prefix, name)))

    def average(self, gradient: Tensor, name: str) -> Tensor:
        """The mean of a dense gradient over all workers; `name` as `allreduce` takes it."""
        if self.size == 1:
            return gradient
        small, context = self.compression.compress(gradient)
        return self.compression.decompress(self.allreduce(small, name), context) / self.size

    def total_mask(self, mask: RowMask, name: str) -> RowMask:
        """The `RowMask` of the rows of any worker; `name` as `allreduce` takes it."""
        if self.size == 1:
            return mask
        return self.as_sent(mask).mapped(lambda numbers: self.allreduce(numbers, name))

    def as_sent(self, mask: RowMask) -> RowMask:
        """A `RowMask` as it travels: in half precision if gradients do.

        No other compression touches it, because what is not 0 must stay so.
        """
        if self.compression is not hvd.Compression.fp16:
            return mask
        return mask.mapped(lambda numbers: tf.cast(numbers, tf.float16))

    def average_slices(self, gradient: Slices, name: str) -> Slices:
        """The mean of `IndexedSlices` over all workers: the rows of all, one after the other."""
        if self.size == 1:
            return gradient
        with tf.name_scope(None):
            name = '%s.%s' % (self.prefix, name)
            small, context = self.compression.compress(gradient.values)
            values = unmerged(horovod_ops.allgather(small, name=name + '.values'))
            indices = unmerged(horovod_ops.allgather(gradient.indices, name=name + '.rows'))
        values = self.compression.decompress(values, context)
        mean = self.reduced(RowGradients(indices, values))
        return tf.IndexedSlices(mean.values, mean.rows, gradient.dense_shape)

    def reduced(self, gradients: RowGradients) -> RowGradients:
        """The mean or the sum over workers, given the sum, of `RowGradients`."""
        if self.reduction == SUM or self.size == 1:
            return gradients
        return gradients._replace(values=gradients.values / self.size)


class Pushed(NamedTuple):
    """What pushing a table's gradients comes to.

    Attributes:
        operations: the operations that push.
        parts: a list of `PartGradient`s, one for each shard that this worker owns.
        queues: the queues of those shards, which hold what has been pushed.
        rows: the numbers of the rows that this worker sends to each shard, tensors `[n_k]`; empty
            if it sends none, or everything.
    """

    operations: List[tf.Operation]
    parts: List[PartGradient]
    queues: List[tf.FIFOQueue]
    rows: Sequence[tf.Tensor] = ()


def allgather(table: Table, gradients: RowGradients, exchange: Exchange) -> List[PartGradient]:
    """Exchanges a replicated table's `RowGradients`: every worker gets the rows of all.

    Returns a list of one `PartGradient`, the same on every worker.
    """
    if exchange.size > 1:
        name = '%s.%s' % (exchange.prefix, table.name)
        small, restore = half_precision.compress(
            gradients.values, exchange.compression, table.widths
        )
        rows = unmerged(horovod_ops.allgather(gradients.rows, name=name + '.rows'))
        values = restore(unmerged(horovod_ops.allgather(small, name=name + '.values')))
        # A card adds the rows of a sum in any order, and the copies of the workers would differ.
        with tf.device('/cpu:0'):
            gradients = sum_by_row([(rows, values)])
    return [PartGradient(part, exchange.reduced(gradients)) for part in table.parts_of(0)]


def split_gradients(
    table: Exchanged, gradients: RowGradients, split: Optional[SplitIds], exchange: Exchange
) -> Tuple[List[Tuple[Tensor, Tensor]], Callable[[Tensor], Tensor]]:
    """Splits `RowGradients` by shard, in the form in which they travel.

    The `SplitIds` of the rows may be `None`, to split them here. Returns for each shard a pair of
    its rows and of what their values are sent as, and a function that makes the values what they
    were.
    """
    if split is None:
        split = split_by_shard(gradients.rows, table.planned_shards)
    small, restore = half_precision.compress(gradients.values, exchange.compression, table.widths)
    of_shards = [small]
    if len(table.shards) > 1:
        of_shards = [tf.gather(small, places) for places in split.positions]
    return list(zip(split.rows, of_shards)), restore


def push_rows(
    table: Exchanged,
    gradients: RowGradients,
    split: Optional[SplitIds],
    exchange: Exchange,
    after: Sequence[Operation],
) -> Pushed:
    """Exchanges a sparse table's `RowGradients`: each row goes to its shard's owner.

    The `SplitIds` of the rows may be `None`, to split them here. Operations `after` come before the
    push. Returns `Pushed`.
    """
    with tf.device(devices.shard_device(exchange.rank)):
        handed: List[Operation] = []
        if exchange.host:
            of_host, handed = exchange.host.push(table.name, list(gradients), after)
            if len(of_host) > 1:
                pairs = [
                    (tf.reshape(rows, [-1]), tf.reshape(values, [-1] + table.row_shape))
                    for rows, values in of_host
                ]
                gradients, split = sum_by_row(pairs), None
        items, restore = split_gradients(table, gradients, split, exchange)
    sent = [rows for rows, _ in items] if exchange.rank in exchange.pushers else ()
    owned, operations = _push(table, items, exchange, after)
    parts = []
    for part, queues in owned.items():
        with tf.device(part.variable.device):
            arrived = [queue.dequeue() for queue in queues]
            rows, values = [tf.concat(column, 0) for column in zip(*arrived)]
            rows.set_shape([None])
            values = restore(values)
            values.set_shape([None] + table.row_shape)
            summed = sum_by_row([(as_indices(rows), values)])
            parts.append(PartGradient(part, exchange.reduced(summed)))
    return Pushed(handed + operations, parts, sum(owned.values(), []), sent)


def push_whole(
    table: Table,
    gradient: Tensor,
    exchange: Exchange,
    after: Sequence[Operation],
    mask: Optional[RowMask] = None,
) -> Pushed:
    """Exchanges the gradient of a dense variable on servers: each shard's part goes to its owner.

    Operations `after` come before the push. Returns `Pushed`, whose parts have means over the
    workers as their gradients: tensors, or with a `RowMask` the `IndexedSlices` of its rows.
    """
    numbers = None if mask is None else mask.numbers
    with tf.device(devices.shard_device(exchange.rank)):
        handed: List[Operation] = []
        tensors = [gradient] + [numbers] * (numbers is not None)
        if exchange.host:
            of_host, handed = exchange.host.push(table.name, tensors, after)
            shapes = table.plan.shape, table.plan.shape[:1]
            tensors = [
                tf.add_n([tf.reshape(of_worker, shape) for of_worker in of_workers])
                for of_workers, shape in zip(zip(*of_host), shapes)
            ]
        tensors[0], context = exchange.compression.compress(tensors[0])
        if numbers is not None:
            tensors[1] = exchange.as_sent(RowMask(tensors[1])).numbers
        items = list(zip(*[split_rows(tensor, table) for tensor in tensors]))
    owned, operations = _push(table, items, exchange, after)
    parts = []
    for part, queues in owned.items():
        with tf.device(part.variable.device):
            decompress, shape = exchange.compression.decompress, part.variable.shape
            pushed, total = [queue.dequeue() for queue in queues], None
            if numbers is not None:
                pieces, of_ranks = zip(*pushed)
                pushed = list(pieces)
                total = tf.reshape(tf.add_n(of_ranks), shape[:1])
            pushed = [decompress(piece, context) for piece in pushed]
            mean = tf.reshape(tf.add_n(pushed), shape) / exchange.size
            parts.append(PartGradient(part, mean if mask is None else RowMask(total).rows_of(mean)))
    return Pushed(handed + operations, parts, sum(owned.values(), []))


def _push(
    table: Exchanged,
    items: Sequence[Sequence[Tensor]],
    exchange: Exchange,
    after: Sequence[Operation],
) -> Tuple[Dict[OwnedShard, List[Queue]], List[Operation]]:
    """Pushes an item to each shard of a table.

    There is a queue for each pair of a shard and a worker that pushes, on the shard's server. The
    owner takes one item from each in order of rank, so that sums come out the same however pushes
    race.

    Returns a dict from the `OwnedShard`s of this worker to the lists of their queues, and the
    operations that push.
    """
    queues, operations = [], []
    with tf.device(devices.shard_device(exchange.rank)):
        items = graph_queries.held_back(items, after)
    for number, (shard, item) in enumerate(zip(table.shards, items)):
        name = '%s/%s/shard_%d/from' % (exchange.prefix, table.name, number)
        dtypes = [tensor.dtype for tensor in item]
        of_shard = for_workers(exchange.pushers, name, shard.device, dtypes)
        if exchange.rank in of_shard:
            with tf.name_scope(None), tf.device(shard.device):
                operations.append(of_shard[exchange.rank].enqueue(item))
        queues.append(list(of_shard.values()))
    return {part: queues[part.shard] for part in table.parts_of(exchange.rank)}, operations
