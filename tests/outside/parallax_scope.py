"""A plugin of pytest: each test runs inside the scope of a `ParallaxStrategy`, on a fresh graph."""

import pytest


@pytest.fixture(autouse=True)
def parallax_scope():
    import keras

    import keras_parallax as kp

    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        yield
