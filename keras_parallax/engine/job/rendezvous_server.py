# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The store of keys and values where Horovod's workers meet, if no `horovodrun` keeps it."""

import socket
import threading
import time
from typing import Mapping, MutableMapping, Optional

from keras_parallax.compat.horovod_api import hvd, rendezvous_store
from keras_parallax.engine.job import schedulers
from keras_parallax.errors import StackError

#: Workers of one job may be started minutes apart, as where an image is not on every host yet.
WAIT_SECONDS = 600

#: The socket at which rank 0's store listens, if this process keeps it.
listener: Optional[socket.socket] = None


def join(environ: MutableMapping[str, str]) -> None:
    """Has a process that a scheduler has started meet the other workers, before Horovod does.

    Rank 0 keeps the store from now on; others wait until it is there.

    Args:
        environ: the process's environment, a mapping, which gets the variables of `horovodrun`.

    Raises:
        StackError: Horovod was initialized before, or rank 0's store cannot be reached.
    """
    found = schedulers.variables(environ)
    if not found:
        return
    if _is_initialized():
        check_met(environ)
    rank, address = found['HOROVOD_RANK'], found['HOROVOD_GLOO_RENDEZVOUS_ADDR']
    port = int(found['HOROVOD_GLOO_RENDEZVOUS_PORT'])
    if rank == '0':
        _serve(port)
    else:
        _await(address, port, rank)
    environ.update(found)


def check_met(environ: Mapping[str, str]) -> None:
    """Refuses a process that Horovod takes for the only one, though a scheduler has started others.

    Args:
        environ: the process's environment, a mapping.

    Raises:
        StackError: it is one.
    """
    found = schedulers.variables(environ)
    if found:
        raise StackError(
            'Rank %s of %s was started by Slurm or Kubernetes, but hvd.init() came first, and by '
            'that each trains alone. Make a ParallaxStrategy before it.'
            % (found['HOROVOD_RANK'], found['HOROVOD_SIZE'])
        )


def is_on_loopback(environ: Mapping[str, str]) -> bool:
    """Whether all workers meet on one host, and know the store by an address of the loopback."""
    address = environ.get('HOROVOD_GLOO_RENDEZVOUS_ADDR', '')
    return address == 'localhost' or address.startswith('127.')


def _is_initialized() -> bool:
    try:
        hvd.rank()
    except ValueError:
        return False
    return True


def _serve(port: int) -> None:
    global listener
    try:
        server = rendezvous_store(port)
        listener = server.socket
    except OSError as error:
        raise StackError(
            'Rank 0 could not open port %d, where the workers meet: %s. Name another by '
            'HOROVOD_GLOO_RENDEZVOUS_PORT on every worker.' % (port, error)
        ) from error
    threading.Thread(target=server.serve_forever, name='rendezvous', daemon=True).start()


def _await(address: str, port: int, rank: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            socket.create_connection((address, port), timeout=4).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise StackError(
                    'Rank %s has waited in vain for rank 0 at %s, port %d: %s. See what rank 0 '
                    'prints, and whether this host may connect to it there.'
                    % (rank, address, port, error)
                ) from error
            time.sleep(0.5)
