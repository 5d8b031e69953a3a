# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax run` without the package around it, which would load TensorFlow each time."""

import sys

from keras_parallax.commands.run import __file__ as RUN

CODE = """
import importlib.util, runpy, sys
spec = importlib.util.find_spec('keras_parallax')
sys.modules['keras_parallax'] = importlib.util.module_from_spec(spec)
runpy.run_path(sys.argv.pop(1))['command']()
"""

#: The words that start the command; its arguments come after them.
COMMAND = [sys.executable, '-c', CODE, RUN]
