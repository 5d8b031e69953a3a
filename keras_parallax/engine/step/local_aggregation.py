# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Local aggregation: the workers of a host send and fetch each row once, through their leader.

The worker of local rank 0 is the *leader* of its host. Its server holds a pair of queues for each
other worker of the host and each pull: the worker puts its ids in and takes its rows out. The
leader pulls the union of all ids, so that a row that several of them need crosses the network once.
Gradients go through one queue more for each worker: the leader sums them by row, in order of local
rank, and pushes the sums for the whole host.

Predictions and evaluations do not go through the leader: one worker may predict while the others do
something else. So the model's graph is left as it is, with rows pulled from the shards. What a
training step does instead is a list of `pull.Connection`s.
"""

from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.step.push_queues import closing, for_workers
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull import Connection, pull
from keras_parallax.engine.tables.pull_data import SplitIds
from keras_parallax.engine.tables.table import Table, whole_of
from keras_parallax.framework_types import DType, Operation, Queue, Shape, Tensor


class HostWorkers:
    """This process's place among the workers of its host, in one model's training step.

    Args:
        hosts: the workers of each host, as `hosts_of` returns them.
        rank: this process's rank.
        prefix: starts the queues' names, the same on every worker.

    Attributes:
        leaders: the rank of each host's leader, in order of host.
        leads: whether this process is the leader of its host.
        own_queues: the queues on this process's server.
        awaited: the queues on the leader's server in which this process waits for rows.
        connections: the `pull.Connection`s of what is pulled whole.
    """

    def __init__(self, hosts: Sequence[Sequence[int]], rank: int, prefix: str) -> None:
        self._ranks = next(ranks for ranks in hosts if rank in ranks)
        self._rank, self._prefix = rank, prefix
        self.leaders = [ranks[0] for ranks in hosts]
        self.leads = rank == self._ranks[0]
        self.own_queues: List[tf.FIFOQueue] = []
        self.awaited: List[tf.FIFOQueue] = []
        self.connections: List[Connection] = []

    @property
    def shares(self) -> bool:
        """Whether other workers are on the host."""
        return len(self._ranks) > 1

    def pull_rows(
        self, table: Exchanged, name: str, ids: Tensor, compression: Any
    ) -> Tuple[Tensor, Optional[SplitIds]]:
        """Has a training step pull rows of a sparse table together with the host's other workers.

        The name is the pull's, the same on every worker; `ids` are those that this worker wants,
        `[n]`. Rows come to the host in the form of the compression. Returns them, `[n] +
        row_shape`, and on the leader the `SplitIds` of all rows of the host, elsewhere `None`.
        """
        id_queues = self._queues(name + '/ids', [ids.dtype])
        answered = self._queues(name + '/rows', [table.dtype], awaited=True)
        split = None
        with self._at_leader():
            if self.leads:
                others = [tf.reshape(queue.dequeue(), [-1]) for queue in id_queues.values()]
                pulled = pull(table, [ids] + others, compression)
                split, (rows, *of_others) = pulled.split, pulled.outputs
                after = [queue.enqueue([part]) for queue, part in zip(answered.values(), of_others)]
            else:
                with tf.control_dependencies([id_queues[self._rank].enqueue([ids])]):
                    rows, after = answered[self._rank].dequeue(), []
        return self._after(rows, after, [None] + table.row_shape), split

    def pull_whole(self, table: Table) -> tf.Tensor:
        """Has a training step pull a table whole once for the whole host; returns its value."""
        whole = table.variable.value()
        if not self.shares:
            return whole
        answered = self._queues(table.name + '/whole', [table.dtype], awaited=True)
        with self._at_leader():
            if self.leads:
                value = whole_of(table)
                after = [queue.enqueue([value]) for queue in answered.values()]
            else:
                value, after = answered[self._rank].dequeue(), []
        value = self._after(value, after, whole.shape)
        self.connections.append(Connection(whole, value))
        return value

    def push(
        self, name: str, tensors: List[Tensor], after: Sequence[Operation]
    ) -> Tuple[List[List[Tensor]], List[Operation]]:
        """Hands this worker's gradients of a table, a list of tensors, to the leader.

        Operations `after` come before the push. Returns a list with the tensors of each worker of
        the host, in order of local rank (of a worker that does not lead, its own alone), and the
        operations that push. The shapes of the other workers' tensors are not known.
        """
        queues = self._queues(name + '/gradients', [tensor.dtype for tensor in tensors])
        if not self.leads:
            with tf.device(devices.shard_device(self._rank)):
                (item,) = graph_queries.held_back([tensors], after)
            with self._at_leader():
                return [tensors], [queues[self._rank].enqueue(item)]
        with self._at_leader():
            items = [queue.dequeue() for queue in queues.values()]
            return [tensors] + [item if len(tensors) > 1 else [item] for item in items], []

    def pass_on(self, taken: List[Operation]) -> List[Operation]:
        """Has the host's other workers end their step when the leader ends its own.

        Given the operations that end the leader's step, returns those that end this worker's.
        """
        queues = self._queues('end', [tf.bool], awaited=True)
        with self._at_leader():
            if not self.leads:
                return [queues[self._rank].dequeue().op]
            with tf.control_dependencies(taken):
                return taken + [queue.enqueue(tf.constant(True)) for queue in queues.values()]

    def interruptions(self) -> List[Operation]:
        """Operations, to be run in turn, that make a step fail which waits for the host's others.

        A leader that has failed does not close its queues itself, and if its process is gone, what
        is run there may never end: so those come last.
        """
        return [closing(self.own_queues), closing(self.awaited)]

    def _at_leader(self) -> ContextManager[Any]:
        return tf.device(devices.shard_device(self._ranks[0]))

    def _queues(
        self, name: str, dtypes: Sequence[DType], awaited: bool = False
    ) -> Dict[int, Queue]:
        """Queues on the leader's server, one for each other worker of the host."""
        leader, *others = self._ranks
        name = '%s/%s/of' % (self._prefix, name)
        queues = for_workers(others, name, devices.shard_device(leader), dtypes)
        if self.leads:
            self.own_queues.extend(queues.values())
        elif awaited:
            self.awaited.append(queues[self._rank])
        return queues

    def _after(self, tensor: Tensor, operations: Sequence[Operation], shape: Shape) -> Tensor:
        """A tensor on this worker; in every step that reads it, the operations run."""
        with tf.device(devices.shard_device(self._rank)), tf.control_dependencies(operations):
            tensor = tf.identity(tensor)
        tensor.set_shape(shape)
        return tensor
