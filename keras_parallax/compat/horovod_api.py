# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Horovod, and what differs between its versions."""

import ctypes
import importlib
import importlib.util
from typing import Any, Callable, Mapping

from keras_parallax.compat.installed_frameworks import horovod_ops, hvd
from keras_parallax.framework_types import Callback, Tensor


def allreduce(tensor: Tensor, name: str) -> Tensor:
    """The sum of a tensor over all workers, whatever its dtype, by the collective of that name."""
    return horovod_ops._allreduce(tensor, name=name)


def is_horovods_callback(callback: Callback, name: str) -> bool:
    """Whether a callback is one of Horovod's for Keras.

    Args:
        callback: the callback.
        name: the name of Horovod's class, as its function for both Keras packages has it.
    """
    return any(
        base.__module__ == 'horovod._keras.callbacks' and base.__name__ == name
        for base in type(callback).__mro__
    )


def connects_by_host_name(environ: Mapping[str, str]) -> bool:
    """Whether a worker tells the others the address of its host's name, and not of an interface.

    Gloo takes the interface that it is told of. Horovod that has sets of processes, as 0.28.1 has,
    tells it of none for the set of all workers (`tests/cluster/test_host_names.py`), and 0.19.5
    where `HOROVOD_GLOO_IFACE` is missing.

    Args:
        environ: the process's environment, a mapping.
    """
    if hvd is horovod_ops:  # There is no Horovod.
        return False
    by_gloo = not hvd.mpi_built() or environ.get('HOROVOD_CONTROLLER') == 'gloo'
    return by_gloo and (hasattr(hvd, 'ProcessSet') or not environ.get('HOROVOD_GLOO_IFACE'))


def rendezvous_store(port: int) -> Any:
    """The server of keys and values, listening on a port, that `horovodrun` keeps for its workers.

    Horovod's own class for it takes any free port. Its server drops a worker's address once that
    rank is connected to all; when no other asks for it, only a list of hosts would tell. Here all
    stay.

    Args:
        port: the port.

    Returns:
        An HTTP server; its `serve_forever` is to be called.
    """
    package = 'run' if importlib.util.find_spec('horovod.run') else 'runner'
    of_horovod: Any = importlib.import_module('horovod.%s.http.http_server' % package)

    class Handler(of_horovod.RendezvousHandler):
        def do_DELETE(self) -> None:
            self.send_status_code(200)

    return of_horovod.RendezvousHTTPServer(('', port), Handler, 0)


def horovod_aborts(instead: Callable[[], Any]) -> Callable[[], Any]:
    """Has a function called where Horovod would end the process because a connection broke.

    With Gloo, Horovod 0.19.5 lets an exception out of its thread when another worker has gone or
    has not answered for `HOROVOD_GLOO_TIMEOUT_SECONDS` (30), so that the C++ runtime aborts the
    process and no reason is told (`tests/parallel/test_failures.py`). `std::set_terminate` is the
    place at which C++ lets a program have its own way. Other exceptions end the process as they
    always did.

    Args:
        instead: a function, called on Horovod's thread. It must not return.

    Returns:
        A function that makes Horovod end the process again.
    """
    library = ctypes.CDLL('libstdc++.so.6')
    handler_type = ctypes.CFUNCTYPE(None)
    set_terminate = library._ZSt13set_terminatePFvvE
    set_terminate.restype, set_terminate.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    current_type = library.__cxa_current_exception_type
    current_type.restype = ctypes.POINTER(ctypes.c_void_p)

    def handle() -> None:
        # A `std::type_info` is a pointer to its virtual table and one to its name.
        type_info = current_type()
        name = ctypes.cast(type_info[1], ctypes.c_char_p).value if type_info else b''
        if name and b'gloo' in name:
            instead()
        handler_type(previous)()

    handler = handler_type(handle)
    previous = set_terminate(ctypes.cast(handler, ctypes.c_void_p))

    def restore() -> Any:
        set_terminate(previous)
        return handler  # Which keeps the handler alive for as long as it may be called.

    return restore
