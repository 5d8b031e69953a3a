# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Starts dedicated servers for the tests: real `keras-parallax server` processes."""

import contextlib
import itertools
import os
import random
import socket
import subprocess
import sys
import time

#: For one that hangs; no verdict depends on how fast a server is.
LIMIT_SECONDS = 120
COMMAND = [sys.executable, '-m', 'keras_parallax', 'server']
_numbers = itertools.count()


def free_port():
    """A port of this machine that nobody has now, and none that a connection may be given."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(('', random.randint(10000, 30000)))
            return probe.getsockname()[1]


class Server:
    """A dedicated server on this machine, killed when its `with` block ends."""

    def __init__(self, port, folder, *arguments):
        self.port, self.address = port, '127.0.0.1:%d' % port
        self._log = os.path.join(str(folder), 'server-%d.log' % next(_numbers))
        with open(self._log, 'w') as file:
            self.process = subprocess.Popen(
                COMMAND + ['--port', str(port)] + list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'),
            )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def output(self):
        """What it has printed so far."""
        with open(self._log) as file:
            return file.read()

    def wait_for(self, words):
        """Waits until it has printed some words."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while words not in self.output():
            assert self.process.poll() is None and time.monotonic() < deadline, self.output()
            time.sleep(0.1)
        return self

    def wait(self):
        """Waits for its end; returns its exit code."""
        return self.process.wait(LIMIT_SECONDS)
