# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers made for rows of tables, for both Keras packages."""

from typing import Any, Dict, List

from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.late_package import class_of
from keras_parallax.optimizers.by_row import LazyAdam, RowwiseAdagrad

__all__ = ['LazyAdam', 'RowwiseAdagrad']


def classes_of(package: KerasPackage) -> Dict[str, Any]:
    """What a `KerasPackage` has to know to read models with optimizers of ours: classes by name."""
    return {name: class_of(globals()[name], package) for name in __all__}


def __dir__() -> List[str]:
    return list(__all__)
