# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Layers that are of one Keras package or the other, whichever a script uses."""

from typing import Any, Sequence

from keras_parallax.compat import keras_api
from keras_parallax.compat.late_package import LatePackage
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Tensor


class LateLayer(LatePackage):
    """A layer of ours. A class says what it derives from, and what it takes."""

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Calls the layer on tensors of its package's models.

        Args:
            inputs: a tensor, or a list of tensors.
            *args: as Keras's layers take them.
            **kwargs: as Keras's layers take them.

        Returns:
            A tensor.

        Raises:
            PlanError: a tensor is of the other package, or `check_inputs` says so.
        """
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        for tensor in given:
            package = keras_api.package_of_tensor(tensor)
            if package is not None and package.name != self._package.name:
                raise PlanError(
                    'The layer %s is one of %s, but it was called on a tensor of %s; make it with '
                    'keras=%r.' % (self.name, self._package.name, package.name, package.name)
                )
        self.check_inputs(given)
        return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs: Sequence[Tensor]) -> None:
        """Raises `PlanError` if the layer does not take a list of tensors.

        It is called before Keras has seen them: Keras 2.15 wraps errors of `call`.
        """
