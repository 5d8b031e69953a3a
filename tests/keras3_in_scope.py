# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A plugin of pytest: each test of Keras 3 runs in the scope of one strategy."""

import pytest

import keras_parallax as kp

_strategy = kp.ParallaxStrategy()


@pytest.fixture(autouse=True)
def scope():
    """Opens the scope."""
    with _strategy:
        yield
