# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What callbacks for both Keras packages have in common."""

from keras_parallax.compat import keras_api
from keras_parallax.framework_types import Mixin, Model


class _LateBackend(Mixin):
    """A callback that learns from its model which Keras package it serves.

    Keras 2.2.4 asks a callback for its methods only, so a callback of `tf.keras` serves both.
    """

    def set_model(self, model: Model) -> None:
        """Takes the model, and with it the backend of its package."""
        super().set_model(model)
        self.backend = keras_api.package_of(model).backend
