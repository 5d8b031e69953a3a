# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How `keras-parallax install-horovod` builds Horovod, checks it and keeps its wheel.

These modules import neither TensorFlow nor Horovod, which may be missing or broken.
"""
