# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The TensorFlow servers of a job: one in each worker process, found over Horovod, and others."""

import os
import socket
import uuid
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import psutil

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices, launchers
from keras_parallax.engine.job.collectives import Gather
from keras_parallax.engine.job.devices import WORKER_JOB
from keras_parallax.errors import ParallaxError, PlanError
from keras_parallax.framework_types import Config, Server
from keras_parallax.logs import logger

#: How often to pick other ports when some worker's free port was taken before its server had it.
_ATTEMPTS = 5


def own_address(
    environ: Mapping[str, str], addresses_of: Callable[[Optional[str]], List[str]], hostname: str
) -> str:
    """The address at which the other workers of the job reach this one.

    It is the IPv4 address of the interface that Horovod's Gloo or MPI uses; where `mpirun` was told
    of none, it is the host's name. An interface without such an address is a `ParallaxError`.
    """
    interface, address = launchers.own_interface(environ, addresses_of)
    if interface is None:
        return hostname
    if address is None:
        raise ParallaxError(
            'Horovod uses network interface %s of host %s, which has no IPv4 address; choose '
            'another with horovodrun --network-interface, or mpirun --mca btl_tcp_if_include.'
            % (interface, hostname)
        )
    return address


def find_own_address() -> str:
    """The `own_address` of this process."""
    return own_address(os.environ, _addresses_of, socket.gethostname())


def _addresses_of(interface: Optional[str]) -> List[str]:
    return [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if interface in (None, name) and entry.family == socket.AF_INET
    ]


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


class Started(NamedTuple):
    """The servers of a job.

    Attributes:
        server: this process's `tf.train.Server`, which knows the addresses of all others.
        server_job: TensorFlow's job name of the dedicated servers.
        cluster: dict from TensorFlow's job names to lists of addresses.
    """

    server: Server
    server_job: str
    cluster: Dict[str, List[str]]


def start_servers(
    rank: int, config: Config, gather: Gather, address: str, dedicated: Sequence[str] = ()
) -> Started:
    """Starts this process's server. A collective call.

    Args:
        rank: this process's rank.
        config: the `tf.ConfigProto` of the server.
        gather: the job's collective of that name.
        address: of this host, at which the others reach it.
        dedicated: addresses, with ports, of the dedicated servers.

    Raises:
        ParallaxError: a worker's server could not be started, for instance because each time
            another process took its port.
        PlanError: a worker is to use a graphics card that is not there.
    """
    # A server that serves another job has other devices, so the two can never be mistaken.
    server_job = 'server_%s' % gather(uuid.uuid4().hex[:12])[0]
    for _ in range(_ATTEMPTS):
        tasks = {WORKER_JOB: gather('%s:%d' % (address, _free_port(address)))}
        if dedicated:
            tasks[server_job] = list(dedicated)
        server: Server = None
        problem: Optional[str] = None
        no_card: Optional[str] = None
        try:
            server = tf.train.Server(tf.train.ClusterSpec(tasks), WORKER_JOB, rank, config=config)
        except tf.errors.OpError as error:
            problem = 'rank %d at %s: %s' % (rank, tasks[WORKER_JOB][rank], error.message)
            no_card = devices.card_error(config, error, rank, socket.gethostname())
        of_ranks = gather([problem, no_card])
        for _, refusal in of_ranks:
            if refusal:
                raise PlanError(refusal)
        problems = [problem for problem, _ in of_ranks if problem]
        if not problems:
            break
    else:
        raise ParallaxError(
            'TensorFlow could not start a server, at ports that were free just before: %s.'
            % '; '.join(problems)
        )
    logger.debug('rank %d has a server; those of all workers: %s', rank, tasks[WORKER_JOB])
    return Started(server, server_job, tasks)
