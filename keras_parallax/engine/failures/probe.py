# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether somebody still listens at an address."""

import socket

ANSWERS, GONE, SILENT = 'answers', 'gone', 'silent'


def probe(address: str, seconds: float = 2) -> str:
    """Tries to connect to an address.

    Args:
        address: `'host:port'`.
        seconds: how long to try.

    Returns:
        `ANSWERS`; `GONE`: its host says that nobody listens; `SILENT`: its host says nothing,
        or is not known.
    """
    host, port = address.rsplit(':', 1)
    try:
        socket.create_connection((host, int(port)), seconds).close()
    except ConnectionRefusedError:
        return GONE
    except OSError:
        return SILENT
    return ANSWERS


class Contact:
    """Judges from repeated probes whether somebody who has answered once is gone.

    Who is refused twice in a row is gone, as its process has ended; who is silent may be behind
    a slow network, and is given time.

    Args:
        silent_seconds: how long it may be silent.
        now: the time, in seconds.
    """

    def __init__(self, silent_seconds: float, now: float) -> None:
        self._silent_seconds, self._heard, self._refusals = silent_seconds, now, 0

    def is_gone(self, answer: str, now: float) -> bool:
        """Takes note of a probe's answer at a time; whether it is gone by now."""
        self._refusals = self._refusals + 1 if answer == GONE else 0
        if answer == ANSWERS:
            self._heard = now
        return self._refusals > 1 or now - self._heard > self._silent_seconds
