# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The exceptions that end threads, on every version of Python."""

import sys
import threading
from typing import Any, Callable

#: Takes an exception that has ended a thread.
Note = Callable[[BaseException], None]


def install(note: Note) -> None:
    """Has every exception that ends a thread noted, `SystemExit` apart."""
    if hasattr(threading, 'excepthook'):  # From Python 3.8 on.
        threading.excepthook = _as_hook(threading.excepthook, note)
    else:
        # Python 3.6 and 3.7 show such an exception, and have no hook
        # (`tests/unit/engine/job/test_last_words.py`).
        module: Any = threading
        module._format_exc = _as_formatter(module._format_exc, note)


def _as_hook(original: Any, note: Note) -> Any:
    def excepthook(arguments: Any) -> None:
        if arguments.exc_type is not SystemExit and arguments.exc_value is not None:
            note(arguments.exc_value)
        original(arguments)

    return excepthook


def _as_formatter(original: Any, note: Note) -> Any:
    def format_exc(*args: Any, **kwargs: Any) -> Any:
        shown = sys.exc_info()[1]
        if shown is not None:
            note(shown)
        return original(*args, **kwargs)

    return format_exc
