"""Queues in which pushes wait."""

from keras_parallax.compat.tensorflow_api import tf


def closing(queues):
    """An operation that closes queues, so that whoever waits at one gets an error."""
    closed = []
    for queue in queues:
        with tf.device(queue.queue_ref.device):
            closed.append(queue.close(cancel_pending_enqueues=True))
    return tf.group(*closed)
