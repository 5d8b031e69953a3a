# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax server`: a process that holds shards for a job, and runs no worker."""

import os
import signal
import socket
import sys
import time
from typing import Any, List, Optional, Sequence

import click

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import private_sockets
from keras_parallax.engine.job.allowed_hosts import (
    allowed_hosts,
    checked_networks,
)
from keras_parallax.engine.job.dedicated_servers import (
    JobAssignment,
    ServerFacts,
    WaitingServer,
)
from keras_parallax.engine.job.job_privacy import host_facts
from keras_parallax.errors import PlanError

_PROBE_SECONDS = 1.0

#: A job whose hosts all fall silent has been cut off, or its machines are off.
_SILENT_SECONDS = 60

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _EndSignals:
    """Takes the signals that end the server.

    Attributes:
        by: name of the signal that came, or `None`.
    """

    def __init__(self) -> None:
        self.by: Optional[str] = None
        for number in _SIGNALS:
            signal.signal(number, self._note)
        # They were held back while the process started anew.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _note(self, number: int, frame: Any) -> None:
        del frame
        self.by = signal.Signals(number).name


@click.command()
@click.option('--port', type=click.IntRange(1, 65535), required=True, help='Port to listen on.')
@click.option('--keep', is_flag=True, help='Wait for the next job when a job is gone.')
@click.option(
    '--allow', metavar='NETWORK', multiple=True,
    help='A network or address whose hosts can connect while the server waits, and later besides '
    'the hosts of its job, which must be among them; may be given several times. By default, '
    'everybody can connect until a job comes.',
)  # fmt: skip
@click.option('--assignment', hidden=True)
def command(port: int, keep: bool, allow: Sequence[str], assignment: Optional[str]) -> None:
    """Hold shards for a job whose workers name this server.

    The workers' script says ParallaxStrategy(servers=['host:PORT', ...]). The server ends on
    SIGTERM, on Ctrl-C, and when the job is gone.

    A TensorFlow server authenticates nobody and runs any graph that it is sent. This one accepts
    connections from the hosts of its job only, where the kernel allows it; see docs/servers.md.
    """
    signals = _EndSignals()
    try:
        networks = checked_networks(allow)
    except PlanError as error:
        raise click.BadParameter(str(error), param_hint='--allow') from None
    options = _options(port, keep, networks)
    # Shards lie in host memory: a card would only be taken away from somebody else.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    if assignment is None:
        assignment = _wait_for_job(port, networks, signals)
        if assignment is not None:
            _start_anew([*options, '--assignment', assignment], signals)
    else:
        _serve(JobAssignment.from_text(assignment), port, signals)
        if keep and not signals.by:
            _say('the job is gone')
            _start_anew(options, signals)
    _say('ends: %s' % ('told by %s' % signals.by if signals.by else 'the job is gone'))
    sys.stdout.flush()
    # TensorFlow 1.11 cannot stop a server, so there is nothing to tidy up.
    os._exit(0)


def _say(sentence: str) -> None:
    click.echo('keras-parallax server: %s' % sentence)


def _options(port: int, keep: bool, networks: Sequence[str]) -> List[str]:
    allowed = [word for network in networks for word in ('--allow', network)]
    return ['--port', str(port)] + ['--keep'] * keep + allowed


def _facts(networks: Sequence[str]) -> ServerFacts:
    return ServerFacts(
        host_facts(networks),
        private_sockets.kernel_problem(one_host=False),
        private_sockets.kernel_problem(one_host=True),
    )


def _wait_for_job(port: int, networks: Sequence[str], signals: _EndSignals) -> Optional[str]:
    """Waits for a `JobAssignment`, and returns its text; `None` if told to end."""
    with socket.socket() as test:
        # gRPC would share the port with whoever has it (SO_REUSEPORT).
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            test.bind(('', port))
        except OSError as error:
            raise click.ClickException('Port %d: %s.' % (port, error.strerror)) from error
    facts = _facts(networks)
    server = WaitingServer(port, facts)
    if networks:
        # Further hosts may be those of the job that is to come.
        allowed = allowed_hosts([facts.host], facts.host.identity)._replace(one_host=False)
        problem = private_sockets.restrict_port(port, allowed)
        if problem:
            raise click.ClickException('Port %d cannot be closed to others: %s.' % (port, problem))
        private_sockets.keep_out(port, allowed)
    else:
        _say('any host can connect until a job comes, and run any graph; --allow says which may')
    _say('listening on port %d of every interface of %s' % (port, socket.gethostname()))
    while not signals.by:
        if server.came.wait(0.2):
            return server.assignment
    return None


def _start_anew(options: List[str], signals: _EndSignals) -> None:
    """Starts this process anew: another server in one process would need another port."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if signals.by:
        return
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, '-m', 'keras_parallax', 'server', *options])


def _serve(assignment: JobAssignment, port: int, signals: _EndSignals) -> None:
    """Serves a job until it is gone, or until told to end."""
    server = tf.train.Server(
        tf.train.ClusterSpec(assignment.cluster), assignment.job, assignment.task
    )
    allowed = assignment.allowed
    problem = private_sockets.restrict_port(port, allowed)
    if problem:
        # The job knows whether the kernel was going to refuse.
        if private_sockets.kernel_problem(allowed.one_host) is None:
            raise click.ClickException('Port %d cannot be closed to others: %s.' % (port, problem))
        _say('any host can connect, and run any graph: %s (docs/servers.md)' % problem)
    else:
        private_sockets.keep_out(port, allowed)
    workers = [
        address
        for job, addresses in sorted(assignment.cluster.items())
        if job != assignment.job
        for address in addresses
    ]
    _say('serves a job of %d workers' % len(workers))
    contact = probe.Contact(_SILENT_SECONDS, time.monotonic())
    while not signals.by and not contact.is_gone(_best_answer(workers), time.monotonic()):
        time.sleep(_PROBE_SECONDS)
    del server


def _best_answer(workers: List[str]) -> str:
    """`ANSWERS` if a worker does, else `SILENT` if one may be alive, else `GONE`."""
    worst = probe.GONE
    for number, address in enumerate(list(workers)):
        answer = probe.probe(address)
        if answer == probe.ANSWERS:
            # Ask the same one first the next time.
            workers.insert(0, workers.pop(number))
            return answer
        if answer == probe.SILENT:
            worst = answer
    return worst
