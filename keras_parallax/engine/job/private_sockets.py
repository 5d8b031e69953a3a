# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Closes listening sockets of this process to hosts that are not allowed to connect.

TensorFlow's server listens on every interface and authenticates nobody. But its listening socket is
a file descriptor of this process, so this process can tell the kernel what to let through to it.
"""

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import stat
import threading
import time
from typing import Iterator, Optional, Sequence

from keras_parallax.engine.job import packet_filter
from keras_parallax.engine.job.allowed_hosts import AllowedHosts
from keras_parallax.logs import logger

#: Of <asm-generic/socket.h>; the module `socket` of Python lacks it.
_SO_ATTACH_FILTER = 26

#: Of the same file.
_SO_DOMAIN = 39

#: How long `kernel_problem` waits on the loopback for a connection that is to come about, and for
#: one that is not.
_FRIEND_SECONDS, _STRANGER_SECONDS = 5, 0.3

#: Seconds between the calls of `keep_out`.
_REPETITIONS = (1, 4, 15, 50)


class _Program(ctypes.Structure):
    """`struct sock_fprog` of the kernel."""

    _fields_ = (('length', ctypes.c_ushort), ('instructions', ctypes.c_void_p))


def restrict(listener: socket.socket, allowed: AllowedHosts) -> Optional[str]:
    """Closes a listening socket to hosts that are not allowed.

    A connection that is accepted afterwards is restricted in the same way. `close_strangers` ends
    those that were accepted before.

    Args:
        listener: the socket.
        allowed: the hosts that may connect.

    Returns:
        Why the kernel refuses, as a clause such as `'CAP_NET_ADMIN is missing'`, or `None`.
    """
    if allowed.everybody or (allowed.only_this_host and _bind_to_loopback(listener)):
        return None
    problem = _filter(listener, allowed.parsed)
    if problem and allowed.one_host and _bind_to_loopback(listener):
        logger.warning(
            'Only this host can connect to this job; the allowed networks %s cannot, because %s.',
            ', '.join(allowed.networks),
            problem,
        )
        return None
    return problem


def _filter(listener: socket.socket, networks: Sequence[packet_filter.Network]) -> Optional[str]:
    """Has the kernel drop packets from outside some networks; returns as `restrict` does."""
    instructions = packet_filter.program(networks)
    code = ctypes.create_string_buffer(packet_filter.packed(instructions))
    program = _Program(len(instructions), ctypes.cast(code, ctypes.c_void_p))
    try:
        # Since June 2026, and in older kernels to which this was carried back, CAP_NET_ADMIN is
        # needed ("tcp: restrict SO_ATTACH_FILTER to priv users").
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
    except OSError as error:
        return _in_words(error)
    return None


def _bind_to_loopback(listener: socket.socket) -> bool:
    # Linux 5.7 and newer need no privilege for this, older kernels CAP_NET_RAW.
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')
        return True
    return False


def _in_words(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return 'the kernel requires CAP_NET_ADMIN to filter connections'
    if error.errno in (errno.ENOMEM, errno.EINVAL):
        return 'the list of allowed networks is too long for the kernel: %s' % error.strerror
    return 'the kernel cannot filter connections: %s' % error.strerror


def restrict_port(port: int, allowed: AllowedHosts) -> Optional[str]:
    """Restricts the sockets with which this process listens on a port, as `restrict` does."""
    problem: Optional[str] = 'this process does not find its own listening socket'
    for listener in _sockets_on(port):
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            problem = restrict(listener, allowed)
            if problem:
                return problem
    return problem


def close_strangers(port: int, allowed: AllowedHosts) -> None:
    """Ends connections to a port of this process from hosts that are not allowed."""
    if allowed.everybody:
        return
    for connection in _sockets_on(port):
        with contextlib.suppress(OSError):  # It listens, or the other side has ended it.
            if not allowed.admit(connection.getpeername()[0]):
                connection.shutdown(socket.SHUT_RDWR)


def keep_out(port: int, allowed: AllowedHosts) -> None:
    """Calls `close_strangers` now, and in a thread for as long as late connections may come.

    A connection of which the kernel had heard before the port was closed may become complete, and
    be accepted, as long as the kernel repeats its answer: 63 s (`tcp_synack_retries` of Linux).
    """
    close_strangers(port, allowed)
    if not allowed.everybody:
        threading.Thread(target=_keep_out, args=[port, allowed], daemon=True).start()


def _keep_out(port: int, allowed: AllowedHosts) -> None:
    for seconds in _REPETITIONS:
        time.sleep(seconds)
        close_strangers(port, allowed)


def _sockets_on(port: int) -> Iterator[socket.socket]:
    """Duplicates of this process's TCP sockets on a local port, each closed after its turn."""
    for name in os.listdir('/proc/self/fd'):
        with contextlib.suppress(OSError):  # It is no TCP socket, or has been closed since.
            duplicate = os.dup(int(name))
            try:
                found = _tcp_socket(duplicate)
            except OSError:
                os.close(duplicate)
                raise
            with found:
                if found.getsockname()[1] == port:
                    yield found


def _tcp_socket(descriptor: int) -> socket.socket:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError(errno.ENOTSOCK, 'not a socket')
    # Python 3.6 does not find out the family by itself.
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
    try:
        family, kind = (
            probe.getsockopt(socket.SOL_SOCKET, option) for option in (_SO_DOMAIN, socket.SO_TYPE)
        )
    finally:
        probe.detach()
    if family not in (socket.AF_INET, socket.AF_INET6) or kind != socket.SOCK_STREAM:
        raise OSError(errno.EINVAL, 'not a TCP socket')
    return socket.socket(family, socket.SOCK_STREAM, fileno=descriptor)


def kernel_problem(one_host: bool) -> Optional[str]:
    """Why this process cannot close a listening socket, as `restrict` says it, or `None`.

    It closes one and tries to connect to it.

    Args:
        one_host: whether to close it to all other hosts, or to all but some addresses.
    """
    # On the loopback, every host has further addresses to connect from.
    friend, stranger = '127.0.0.1', '127.0.0.2'
    with socket.socket() as listener:
        listener.bind(('', 0))
        listener.listen(8)
        if one_host:
            problem = restrict(listener, AllowedHosts((), (), True))
        else:
            problem = _filter(listener, [ipaddress.ip_network(friend)])
        if problem:
            return problem
        port = listener.getsockname()[1]
        if not _connects(friend, port, _FRIEND_SECONDS):
            return 'the kernel lets nobody connect to a socket that is closed to others'
        if not one_host and _connects(stranger, port, _STRANGER_SECONDS):
            return 'the kernel takes a filter and does not apply it'
    return None


def _connects(source: str, port: int, seconds: float) -> bool:
    try:
        socket.create_connection(('127.0.0.1', port), seconds, (source, 0)).close()
        return True
    except OSError:
        return False
