# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Processes beside a worker's, for systems that are not in the worker's own process alone."""

import atexit
import contextlib
import ctypes
import os
import random
import socket
import subprocess
import sys

from keras_parallax.engine.job import worker_servers as addresses

_BENCHMARKS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def start(script, *arguments, environ=None, **pipes):
    """Starts a script of the benchmarks on this host, which ends when this process does.

    Args:
        script: its file name.
        *arguments: strings.
        environ: further environment variables.
        **pipes: as `subprocess.Popen` takes them.
    """
    process = subprocess.Popen(
        [sys.executable, os.path.join(_BENCHMARKS, script), *arguments],
        env=dict(os.environ, **(environ or {})),
        preexec_fn=_die_with_parent,
        **dict({'stdin': subprocess.DEVNULL}, **pipes),
    )
    # Killed, as servers of TensorFlow are: they have no end of their own.
    atexit.register(lambda: (process.kill(), process.wait()))
    return process


def free_addresses(count):
    """So many addresses of this host with ports that are free, as `HOST:PORT`: a list."""
    address = addresses.find_own_address()
    return ['%s:%d' % (address, _free_port()) for _ in range(count)]


def _die_with_parent():
    # prctl(PR_SET_PDEATHSIG, SIGKILL), which Python has no function for.
    ctypes.CDLL(None).prctl(1, 9)


def _free_port():
    # Below those that the kernel gives to connections: until a server takes it, many are made.
    with open('/proc/sys/net/ipv4/ip_local_port_range') as file:
        first = int(file.read().split()[0])
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.randrange(1024, first)
            probe.bind(('', port))
            return port
