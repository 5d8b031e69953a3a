# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Queues in which pushes wait."""

from typing import Dict, Iterable, Optional, Sequence

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import DType, Operation, Queue, Shape


def for_workers(
    workers: Iterable[int],
    name: str,
    device: str,
    dtypes: Sequence[DType],
    capacity: int = 2,
    shapes: Optional[Sequence[Shape]] = None,
) -> Dict[int, Queue]:
    """Queues on a device, one for each of some workers: a dict from their ranks, in order.

    Every worker names them alike, so that all mean the same. A capacity of 2 is enough for an item
    a step, because nobody is more than a step ahead. Shapes of an item's tensors are `None` if they
    differ from item to item.
    """
    queues = {}
    with tf.name_scope(None), tf.device(device):
        for worker in workers:
            full = 'parallax_%s_%d' % (name.replace('/', '_'), worker)
            queues[worker] = tf.FIFOQueue(capacity, dtypes, shapes, shared_name=full, name=full)
    return queues


def closing(queues: Iterable[Queue]) -> Operation:
    """An operation that closes queues, so that whoever waits at one gets an error."""
    closed = []
    for queue in queues:
        with tf.device(queue.queue_ref.device):
            closed.append(queue.close(cancel_pending_enqueues=True))
    return tf.group(*closed)
