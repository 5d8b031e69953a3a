# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Packages that a process is to do without though they are installed."""

import os
import sys

#: The variable that names one.
VARIABLE = 'KERAS_PARALLAX_TEST_WITHOUT'


class _Hidden:
    """Finds no package of a name, and says so."""

    def __init__(self, name):
        self._name = name

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name.split('.')[0] == self._name:
            raise ModuleNotFoundError('No module named ' + name, name=name)


def hide(name=None):
    """Hides a package, or the one that the variable names, if any. Call it before any import."""
    name = name or os.environ.get(VARIABLE)
    if name:
        sys.meta_path.insert(0, _Hidden(name))
