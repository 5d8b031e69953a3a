"""The barrier that ends a synchronous step."""

from keras_parallax import compat
from keras_parallax.compat import tf


def unfolded_zero(loss):
    """A zero that TensorFlow 1.11 does not know to be one, of the loss's dtype.

    It takes Horovod's operations for pure functions: an allreduce of a constant is folded when the
    graph is optimized, and so runs once instead of every step (proven by
    `tests/parallel/test_barrier.py`).
    """
    return tf.cast(tf.less(tf.abs(loss), -1.0), loss.dtype)


def barrier(loss, operations, allreduce, totals=()):
    """Ends the step when every owner has updated its shards, so that nobody pulls old rows.

    The sum is stored, because TensorFlow 1.11 drops an operation without side effects whose result
    nothing reads, even one that others wait for (proven by `tests/parallel/test_barrier.py`).

    Args:
        loss: the total loss.
        operations: the operations of the step.
        allreduce: function from a tensor and a name to the sum over all ranks.
        totals: other sums over all ranks, vectors. A rank that owns no shard may read them nowhere
            else; TensorFlow would drop them there, and the other ranks wait for ever.

    Returns:
        An operation.
    """
    given = tf.concat([tf.reshape(unfolded_zero(loss), [1])] + list(totals), 0)
    together = allreduce(given, 'barrier')
    compat.add_control_inputs(together.op, operations)
    with tf.name_scope(None):
        passed = tf.Variable(
            tf.zeros(given.shape, together.dtype),
            trainable=False,
            collections=[],
            name='parallax/barrier',
        )
    return tf.assign(passed, together).op
