# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One module for each optimizer: it holds all that the engine knows of the optimizer.

A module has the optimizer's row formula once, on tensors, and a `KnownOptimizer`. The latter says
as data how each family of classes (Keras 2.2.4, `OptimizerV2`, `tf.train`) gets the hyperparameters
of the formula, names its slots, and treats rows. Where two families compute in another order, or
have epsilon in another place, the module has a formula for each. `CONTRIBUTING.md` says how to add
an optimizer.
"""

from typing import Any, Optional

from keras_parallax.engine.updates.optimizers import (
    adadelta,
    adagrad,
    adagrad_da,
    adam,
    adamax,
    ftrl,
    lion,
    nadam,
    proximal,
    rmsprop,
    rowwise_adagrad,
    sgd,
)
from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    RowRule,
    RowsOfKeras3,
    RowsOfTensorFlow,
    RowsOfV2,
)

__all__ = ['KnownOptimizer', 'RowRule', 'RowsOfKeras3', 'RowsOfTensorFlow', 'RowsOfV2']

#: All that is known. This is the one list to which a new optimizer is added.
KNOWN_OPTIMIZERS = tuple(
    module.KNOWN
    for module in (
        adadelta,
        adagrad,
        adagrad_da,
        adam,
        adamax,
        ftrl,
        lion,
        nadam,
        proximal,
        rmsprop,
        rowwise_adagrad,
        sgd,
    )
)

_KERAS = {name: rule for known in KNOWN_OPTIMIZERS for name, rule in known.keras.items()}
_OPTIMIZER_V2 = {name: of for known in KNOWN_OPTIMIZERS for name, of in known.optimizer_v2.items()}
_TENSORFLOW = {name: rows for known in KNOWN_OPTIMIZERS for name, rows in known.tensorflow.items()}
_KERAS_3 = {name: of for known in KNOWN_OPTIMIZERS for name, of in known.keras3.items()}


def rule_of(name: str) -> Optional[RowRule]:
    """The `RowRule` of a class of Keras 2.2.4 or of `kp.optimizers`, by its name, if it has one."""
    return _KERAS.get(name)


def rows_of_v2(cls: type, optimizer: Any) -> Optional[RowsOfV2]:
    """The `RowsOfV2` of an `OptimizerV2`, one of Keras's own or of `kp.optimizers`, if it has one.

    Args:
        cls: the class of the optimizer, without our wrapper.
        optimizer: the optimizer.
    """
    if hasattr(cls, 'rows_of_v2'):
        return cls.rows_of_v2.__get__(optimizer)()
    return _OPTIMIZER_V2[cls.__name__](optimizer) if cls.__name__ in _OPTIMIZER_V2 else None


def rows_of_keras3(name: str, optimizer: Any) -> Optional[RowsOfKeras3]:
    """The `RowsOfKeras3` of an optimizer of Keras 3, if it has one.

    Args:
        name: the name of its class, without our wrapper.
        optimizer: the optimizer, or what has its options as attributes.
    """
    return _KERAS_3[name](optimizer) if name in _KERAS_3 else None


def rows_of_tensorflow(name: str) -> Optional[RowsOfTensorFlow]:
    """The `RowsOfTensorFlow` of one of TensorFlow's own classes, by its name, if it has one."""
    return _TENSORFLOW.get(name)
