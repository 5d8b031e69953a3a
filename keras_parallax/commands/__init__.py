# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The command `keras-parallax`; empty, because the doctor runs where TensorFlow is missing."""
