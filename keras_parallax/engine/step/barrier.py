# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a synchronous step ends: no worker goes on before every owner has updated its shards.

An owner puts a token for each worker that pushes into a queue beside its shards, when it has
updated them. A worker takes its token where it has pushed, so that one message tells it both. The
updates of dense variables, which wait for Horovod, hold nobody else up.
"""

from typing import Collection, Iterable, List, NamedTuple, Sequence

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.exchange import Exchange
from keras_parallax.engine.step.push_queues import for_workers
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Operation, Queue, Variable


class End(NamedTuple):
    """The end of a step.

    Attributes:
        operations: the operations that end it.
        own_queues: the queues of the shards that this worker owns.
        awaited: the queues in which this worker waits for its tokens.
    """

    operations: List[tf.Operation]
    own_queues: List[tf.FIFOQueue]
    awaited: List[tf.FIFOQueue]


def end_of_step(
    tables: Collection[Table],
    operations: Sequence[Operation],
    pushes: Sequence[Operation],
    replicas: Iterable[Variable],
    exchange: Exchange,
) -> End:
    """The `End` of a step that ends when every owner has updated its shards.

    Of its operations, some push. One that writes to `replicas`, variables that every worker has for
    itself, is not waited for by others, unless a shard's update comes before it: all that one of
    TensorFlow's optimizers or a user's own returns may be a counter of steps that waits for the
    updates (`tests/parallel/test_barrier.py`).
    """
    shards = [(table, shard) for table in tables for shard in table.plan.shards]
    owners = {table.device_of(shard): table.owner_of(shard) for table, shard in shards}
    own_storage = {tensorflow_api.storage(variable).op for variable in replicas}
    parts = [part for table in tables if table.shards for part in table.parts_of(exchange.rank)]
    last = graph_queries.after_writes([part.variable for part in parts])
    updates = [
        operation
        for operation in operations
        if operation not in pushes
        and (operation in last or not (operation.inputs and operation.inputs[0].op in own_storage))
    ]
    given: List[Operation] = []
    taken: List[Operation] = []
    own: List[Queue] = []
    awaited: List[Queue] = []
    for number, device in enumerate(sorted(owners)):
        name = '%s/updated_%d/for' % (exchange.prefix, number)
        # A token a step, and it is taken before its worker pushes again.
        queues = for_workers(exchange.pushers, name, device, [tf.bool], capacity=1, shapes=[[]])
        if owners[device] == exchange.rank:
            own += queues.values()
            with tf.control_dependencies(updates), tf.device(device):
                given += [queue.enqueue(tf.constant(True)) for queue in queues.values()]
        if exchange.rank in queues:
            queue = queues[exchange.rank]
            here = [push for push in pushes if push.device == queue.queue_ref.device]
            with tf.control_dependencies(here), tf.device(device):
                taken.append(queue.dequeue().op)
            awaited.append(queue)
    if exchange.host:
        taken = exchange.host.pass_on(taken)
    return End(given + taken, own, awaited)
