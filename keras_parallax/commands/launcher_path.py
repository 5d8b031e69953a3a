# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where `horovodrun` is: on `PATH`, or beside this Python only. Imports only Python."""

import os
import shutil
import sys
from typing import Optional, Tuple

from keras_parallax.compat import remedies

NAME = 'horovodrun'


def found() -> Optional[str]:
    """The path of the `horovodrun` that a shell would start, or `None`."""
    return shutil.which(NAME)


def beside() -> Optional[str]:
    """The path of the `horovodrun` of this Python's environment, or `None`."""
    path = os.path.join(os.path.dirname(sys.executable), NAME)
    return path if os.access(path, os.X_OK) else None


def problem(on_path: Optional[str], own: Optional[str]) -> Optional[Tuple[str, str]]:
    """What is wrong with where `horovodrun` is.

    Args:
        on_path: what `found` says.
        own: what `beside` says.

    Returns:
        A sentence and its remedy, or `None` if nothing is wrong.
    """
    if on_path is not None and (own is None or os.path.realpath(on_path) == os.path.realpath(own)):
        return None
    if own is None:
        message = '%s is not on PATH, and not in the folder of this Python.' % NAME
        return message, (
            'Activate the environment in which Horovod is installed, or install it here: %s'
            % remedies.HOROVOD
        )
    folder = os.path.dirname(own)
    message = '%s is not on PATH.' % NAME
    if on_path is not None:
        message = '%s, which is on PATH, is not of the environment of this Python.' % on_path
    has_activate = os.path.exists(os.path.join(folder, 'activate'))
    remedy = '. %s/activate' % folder if has_activate else 'export PATH=%s:$PATH' % folder
    return message, 'Activate the environment: %s' % remedy
