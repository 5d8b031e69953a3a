"""Means of variables over the ranks."""

from keras_parallax.compat import horovod_api
from keras_parallax.compat.tensorflow_api import tf


def averaging(variables, size, prefix):
    """An operation that gives variables their mean over the ranks. A collective operation.

    Args:
        variables: the variables, the same on every rank.
        size: the number of ranks.
        prefix: prefix of the collectives' names.

    Returns:
        A `tf.Operation`.
    """
    assigned = []
    for variable in variables:
        name = '%s.average.%s' % (prefix, variable.name.replace(':', '.'))
        with tf.name_scope(None):
            total = horovod_api.allreduce(tf.convert_to_tensor(variable), name=name)
            assigned.append(variable.assign(total / size).op)
    return tf.group(*assigned)
