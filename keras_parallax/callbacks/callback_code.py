# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the code of a callback mentions: who may stop training, or change a rate or the model.

Keras lets a callback do anything to the model, and does not ask it what. Its compiled code tells
which attributes it names, which is enough to name it to the user, and to know before training which
callbacks may end an epoch early.
"""

from types import CodeType
from typing import Any, Dict

from keras_parallax.framework_types import Callback

#: The methods in which a callback may end an epoch that has batches left.
_WITHIN_EPOCH = ('on_epoch_begin', 'on_batch_begin', 'on_batch_end')


_OTHERS = ('__init__', 'on_train_begin', 'on_train_end', 'on_epoch_end')


#: What is called to change a model, to stop its training, or to wait for other workers.
_ACTS = (
    'allgather',
    'allreduce',
    'assign',
    'broadcast',
    'load_weights',
    'set_value',
    'set_weights',
    'stop_training',
)


def name_of(callback: Callback) -> str:
    """The name of a callback's class."""
    return type(callback).__name__


def mentions(callback: Callback, attribute: str) -> bool:
    """Whether the code of a callback names an attribute.

    Example:
        ```python
        >>> import keras
        >>> mentions(keras.callbacks.ReduceLROnPlateau(), 'lr')
        True
        >>> mentions(keras.callbacks.History(), 'lr')
        False
        ```
    """
    functions = list(vars(callback).values()) + list(_methods(callback).values())
    return any(_names(function, attribute) for function in functions)


def may_end_an_epoch(callback: Callback) -> bool:
    """Whether a callback may set `model.stop_training` while an epoch has batches left.

    Example:
        ```python
        >>> import keras
        >>> may_end_an_epoch(keras.callbacks.TerminateOnNaN())
        True
        >>> may_end_an_epoch(keras.callbacks.EarlyStopping())
        False
        ```
    """
    if any(_names(vars(callback).get(hook), 'stop_training') for hook in _WITHIN_EPOCH):
        return True
    methods = _methods(callback)
    # A method of a class's own that these call may be the one that stops.
    return any(hook in methods for hook in _WITHIN_EPOCH) and any(
        _names(function, 'stop_training')
        for name, function in methods.items()
        if name not in _OTHERS
    )


def acts_on_training(callback: Callback) -> bool:
    """Whether a class of the user's may do something to the model, or wait for other workers.

    Example:
        ```python
        >>> import keras
        >>> acts_on_training(keras.callbacks.EarlyStopping())
        False
        >>> class Mine(keras.callbacks.CSVLogger):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         self.model.stop_training = True
        >>> acts_on_training(Mine('log.csv'))
        True
        ```
    """
    functions = list(vars(callback).values())
    for cls in type(callback).__mro__:
        if not cls.__module__.startswith(('keras.', 'tf_keras.', 'tensorflow.')):
            functions.extend(vars(cls).values())
    return any(_names(function, attribute) for function in functions for attribute in _ACTS)


def _methods(callback: Callback) -> Dict[str, Any]:
    """What the classes of a callback define, without Keras's base class, a dict."""
    methods: Dict[str, Any] = {}
    for cls in reversed(type(callback).__mro__):
        if cls.__name__ != 'Callback':
            methods.update(vars(cls))
    return methods


def _names(function: Any, attribute: str) -> bool:
    return _code_names(getattr(function, '__code__', None), attribute)


def _code_names(code: Any, attribute: str) -> bool:
    if not isinstance(code, CodeType):
        return False
    return (
        attribute in code.co_names
        or attribute in code.co_consts
        or any(_code_names(constant, attribute) for constant in code.co_consts)
    )
