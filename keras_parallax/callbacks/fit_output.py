# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Keras's callbacks write and print in `fit`: rank 0 does it for all workers that would.

Workers that write to one path spoil each other's files: lines of a log overlap, and the events of a
TensorBoard can no longer be read. So a callback that writes acts on rank 0 alone where rank 0 has
the same one with the same path; a path that has the rank in it is a wish for a log of each worker.
"""

import os
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from keras_parallax.callbacks.callback_code import acts_on_training, name_of
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.framework_types import Callback

#: Where Keras's callbacks write that do nothing else.
_WRITERS = {
    'CSVLogger': lambda callback: _place(callback.filename),
    'RemoteMonitor': lambda callback: callback.root + callback.path,
    'TensorBoard': lambda callback: _place(callback.log_dir),
}


#: What those speak of that print if their `verbose` says so.
_PRINTERS = {
    'EarlyStopping': lambda callback: callback.monitor,
    'LearningRateScheduler': lambda callback: name_of(callback),
    'ModelCheckpoint': lambda callback: _place(callback.filepath),
    'ReduceLROnPlateau': lambda callback: callback.monitor,
}


#: Where Keras has them; Keras 2.15 has those for graphs beside the others, Keras 2.3 a folder.
_MODULES = [
    inside + '.callbacks' + module
    for inside in generation.KERAS_PACKAGES.values()
    for module in ('', '_v1', '.callbacks', '.tensorboard_v1')
]


#: Starts the names of the modules in which Keras 3 has them.
_OF_KERAS_3 = 'keras.src.callbacks.'


def _place(path: Any) -> str:
    # Workers may be in folders of their own.
    return os.path.abspath(str(path))


def output_of(callback: Callback) -> Optional[str]:
    """What a callback writes or prints, where another worker may do it for this one.

    It is a string, equal for callbacks that write to the same place or print the same, or `None` if
    it does neither, or more than that.

    Example:
        ```python
        >>> import keras
        >>> output_of(keras.callbacks.EarlyStopping('loss', verbose=1))
        'EarlyStopping: loss'
        >>> output_of(keras.callbacks.EarlyStopping('loss')) is None
        True
        ```
    """
    name = _kind(callback)
    if name in _WRITERS:
        return None if acts_on_training(callback) else '%s: %s' % (name, _WRITERS[name](callback))
    if name in _PRINTERS and getattr(callback, 'verbose', False):
        return '%s: %s' % (name, _PRINTERS[name](callback))
    return None


def outputs(callbacks: Iterable[Callback]) -> List[str]:
    """What each of a list of callbacks writes or prints, a list of `output_of` without `None`."""
    return [output for output in map(output_of, callbacks) if output is not None]


def left_to(
    others: Sequence[str], callbacks: Sequence[Callback]
) -> Tuple[List[Callback], List[Callback]]:
    """Which callbacks of this worker another one stands in for, given the `outputs` of that.

    Returns those that need not act here, and those that need not print.
    """
    same = [callback for callback in callbacks if output_of(callback) in others]
    silent = [callback for callback in same if _kind(callback) in _WRITERS]
    return silent, [callback for callback in same if callback not in silent]


def _kind(callback: Callback) -> Optional[str]:
    """The name of the class of Keras's that a callback is of, or `None` if it is another."""
    for cls in type(callback).__mro__:
        known = cls.__name__ in _WRITERS or cls.__name__ in _PRINTERS
        is_of_keras = cls.__module__ in _MODULES or cls.__module__.startswith(_OF_KERAS_3)
        if is_of_keras and known:
            return cls.__name__
    return None
