# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A plugin of pytest: each test runs inside the scope of a `ParallaxStrategy`, on a fresh graph."""

import frameworks  # noqa: F401  (graphs are built in less time)
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def parallax_scope():
    import keras

    import keras_parallax as kp

    # Some tests draw numbers in threads, and chance says how many. Without a seed the workers would
    # build the models of later tests with different values, and each keeps its own until it trains.
    np.random.seed(1337)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        yield
