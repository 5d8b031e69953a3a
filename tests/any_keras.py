"""The Keras package of tests for which one is as good as the other; importing this imports it."""

from frameworks import KERAS_PACKAGES, keras_module

keras = keras_module(KERAS_PACKAGES[0])
