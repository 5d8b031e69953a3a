# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The text with which `SystemExit` ends a process, of which Python tells nobody but its reader."""

import contextlib
import sys
import threading
from typing import Any, Callable


def install(note: Callable[[str], None]) -> None:
    """Has the text of a `SystemExit` that ends this process noted.

    Python writes it to the standard error stream itself. It is what is written to this stream with
    no function of Python running, in the main thread, and without an exception to show
    (CPython 3.6 to 3.13; `tests/unit/compat/test_exit_texts.py`).

    Args:
        note: function that takes the text.
    """
    stderr: Any = sys.stderr
    original = getattr(stderr, 'write', None)
    if original is None:
        return

    def write(text: Any) -> Any:
        if sys._getframe().f_back is None and _is_last(text):
            note(text.strip())
        return original(text)

    # A stream of another kind may keep its methods as they are.
    with contextlib.suppress(AttributeError):
        stderr.write = write


def _is_last(text: Any) -> bool:
    return (
        isinstance(text, str)
        and bool(text.strip())
        and threading.current_thread() is threading.main_thread()
        and getattr(sys, 'last_value', None) is None
    )
