# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The version of keras-parallax: the one place that has it. `setup.py` reads this file alone."""

VERSION = '0.1.0'
