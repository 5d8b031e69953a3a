# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Why a process ends, for the other workers: by which exception, or by what `sys.exit` was given.

Python asks `sys.excepthook` to show an exception, but a script may have a hook of its own, and
nobody is asked about `sys.exit`, `raise SystemExit` or an exception in a thread. A worker that
imports the package notes these, and tells the other workers if it ends before its job has begun.
"""

import atexit
import contextlib
import os
import re
import socket
import sys
from typing import Any, Mapping, Optional

from keras_parallax.compat import exit_texts, thread_errors
from keras_parallax.engine.failures import rendezvous
from keras_parallax.engine.job import launchers

#: The longest text about an error that other workers are told, characters.
LONGEST_ERROR = 300

#: What tells the processes that a worker starts from the worker: it is inherited.
_PROCESS = 'KERAS_PARALLAX_PROCESS'

#: What TensorFlow 2 says before the error itself: where in the script the operation was made.
_PLACE = re.compile(r'^Node: .*\n(?P<error>.+)', re.MULTILINE)


class _Noted:
    """What was noted in this process.

    Attributes:
        exit: what `sys.exit` or a `SystemExit` was given last, in words, or `None`.
        thread: the last exception that has ended a thread, in words, or `None`.
        has_begun: whether the process has met the other workers, or tried to.
    """

    exit: Optional[str] = None
    thread: Optional[str] = None
    has_begun = False


noted = _Noted()


def in_words(error: BaseException) -> str:
    """An exception in a line: its class, and the first line of its message.

    Example:
        ```python
        >>> in_words(KeyError('no such word'))
        "KeyError: 'no such word'"
        ```
    """
    text = str(getattr(error, 'message', None) or error).strip()
    place = _PLACE.search(text)
    line = place.group('error') if place else text.split('\n')[0]
    words = '%s: %s' % (type(error).__name__, line) if line else type(error).__name__
    return words[:LONGEST_ERROR]


def error() -> Optional[BaseException]:
    """The exception that has ended the script, or `None`.

    In a session of somebody who types, it has ended a line, and no more.
    """
    if hasattr(sys, 'ps1') or sys.flags.interactive:
        return None
    return getattr(sys, 'last_value', None)


def report() -> Mapping[str, str]:
    """What there is to tell of this process's end, in fields of a state that `diagnose` takes."""
    found = {'by_exit': noted.exit, 'in_thread': noted.thread}
    return {name: words for name, words in found.items() if words}


def install(environ: Any) -> None:
    """Has what ends this process noted, if a launcher has started it as one of several workers.

    Args:
        environ: the environment of the process, which may be changed.
    """
    if launchers.started(environ).size < 2 or _PROCESS in environ:
        return
    environ[_PROCESS] = str(os.getpid())
    sys.exit = _noting_exit(sys.exit)
    thread_errors.install(_note_thread)
    exit_texts.install(_note_exit_text)
    atexit.register(_tell_early_end, environ)


def _noting_exit(original: Any) -> Any:
    def exit(*status: Any) -> None:
        given = status[0] if status else None
        if given is not None and given != 0:
            noted.exit = ('sys.exit(%r)' % (given,))[:LONGEST_ERROR]
        original(*status)

    return exit


def _note_exit_text(text: str) -> None:
    if noted.exit is None or text not in noted.exit:  # `sys.exit` has said the same.
        noted.exit = ('raise SystemExit(%r)' % text)[:LONGEST_ERROR]


def _note_thread(error: BaseException) -> None:
    noted.thread = in_words(error)


def _tell_early_end(environ: Mapping[str, str]) -> None:
    """Tells the other workers, which wait to meet this one, that it does not come."""
    if noted.has_begun or environ.get(_PROCESS) != str(os.getpid()):
        return
    ended = error()
    why = noted.exit if ended is None else in_words(ended)
    with contextlib.suppress(OSError):  # The launcher may be gone, or it is mpirun.
        entry = {'host': socket.gethostname(), 'why': why}
        rendezvous.leave(environ, launchers.started(environ).rank, entry)
