"""Training without a barrier: every worker applies its own gradients to the shards as they come.

A worker's graph holds the updates of all shards, each on its shard's server, instead of those of
the shards that the worker owns. Two pushes that reach a row at the same moment may both start from
the same old values, as in TensorFlow's own asynchronous parameter-server training; what SGD without
momentum subtracts from a row is never lost.
"""

import numbers
from typing import NamedTuple, Optional

from keras_parallax import cluster, roads
from keras_parallax.compat import tf
from keras_parallax.errors import PlanError
from keras_parallax.exchange import PartGradient, Pushed, RowGradients, split_gradients
from keras_parallax.table import Part, as_indices, split_rows


class Timing(NamedTuple):
    """When workers wait for each other.

    Attributes:
        sync: whether a step ends when the gradients of all workers have been applied.
        max_staleness: without `sync`, how many steps a worker may be ahead of the slowest one;
            `None` for no bound.
    """

    sync: bool = True
    max_staleness: Optional[int] = None


def check_timing(architecture, timing):
    """Refuses pairs of an architecture and a `Timing` that make no sense.

    Raises:
        PlanError: the message says why.
    """
    sync, bound = timing
    if sync and bound is not None:
        raise PlanError(
            'max_staleness=%r bounds asynchronous training, but sync=True; leave it out, or use '
            'sync=False.' % (bound,)
        )
    if sync:
        return
    if architecture not in (roads.HYBRID, roads.PS):
        raise PlanError(
            "sync=False needs architecture='hybrid' or 'ps': with %r, gradients go through "
            'collectives, which all workers enter together.' % architecture
        )
    is_count = isinstance(bound, numbers.Integral) and not isinstance(bound, bool)
    if bound is not None and (not is_count or bound < 0):
        raise PlanError('max_staleness must be a whole number from 0, but %r was given.' % (bound,))


def check_clipping(optimizer, together, dense):
    """Refuses a clipping that would make the replicas of dense variables differ.

    Args:
        optimizer: the Keras optimizer.
        together: whether its `clipnorm` bounds the norm of all gradients together.
        dense: the dense variables that every rank holds.

    Raises:
        PlanError: the norm would be over gradients that only this rank has.
    """
    if together and dense and (getattr(optimizer, 'clipnorm', None) or 0) > 0:
        raise PlanError(
            'clipnorm with sync=False would scale the dense gradients differently on each worker, '
            "because no worker has the others' gradients of tables; use clipvalue, "
            "architecture='ps' or sync=True."
        )


def push_rows(table, gradients, split, how):
    """This rank's gradients of a sparse table, for each shard on its server.

    Args:
        table: a `Table` with shards.
        gradients: this rank's `RowGradients`.
        split: the `SplitIds` of `gradients.rows`, or `None` to split them here.
        how: the `exchange.Exchange`.

    Returns:
        `Pushed`, with a part for every shard.
    """
    with tf.device(cluster.shard_device(how.rank)):
        items, restore = split_gradients(table, gradients, split, how)
    parts = []
    for number, (shard, (rows, values)) in enumerate(zip(table.shards, items)):
        with tf.device(shard.device):
            arrived = restore(tf.identity(values))
            rows = RowGradients(as_indices(rows), arrived)
        parts.append(PartGradient(Part(table, shard, number), rows))
    return Pushed([], parts, [])


def push_whole(table, gradient, how, computed):
    """This rank's gradient of a dense variable on servers, for each shard on its server.

    Args:
        table: a `Table` with shards that is not exchanged by rows.
        gradient: this rank's gradient, of the variable's shape.
        how: the `exchange.Exchange`.
        computed: operation that comes when this rank has computed all its gradients.

    Returns:
        `Pushed`, with a part for every shard.
    """
    with tf.device(cluster.shard_device(how.rank)), tf.control_dependencies([computed]):
        small, context = how.compression.compress(tf.identity(gradient))
        pieces = split_rows(small, table)
    parts = []
    for number, (shard, piece) in enumerate(zip(table.shards, pieces)):
        with tf.device(shard.device):
            arrived = how.compression.decompress(tf.identity(piece), context)
        arrived.set_shape(shard.shape)
        parts.append(PartGradient(Part(table, shard, number), arrived))
    return Pushed([], parts, [])


class StalenessBound:
    """Keeps a worker from being too many steps ahead of the slowest one.

    There is a queue for each ordered pair of workers, on the second one's server. A worker puts a
    token into the queues to all others at the end of a step, and takes one from each of those to
    itself, which hold as many tokens as the bound in the beginning.

    Args:
        bound: how many steps a worker may be ahead.
        rank, size: this rank, and the number of ranks.
        prefix: starts the queues' names, the same on every rank.

    Attributes:
        queues: the queues to this worker.
    """

    def __init__(self, bound, rank, size, prefix):
        self._bound = bound
        others = [other for other in range(size) if other != rank]
        make = self._make_queue
        self._to_others = [make(prefix, rank, other) for other in others]
        self.queues = [make(prefix, other, rank) for other in others]

    def _make_queue(self, prefix, source, target):
        name = 'parallax_%s_finished_from_%d_to_%d' % (prefix, source, target)
        with tf.name_scope(None), tf.device(cluster.shard_device(target)):
            # The other may be the bound ahead, on top of the tokens that were there.
            capacity = 2 * self._bound + 2
            return tf.FIFOQueue(capacity, [tf.uint8], shapes=[[]], shared_name=name, name=name)

    def start(self):
        """An operation that puts the first tokens into the queues to this worker."""
        tokens = tf.zeros([self._bound], tf.uint8)
        return tf.group(*[queue.enqueue_many([tokens]) for queue in self.queues])

    def end_step(self, operations):
        """Ends a step: tells the others, and waits for those that are too far behind.

        Args:
            operations: the operations of the step.

        Returns:
            A list of operations.
        """
        with tf.control_dependencies(operations):
            told = [queue.enqueue(tf.constant(0, tf.uint8)) for queue in self._to_others]
        return told + [queue.dequeue().op for queue in self.queues]
