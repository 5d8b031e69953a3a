"""Queues in which pushes wait."""

from keras_parallax.compat.tensorflow_api import tf


def for_workers(workers, name, device, dtypes, capacity=2, shapes=None):
    """Queues on a device, one for each of some workers: a dict from their ranks, in order.

    Every rank names them alike, so that all mean the same. A capacity of 2 is enough for an item a
    step, because nobody is more than a step ahead. Shapes of an item's tensors are `None` if they
    differ from item to item.
    """
    queues = {}
    with tf.name_scope(None), tf.device(device):
        for worker in workers:
            full = 'parallax_%s_%d' % (name.replace('/', '_'), worker)
            queues[worker] = tf.FIFOQueue(capacity, dtypes, shapes, shared_name=full, name=full)
    return queues


def closing(queues):
    """An operation that closes queues, so that whoever waits at one gets an error."""
    closed = []
    for queue in queues:
        with tf.device(queue.queue_ref.device):
            closed.append(queue.close(cancel_pending_enqueues=True))
    return tf.group(*closed)
