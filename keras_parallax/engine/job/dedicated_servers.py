"""How a dedicated server learns of the job that it is to serve, and how the job finds it.

TensorFlow 1.11 wants the addresses of all tasks when a server starts, but those of a job's workers
are known only when the job starts. So a dedicated server first waits for a job: it knows nobody,
and has a queue into which rank 0 puts an assignment, the addresses of the job. The process then
starts anew, as a task of that job on the same port. See `docs/design/dedicated-servers.md`.
"""

import json
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional

from keras_parallax.compat.tensorflow_api import abandon_session, tf
from keras_parallax.engine.failures import probe
from keras_parallax.framework_types import Operation

#: TensorFlow's names of a server that waits, and of its queue, as the servers of earlier versions
#: have them.
_WAITING, _QUEUE = 'door', 'parallax.offers'


#: How long a server may take to be there, so that it may be started together with the job.
_REACH_SECONDS = 30


#: How long it may take to start anew.
_TAKE_SECONDS = 60


_ASK_SECONDS = 5


class JobAssignment(NamedTuple):
    """The job that a server is to serve.

    Attributes:
        cluster: dict from TensorFlow's job names to lists of addresses.
        job: the job name of the dedicated servers, which no other job has.
        task: the number of the server among them.
    """

    cluster: Dict[str, List[str]]
    job: str
    task: int

    def to_text(self) -> str:
        """The assignment as a string."""
        return json.dumps(self._asdict(), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> 'JobAssignment':
        """The assignment that `to_text` has written."""
        return cls(**json.loads(text))


class WaitingServer:
    """A server that waits for a job at a port.

    Attributes:
        assignment: the text of the `JobAssignment` that came, or `None`.
        came: a `threading.Event`, set when it has.
    """

    assignment: Optional[str]

    def __init__(self, port: int) -> None:
        self.assignment, self.came = None, threading.Event()
        self._server = tf.train.Server({_WAITING: ['localhost:%d' % port]}, _WAITING, 0)
        # A thread, because no signal is handled while the main thread waits in TensorFlow.
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        with tf.Graph().as_default():
            text = _queue().dequeue()
            self.assignment = tf.Session(self._server.target).run(text).decode('utf-8')
        self.came.set()


def _queue() -> Any:
    with tf.device('/job:%s/task:0' % _WAITING):
        return tf.FIFOQueue(1, [tf.string], shared_name=_QUEUE)


def assign(cluster: Dict[str, List[str]], job: str) -> Optional[str]:
    """Tells the waiting servers of a job the job's addresses, and waits until they serve it.

    Addresses come by TensorFlow's job names, of which one is that of the dedicated servers. Returns
    what is wrong with one of them, as a sentence that names its address, or `None`.
    """
    addresses = cluster[job]
    deadline = time.monotonic() + _REACH_SECONDS
    for address in addresses:
        while probe.probe(address) != probe.ANSWERS:
            if time.monotonic() > deadline:
                return (
                    'No server answers at %s; start one there with: keras-parallax server --port '
                    '%s' % (address, address.rsplit(':', 1)[1])
                )
            time.sleep(0.2)
    for task, address in enumerate(addresses):
        with tf.Graph().as_default():
            problem = _run(address, _queue().enqueue(JobAssignment(cluster, job, task).to_text()))
        if isinstance(problem, tf.errors.InvalidArgumentError):
            return 'The server at %s serves another job.' % address
        # Another error may mean that it started anew before it could answer.
    deadline = time.monotonic() + _TAKE_SECONDS
    for task, address in enumerate(addresses):
        problem = server_problem(address, job, task)
        while problem is not None:
            if time.monotonic() > deadline:
                return '%s It was told of this job, but does not serve it.' % problem
            time.sleep(0.2)
            problem = server_problem(address, job, task)
    return None


def server_problem(address: str, job: str, task: int) -> Optional[str]:
    """Why a dedicated server does not serve a job as a task of it, or `None` if it does.

    It is a sentence that names its address.
    """
    answer = probe.probe(address)
    if answer != probe.ANSWERS:
        return 'The server at %s is gone (%s).' % (address, _IN_WORDS[answer])
    with tf.Graph().as_default(), tf.device('/job:%s/task:%d' % (job, task)):
        problem = _run(address, tf.no_op(), '/job:%s/task:%d' % (job, task))
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return 'The server at %s was started anew, so what it held is lost.' % address
    if problem is not None:
        return 'The server at %s is gone (%s).' % (address, _first_line(problem))
    return None


_IN_WORDS = {probe.GONE: 'nothing listens there', probe.SILENT: 'its host does not answer'}


def _run(address: str, operation: Operation, only: Optional[str] = None) -> Any:
    """Runs an operation by the server at an address; returns the `OpError` that it led to."""
    config = tf.ConfigProto(operation_timeout_in_ms=_ASK_SECONDS * 1000)
    if only:
        # Without it, the server would wait for every other task of its cluster.
        config.device_filters.append(only)
    session = tf.Session('grpc://' + address, graph=operation.graph, config=config)
    try:
        session.run(operation)
        return None
    except tf.errors.OpError as error:
        return error
    finally:
        abandon_session(session)


def _first_line(error: Any) -> str:
    return (error.message or type(error).__name__).splitlines()[0]
