"""Small collective calls between the ranks, outside any model's graph.

Each has a graph and a session of its own, so that it neither adds operations to the user's graph
(which would differ from rank to rank) nor takes memory of a card.
"""

import json

import numpy as np

from keras_parallax.compat import attr_value_pb2, horovod_ops, tf


def unmerged(tensor):
    """Keeps TensorFlow from merging a collective with another one of the same input.

    Horovod 0.19.5 does not declare its operations stateful. TensorFlow then makes one of two that
    gather the same ids, and each process keeps the name of either, so that the ranks would wait for
    each other for ever. Operations whose attributes differ are not merged.

    Args:
        tensor: what the collective's operation returns.

    Returns:
        The same tensor.
    """
    name = attr_value_pb2.AttrValue(s=tensor.op.name.encode('utf-8'))
    tensor.op._set_attr('_parallax_collective', name)
    return tensor


class Gatherer:
    """Gathers a JSON-able value from every rank.

    Every rank must make the same calls in the same order. Two gatherers of different names are
    independent of each other, so that each may be used from a thread of its own.
    """

    def __init__(self, name):
        graph = tf.Graph()
        with graph.as_default(), tf.device('/cpu:0'):
            self._bytes = tf.placeholder(tf.uint8, [None])
            # Collectives are matched by name: explicit ones cannot drift apart between ranks.
            self._sizes = horovod_ops.allgather(
                tf.shape(self._bytes), name='parallax.%s.sizes' % name
            )
            with tf.control_dependencies([self._sizes]):
                self._all = horovod_ops.allgather(self._bytes, name='parallax.%s.bytes' % name)
        config = tf.ConfigProto(
            device_count={'GPU': 0}, inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
        )
        self._session = tf.Session(graph=graph, config=config)

    def __call__(self, value):
        """Gathers `value` from every rank.

        Args:
            value: anything that `json.dumps` takes.

        Returns:
            A list with each rank's value, in order of rank.
        """
        sent = np.frombuffer(json.dumps(value).encode('utf-8'), np.uint8)
        sizes, received = self._session.run([self._sizes, self._all], {self._bytes: sent})
        ends = np.cumsum(sizes)
        return [
            json.loads(received[end - size : end].tobytes().decode('utf-8'))
            for size, end in zip(sizes, ends)
        ]
