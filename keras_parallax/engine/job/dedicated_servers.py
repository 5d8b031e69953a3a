# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a dedicated server learns of the job that it is to serve, and how the job finds it.

TensorFlow 1.11 wants the addresses of all tasks when a server starts, but those of a job's workers
are known only when the job starts. So a dedicated server first waits for a job: it knows nobody,
and has a queue into which rank 0 puts an assignment, the addresses of the job. The process then
starts anew, as a task of that job on the same port. See `docs/design/dedicated-servers.md`.
"""

import json
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat.tensorflow_api import abandon_session, tf
from keras_parallax.engine.failures import probe
from keras_parallax.engine.job.allowed_hosts import AllowedHosts, HostFacts
from keras_parallax.errors import ServerLostError

#: TensorFlow's names of a server that waits, and of its queue, as the servers of earlier versions
#: have them.
_WAITING, _QUEUE, _FACTS = 'door', 'parallax.offers', 'parallax.facts'


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
        allowed: the hosts that may connect to the server while it serves the job.
    """

    cluster: Dict[str, List[str]]
    job: str
    task: int
    allowed: AllowedHosts

    def to_text(self) -> str:
        """The assignment as a string."""
        return json.dumps(self._asdict(), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> 'JobAssignment':
        """The assignment that `to_text` has written."""
        fields = json.loads(text)
        addresses, networks, one_host = fields.pop('allowed')
        return cls(allowed=AllowedHosts(tuple(addresses), tuple(networks), one_host), **fields)


class ServerFacts(NamedTuple):
    """What a waiting server tells a job.

    Attributes:
        host: the `HostFacts`.
        problem: why it cannot close its port to hosts outside a job, in words, or `None`.
        loopback_problem: the same for a job of one host.
    """

    host: HostFacts
    problem: Optional[str]
    loopback_problem: Optional[str]

    @classmethod
    def from_data(cls, data: Any) -> 'ServerFacts':
        """The facts, of what JSON has made of them."""
        host, problem, loopback_problem = data
        return cls(HostFacts(*host), problem, loopback_problem)

    def problem_with(self, allowed: AllowedHosts) -> Optional[str]:
        """Why the server cannot close its port to all but the hosts that may connect, or `None`."""
        if allowed.everybody:
            return None
        return self.loopback_problem if allowed.one_host else self.problem


class WaitingServer:
    """A server that waits for a job at a port.

    Args:
        port: the port.
        facts: what it tells jobs about its host.

    Attributes:
        assignment: the text of the `JobAssignment` that came, or `None`.
        came: a `threading.Event`, set when it has.
    """

    assignment: Optional[str]

    def __init__(self, port: int, facts: ServerFacts) -> None:
        self.assignment, self.came = None, threading.Event()
        self._facts = facts
        self._server = tf.train.Server({_WAITING: ['localhost:%d' % port]}, _WAITING, 0)
        # A thread, because no signal is handled while the main thread waits in TensorFlow.
        for target in self._wait, self._tell:
            threading.Thread(target=target, daemon=True).start()

    def _tell(self) -> None:
        """Keeps the facts in a queue, from which each job that asks takes them."""
        with tf.Graph().as_default():
            put = _queue(_FACTS).enqueue(json.dumps(self._facts))
            session = tf.Session(self._server.target)
            while True:
                session.run(put)

    def _wait(self) -> None:
        with tf.Graph().as_default():
            text = _queue(_QUEUE).dequeue()
            self.assignment = tf.Session(self._server.target).run(text).decode('utf-8')
        self.came.set()


def _queue(name: str) -> Any:
    with tf.device('/job:%s/task:0' % _WAITING):
        return tf.FIFOQueue(1, [tf.string], shared_name=name)


def ask(addresses: Sequence[str]) -> List[ServerFacts]:
    """The facts of waiting servers, given their addresses. Waits until the servers are there.

    Raises:
        ServerLostError: a server is not there, or serves another job.
    """
    deadline = time.monotonic() + _REACH_SECONDS
    for address in addresses:
        while probe.probe(address) != probe.ANSWERS:
            if time.monotonic() > deadline:
                raise ServerLostError(
                    'No server answers at %s; start one there with: keras-parallax server --port '
                    '%s (this host must be among those of its --allow, if it has that)'
                    % (address, address.rsplit(':', 1)[1])
                )
            time.sleep(0.2)
    return [_ask(address, deadline) for address in addresses]


def _ask(address: str, deadline: float) -> ServerFacts:
    while True:
        with tf.Graph().as_default():
            text, problem = _run(address, _queue(_FACTS).dequeue())
        if problem is None:
            return ServerFacts.from_data(json.loads(tf.compat.as_str(text)))
        if isinstance(problem, tf.errors.InvalidArgumentError):
            raise ServerLostError('The server at %s serves another job.' % address)
        if time.monotonic() > deadline:
            raise ServerLostError(
                'The server at %s does not answer, or runs another version of keras-parallax (%s).'
                % (address, _first_line(problem))
            )


def assign(
    cluster: Dict[str, List[str]], job: str, allowed: Sequence[AllowedHosts]
) -> Optional[str]:
    """Tells waiting servers which job they are to serve, and waits until they serve it.

    Args:
        cluster: dict from TensorFlow's job names to lists of addresses.
        job: the job name of the dedicated servers.
        allowed: the hosts that may connect to each of them.

    Returns:
        What is wrong with one of them, as a sentence that names its address, or `None`.
    """
    addresses = cluster[job]
    for task, address in enumerate(addresses):
        text = JobAssignment(cluster, job, task, allowed[task]).to_text()
        with tf.Graph().as_default():
            _, problem = _run(address, _queue(_QUEUE).enqueue(text))
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
        _, problem = _run(address, tf.no_op(), '/job:%s/task:%d' % (job, task))
    if isinstance(problem, tf.errors.InvalidArgumentError):
        return 'The server at %s was started anew, so what it held is lost.' % address
    if problem is not None:
        return 'The server at %s is gone (%s).' % (address, _first_line(problem))
    return None


_IN_WORDS = {probe.GONE: 'nothing listens there', probe.SILENT: 'its host does not answer'}


def _run(address: str, fetched: Any, only: Optional[str] = None) -> Tuple[Any, Any]:
    """Runs a tensor or an operation by the server at an address.

    Returns:
        Its value, and the `OpError` that it led to or `None`.
    """
    config = tf.ConfigProto(operation_timeout_in_ms=_ASK_SECONDS * 1000)
    if only:
        # Without it, the server would wait for every other task of its cluster.
        config.device_filters.append(only)
    session = tf.Session('grpc://' + address, graph=fetched.graph, config=config)
    try:
        return session.run(fetched), None
    except tf.errors.OpError as error:
        return None, error
    finally:
        abandon_session(session)


def _first_line(error: Any) -> str:
    return (error.message or type(error).__name__).splitlines()[0]
