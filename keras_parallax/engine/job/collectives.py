# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Small collective calls between the workers, outside any model's graph.

Each has a graph and a session of its own, so that it neither adds operations to the user's graph
(which would differ from rank to rank) nor takes memory of a card.
"""

import json
import threading
from concurrent import futures
from typing import Any, Callable, Dict, Iterable, List, Optional, TypeVar

import numpy as np

from keras_parallax.compat import horovod_api, session_config, tensorflow_api
from keras_parallax.compat.horovod_api import horovod_ops, hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.framework_types import Array, Operation, Tensor, Variable

#: A value that takes no more as a line of text is sent by a sum.
_SHORT_BYTES = 256


#: How often a worker that waits in a collective looks whether it need not.
_LOOK_SECONDS = 0.5

_Result = TypeVar('_Result')
#: Gathers a value from each worker, as a `Gatherer` does.
Gather = Callable[[Any], List[Any]]


def unmerged(tensor: Tensor) -> Tensor:
    """Keeps TensorFlow from merging a collective, of which this is the result, with another one.

    Horovod 0.19.5 does not declare its operations stateful. TensorFlow then makes one of two that
    gather the same ids, and each process keeps the name of either, so that the workers would wait
    for each other for ever. Operations whose attributes differ are not merged.
    """
    tensorflow_api.set_string(tensor.op, '_parallax_collective', tensor.op.name)
    return tensor


def run_beside(
    act: Callable[[], _Result], problem: Callable[[], Optional[BaseException]]
) -> _Result:
    """Runs a collective in a thread of its own, for Horovod 0.19.5 cannot interrupt one.

    Returns what `act` returns, or raises what it raises, or what `problem` returns: an exception if
    there is no sense in waiting any longer, and `None` as long as there is.
    """
    outcome: futures.Future[_Result] = futures.Future()

    def set_outcome() -> None:
        try:
            outcome.set_result(act())
        except Exception as error:
            outcome.set_exception(error)

    _check(problem)
    threading.Thread(target=set_outcome, name='parallax-collective', daemon=True).start()
    while not outcome.done():
        _check(problem)
        futures.wait([outcome], _LOOK_SECONDS)
    return outcome.result()


def _check(problem: Callable[[], Optional[BaseException]]) -> None:
    found = problem()
    if found is not None:
        raise found


class Gatherer:
    """Gathers a JSON-able value from every worker.

    Every worker must make the same calls in the same order. Two gatherers of different names are
    independent of each other, so that each may be used from a thread of its own.

    Short values take one sum, always of the same size, in which each worker has its own place: of
    all collectives, Horovod 0.19.5 remembers only such sums. On what it does not remember its
    workers have to agree anew, which takes them more than the collective itself.
    """

    def __init__(self, name: str) -> None:
        self._rank, self._size = hvd.rank(), hvd.size()
        graph = tf.Graph()
        with graph.as_default(), tf.device('/cpu:0'):
            self._line = tf.placeholder(tf.uint8, [None])
            self._places = tf.placeholder(tf.int32, [self._size, _SHORT_BYTES // 4])
            # Collectives are matched by name: explicit ones cannot drift apart between workers.
            self._sum = horovod_api.allreduce(self._places, name='parallax.%s.sum' % name)
            self._all = horovod_ops.allgather(self._line, name='parallax.%s.all' % name)
            self._vector = tf.placeholder(tf.float64, [None])
            self._total = horovod_api.allreduce(self._vector, name='parallax.%s.total' % name)
        self._session = tf.Session(graph=graph, config=session_config.of_collectives())

    def __call__(self, value: Any) -> List[Any]:
        """A list with each worker's value, anything that `json.dumps` takes, in order of rank."""
        # JSON as it is written here has neither line breaks nor zeros.
        text = (json.dumps(value, separators=(',', ':')) + '\n').encode('utf-8')
        line = np.frombuffer(text, np.uint8)
        places = np.zeros([self._size, _SHORT_BYTES], np.uint8)
        places[self._rank, : len(line)] = line[:_SHORT_BYTES]
        places = self._session.run(self._sum, {self._places: places.view(np.int32)})
        lines = [place.tobytes().rstrip(b'\0') for place in places]
        if not all(line.endswith(b'\n') for line in lines):
            lines = self._session.run(self._all, {self._line: line}).tobytes().splitlines()
        return [json.loads(line.decode('utf-8')) for line in lines]

    def sum(self, vector: Array) -> Array:
        """The sum of each worker's vector of float64, which all are of one length."""
        return self._session.run(self._total, {self._vector: vector})

    def join(self, rows: Array) -> Array:
        """The rows of each worker's array, which are of one dtype, in order of rank."""
        line = np.frombuffer(rows.tobytes(), np.uint8)
        joined = self._session.run(self._all, {self._line: line})
        return np.frombuffer(joined.tobytes(), rows.dtype)


def unfolded_zero(loss: Tensor) -> Tensor:
    """A zero that TensorFlow 1.11 does not know to be one, of the loss's dtype.

    It takes Horovod's operations for pure functions: an allreduce of a constant is folded when the
    graph is optimized, and so runs once instead of every step (proven by
    `tests/parallel/test_barrier.py`).
    """
    return tf.cast(tf.less(tf.abs(loss), -1.0), loss.dtype)


def stored(totals: Iterable[Tensor], rank: int) -> List[Operation]:
    """Has TensorFlow compute sums over the workers, vectors, on a worker that reads them nowhere.

    It drops an operation without side effects whose result nothing reads, even one that others wait
    for, and then the other workers would wait for ever (TF 1.11; proven by
    `tests/parallel/test_barrier.py`). So they are stored, by the operations returned.
    """
    operations = []
    for total in totals:
        with tf.name_scope(None), tf.device(devices.shard_device(rank)):
            variable = tf.Variable(
                tf.zeros(total.shape, total.dtype),
                trainable=False,
                collections=[],
                name='parallax/total',
            )
            operations.append(tf.assign(variable, total).op)
    return operations


def average(variables: Iterable[Variable], size: int, prefix: str) -> Operation:
    """An operation that gives variables, the same on every worker, their mean. Collective."""
    assigned = []
    for variable in variables:
        name = '%s.average.%s' % (prefix, variable.name.replace(':', '.'))
        with tf.name_scope(None):
            total = horovod_api.allreduce(tf.convert_to_tensor(variable), name=name)
            assigned.append(variable.assign(total / size).op)
    return tf.group(*assigned)


def broadcast(
    synced: Dict[str, Variable], root_rank: int, gather: Gather, prefix: str
) -> List[Operation]:
    """Operations, to be run together, that give every worker the values of one. A collective call.

    Variables come by name; what not all workers have is left alone.
    """
    everywhere = set.intersection(*map(set, gather(sorted(synced))))
    assigned = []
    for name in sorted(everywhere):
        with tf.name_scope(None):
            value = horovod_ops.broadcast(
                synced[name].value(),
                root_rank,
                name='%s.broadcast.%s' % (prefix, name.replace(':', '.')),
            )
        assigned.append(synced[name].assign(value).op)
    return assigned
