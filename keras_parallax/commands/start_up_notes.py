# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Start-up notes of TensorFlow, Keras and Horovod: lines that tell a user nothing about a job."""

import re
from typing import Optional

_NOTE = re.compile(
    # TensorFlow up to 2.18: `2026-11-30 23:18:09.485929: I tensorflow/core/...cc:141] `.
    rb'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: (?:[IW] |E .*(?:cuInit|Unable to register cu))'
    # From 2.19 on, and JAX: `I0000 00:00:1796080696.192698   31701 port.cc:153] `.
    rb'|(?:[IW]\d{4} [\d:.]+ +\d+ [\w/.+-]+:\d+\] |E\d{4} .*(?:cuInit|Unable to register cu))'
    rb'|WARNING: All log messages before absl::InitializeLog\(\) is called'
    rb'|To enable the following instructions: '
    rb'|Using (?:TensorFlow|JAX|jax) backend\.?$'
)
_DEPRECATED = re.compile(rb'WARNING:tensorflow:From .*')
_PARAGRAPH = re.compile(rb'WARNING:tensorflow:$')
_OF_PYTHON = re.compile(
    rb'.*/(?:tensorflow|tensorflow_core|horovod|keras|tf_keras)/'
    rb'.*: (?:PendingDeprecation|Deprecation|Future)Warning: '
)

#: What may follow a line that has been recognized: nothing that belongs to it; an empty line or the
#: heading of instructions; their text; all lines up to an empty one; the code that Python quotes.
_NOTHING, _REST, _TEXT, _LINES, _CODE = range(5)


class StartUpNotes:
    """Recognizes the notes among the lines of one output stream, which come in their order."""

    def __init__(self) -> None:
        self._follows = _NOTHING

    def take(self, line: bytes) -> bool:
        """Whether a line, without its end, belongs to a note.

        Example:
            ```python
            >>> notes = StartUpNotes()
            >>> notes.take(b'I0000 00:00:1796080699.537632   32009 port.cc:153] oneDNN is on.')
            True
            >>> notes.take(b'Epoch 1/2')
            False
            ```
        """
        # C++ writes its notes between the lines of Python's.
        if _NOTE.match(line):
            return True
        follows, self._follows = self._follows, _NOTHING
        for pattern, then in ((_DEPRECATED, _REST), (_PARAGRAPH, _LINES), (_OF_PYTHON, _CODE)):
            if pattern.match(line):
                self._follows = then
                return True
        if follows == _REST:
            has_text = line == b'Instructions for updating:'
            self._follows = _TEXT if has_text else _NOTHING
            return has_text or not line
        if follows == _LINES:
            self._follows = _LINES if line else _NOTHING
        return follows in (_TEXT, _LINES) or follows == _CODE and line.startswith(b'  ')


def are_wanted(level: Optional[str]) -> bool:
    """Whether the value of `KERAS_PARALLAX_LOG_LEVEL`, `None` if it has none, asks for notes.

    Example:
        ```python
        >>> are_wanted('debug'), are_wanted('WARNING'), are_wanted(None)
        (True, False, False)
        ```
    """
    return (level or '').strip().upper() in ('DEBUG', 'INFO', 'NOTSET')
