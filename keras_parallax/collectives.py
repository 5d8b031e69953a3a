"""Small collective calls between the ranks, outside any model's graph.

Each has a graph and a session of its own, so that it neither adds operations to the user's graph
(which would differ from rank to rank) nor takes memory of a card.
"""

import json
import struct

import numpy as np

from keras_parallax.compat import attr_value_pb2, horovod_ops, hvd, tf

#: What a rank sends first: the length of its value as text, and as much of it as there is room for.
_LENGTH, _HEAD_BYTES = struct.Struct('<q'), 256


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

    A short value takes one sum of the same size every time, in which each rank has its own place:
    of all collectives, Horovod 0.19.5 remembers only such sums. What it does not remember, its
    ranks have to agree on anew, which takes them more than the collective itself.
    """

    def __init__(self, name):
        self._rank, self._size = hvd.rank(), hvd.size()
        graph = tf.Graph()
        with graph.as_default(), tf.device('/cpu:0'):
            self._heads = tf.placeholder(tf.int32, [self._size, _HEAD_BYTES // 4])
            self._rest = tf.placeholder(tf.uint8, [None])
            # Collectives are matched by name: explicit ones cannot drift apart between ranks.
            self._all_heads = horovod_ops._allreduce(self._heads, name='parallax.%s.heads' % name)
            self._all_rests = horovod_ops.allgather(self._rest, name='parallax.%s.rests' % name)
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
        text = json.dumps(value).encode('utf-8')
        sent = _LENGTH.pack(len(text)) + text
        heads = np.zeros([self._size, _HEAD_BYTES], np.uint8)
        head = np.frombuffer(sent[:_HEAD_BYTES], np.uint8)
        heads[self._rank, : len(head)] = head
        heads = self._session.run(self._all_heads, {self._heads: heads.view(np.int32)})
        texts, lacks = [], []
        for each in heads:
            (size,) = _LENGTH.unpack_from(each)
            found = each.tobytes()[_LENGTH.size :][:size]
            texts.append(found)
            lacks.append(size - len(found))
        if any(lacks):
            rest = np.frombuffer(sent[_HEAD_BYTES:], np.uint8)
            rests = self._session.run(self._all_rests, {self._rest: rest}).tobytes()
            ends = np.cumsum(lacks)
            texts = [text + rests[end - lack : end] for text, end, lack in zip(texts, ends, lacks)]
        return [json.loads(each.decode('utf-8')) for each in texts]
