"""Closes listening sockets of this process to hosts that are not allowed to connect.

TensorFlow's server listens on every interface and authenticates nobody. But its listening socket is
a file descriptor of this process, so this process can tell the kernel what to let through to it.
"""

import contextlib
import ctypes
import errno
import os
import socket
from typing import Any, Iterator, Optional

import psutil

from keras_parallax.engine.job import packet_filter
from keras_parallax.engine.job.allowed_hosts import AllowedHosts

#: Of <asm-generic/socket.h>; the module `socket` of Python lacks it.
_SO_ATTACH_FILTER = 26

#: How long `kernel_problem` waits for a connection on the loopback.
_TRIAL_SECONDS = 0.5


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
    if allowed.everybody:
        return None
    if allowed.only_this_host:
        # Linux 5.7 and newer need no privilege for this, older kernels CAP_NET_RAW.
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo')
            return None
    instructions = packet_filter.program(allowed.parsed)
    code = ctypes.create_string_buffer(packet_filter.packed(instructions))
    program = _Program(len(instructions), ctypes.cast(code, ctypes.c_void_p))
    try:
        # Since June 2026, and in older kernels to which this was carried back, CAP_NET_ADMIN is
        # needed ("tcp: restrict SO_ATTACH_FILTER to priv users").
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
    except OSError as error:
        return _in_words(error)
    return None


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


def _sockets_on(port: int) -> Iterator[socket.socket]:
    """Duplicates of this process's TCP sockets on a local port, each closed after its turn."""
    process: Any = psutil.Process()
    # psutil 6 renamed it.
    connections = getattr(process, 'net_connections', None) or process.connections
    found = []
    with contextlib.suppress(psutil.Error):  # /proc may be hidden; `restrict_port` says so then.
        found = connections('tcp')
    for one in found:
        if one.laddr.port != port or one.fd < 0:
            continue
        with contextlib.suppress(OSError):  # It may have been closed since.
            with socket.socket(one.family, one.type, fileno=os.dup(one.fd)) as made:
                # Another socket may have taken the place of one that was closed.
                if made.getsockname()[1] == port:
                    yield made


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
        problem = restrict(listener, AllowedHosts((friend,), one_host))
        if problem:
            return problem
        port = listener.getsockname()[1]
        if not _connects(friend, port):
            return 'the kernel lets nobody connect to a socket that is closed to others'
        if not one_host and _connects(stranger, port):
            return 'the kernel takes a filter and does not apply it'
    return None


def _connects(source: str, port: int) -> bool:
    try:
        socket.create_connection(('127.0.0.1', port), _TRIAL_SECONDS, (source, 0)).close()
        return True
    except OSError:
        return False
