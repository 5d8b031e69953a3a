"""Exchange of sparse gradients: deduplicate, send each row to its owner, sum, average."""

from typing import Any, List, NamedTuple, Optional, Sequence

from keras_parallax.compat import graph_queries, horovod_api
from keras_parallax.compat.horovod_api import horovod_ops
from keras_parallax.compat.segment_sums import segment_sum
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.job import devices
from keras_parallax.job.collectives import unmerged
from keras_parallax.step.local_aggregation import HostGroup
from keras_parallax.step.queues import for_workers
from keras_parallax.tables import half_precision
from keras_parallax.tables.exchanged import OwnedShard
from keras_parallax.tables.pull import split_by_shard
from keras_parallax.tables.table import as_indices, split_rows

MEAN, SUM = 'mean', 'sum'


class RowGradients(NamedTuple):
    """Gradients of some rows: `rows` `[n]` without repeats, `values` `[n] + row_shape`."""

    rows: tf.Tensor
    values: tf.Tensor


class PartGradient(NamedTuple):
    """The gradient that a rank applies to an `OwnedShard`.

    Attributes:
        part: the `OwnedShard`.
        gradients: `RowGradients` with rows numbered within the part, or, of a dense variable on
            servers, a tensor of the part's shape.
    """

    part: OwnedShard
    gradients: Any


def sum_by_row(pairs):
    """Sums the gradients of repeated rows: `RowGradients` of each once, as they first appear.

    The pairs are row numbers `[n]`, repeats allowed, and values `[n] + row_shape`.
    """
    if len(pairs) == 1 and graph_queries.has_no_repeats(pairs[0][0]):
        return RowGradients(*pairs[0])
    wide = max((rows.dtype for rows, _ in pairs), key=lambda dtype: dtype.size)
    unique, inverse = tf.unique(tf.concat([tf.cast(rows, wide) for rows, _ in pairs], 0))
    values = tf.concat([values for _, values in pairs], 0)
    return RowGradients(unique, segment_sum(values, inverse, tf.size(unique)))


def merged(by_pull):
    """Merges the `RowGradients` of a table's pulls, given in pairs with the `SplitIds` of the rows.

    Returns such a pair, with `None` if the rows must be split anew.
    """
    if len(by_pull) == 1:
        return by_pull[0]
    return sum_by_row([gradients for gradients, _ in by_pull]), None


class Exchange(NamedTuple):
    """How this rank's gradients are exchanged with those of the others.

    Attributes:
        rank, size: this rank, and the number of ranks.
        reduction: `'mean'` or `'sum'` over the ranks, for rows.
        compression: one of `hvd.Compression`: the form in which gradients travel.
        pull_compression: the same of rows that are pulled.
        prefix: prefix of the names of collectives and queues, the same on every rank.
        host: the `local_aggregation.HostGroup` whose leader pushes for all its workers, or `None`.
    """

    rank: int
    size: int
    reduction: str
    compression: type
    pull_compression: type
    prefix: str
    host: Optional[HostGroup] = None

    @property
    def pushers(self):
        """The ranks that push to servers, in order."""
        return self.host.leaders if self.host else range(self.size)

    def allreduce(self, tensor, name):
        """The sum of a tensor over all ranks.

        Args:
            tensor: this rank's tensor.
            name: the collective's name. Horovod matches collectives by name; a given one cannot
                differ between ranks because of an operation that only one of them has built.
        """
        with tf.name_scope(None):
            return unmerged(horovod_api.allreduce(tensor, name='%s.%s' % (self.prefix, name)))

    def average(self, gradient, name):
        """The mean of a dense gradient over all ranks; `name` as `allreduce` takes it."""
        if self.size == 1:
            return gradient
        small, context = self.compression.compress(gradient)
        return self.compression.decompress(self.allreduce(small, name), context) / self.size

    def average_slices(self, gradient, name):
        """The mean of `IndexedSlices` over all ranks: the rows of all, one after the other."""
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

    def reduced(self, gradients):
        """The mean or the sum over ranks, given the sum, of `RowGradients`."""
        if self.reduction == SUM or self.size == 1:
            return gradients
        return gradients._replace(values=gradients.values / self.size)


class Pushed(NamedTuple):
    """What pushing a table's gradients comes to.

    Attributes:
        operations: the operations that push.
        parts: a list of `PartGradient`s, one for each shard that this rank owns.
        queues: the queues of those shards, which hold what has been pushed.
        rows: the numbers of the rows that this rank sends to each shard, tensors `[n_k]`; empty if
            it sends none, or everything.
    """

    operations: List[tf.Operation]
    parts: List[PartGradient]
    queues: List[tf.FIFOQueue]
    rows: Sequence[tf.Tensor] = ()


def allgather(table, gradients, exchange):
    """Exchanges a replicated table's `RowGradients`: every rank gets the rows of all.

    Returns a list of one `PartGradient`, the same on every rank.
    """
    if exchange.size > 1:
        name = '%s.%s' % (exchange.prefix, table.name)
        small, restore = half_precision.compress(
            gradients.values, exchange.compression, table.widths
        )
        rows = unmerged(horovod_ops.allgather(gradients.rows, name=name + '.rows'))
        values = restore(unmerged(horovod_ops.allgather(small, name=name + '.values')))
        gradients = sum_by_row([(rows, values)])
    return [PartGradient(part, exchange.reduced(gradients)) for part in table.parts_of(0)]


def split_gradients(table, gradients, split, exchange):
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


def push_rows(table, gradients, split, exchange, after):
    """Exchanges a sparse table's `RowGradients`: each row goes to its shard's owner.

    The `SplitIds` of the rows may be `None`, to split them here. Operations `after` come before the
    push. Returns `Pushed`.
    """
    with tf.device(devices.shard_device(exchange.rank)):
        handed = []
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


def push_whole(table, gradient, exchange, after):
    """Exchanges the gradient of a dense variable on servers: each shard's part goes to its owner.

    Operations `after` come before the push. Returns `Pushed`, with tensors as the gradients of its
    parts, means over the ranks.
    """
    with tf.device(devices.shard_device(exchange.rank)):
        handed = []
        if exchange.host:
            of_host, handed = exchange.host.push(table.name, [gradient], after)
            gradient = tf.add_n([tf.reshape(whole, table.plan.shape) for (whole,) in of_host])
        small, context = exchange.compression.compress(gradient)
        items = [(part,) for part in split_rows(small, table)]
    owned, operations = _push(table, items, exchange, after)
    parts = []
    for part, queues in owned.items():
        with tf.device(part.variable.device):
            decompress = exchange.compression.decompress
            pushed = [decompress(queue.dequeue(), context) for queue in queues]
            total = tf.reshape(tf.add_n(pushed), part.variable.shape) / exchange.size
            parts.append(PartGradient(part, total))
    return Pushed(handed + operations, parts, sum(owned.values(), []))


def _push(table, items, exchange, after):
    """Pushes an item to each shard of a table.

    There is a queue for each pair of a shard and a worker that pushes, on the shard's server. The
    owner takes one item from each in order of rank, so that sums come out the same however pushes
    race.

    Returns a dict from the `OwnedShard`s of this rank to the lists of their queues, and the
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
