# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which line of the user's script this process is in."""

import linecache
import os
import sys
from types import FrameType
from typing import Optional

#: Packages whose lines are not the script's own.
_FRAMEWORKS = frozenset(
    'contextlib horovod keras keras_parallax tensorflow tensorflow_core tf_keras'.split()
)

#: The longest text of a line that is told, characters.
_LONGEST = 80


def script_line() -> Optional[str]:
    """The line of the script that led here, as text with its place; `None` if there is none.

    Example:
        ```python
        >>> script_line().endswith('`')
        True
        ```
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get('__name__', '').split('.')[0]
        if package not in _FRAMEWORKS:
            path, number = frame.f_code.co_filename, frame.f_lineno
            text = linecache.getline(path, number).strip()
            place = '%s, line %d' % (os.path.basename(path), number)
            return '%s: `%s`' % (place, text[:_LONGEST]) if text else place
        frame = frame.f_back
    return None
