"""Queues in which pushes wait."""

from keras_parallax.compat.tensorflow_api import tf


def for_workers(workers, name, device, dtypes, capacity=2, shapes=None):
    """Queues on a device, one for each of some workers.

    Args:
        workers: their ranks.
        name: starts the queues' names. Every rank names them alike, so that all mean the same.
        device: the device string.
        dtypes: those of the tensors of an item, a list.
        capacity: 2 is enough for an item a step, because nobody is more than a step ahead.
        shapes: those of the tensors, a list, or `None` if they differ from item to item.

    Returns:
        A dict from ranks to queues, in order of `workers`.
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
