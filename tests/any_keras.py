# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The Keras package of tests for which one is as good as the other; importing this imports it."""

from frameworks import KERAS_PACKAGES, keras_module

keras = keras_module(KERAS_PACKAGES[0])
