# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The random state that a worker owns: NumPy's, Python's, and the order of `fit`'s samples."""

import random
from typing import Any, Dict, Mapping

import numpy as np

from keras_parallax.compat import keras_api
from keras_parallax.framework_types import Array


def current() -> Dict[str, Any]:
    """The state of NumPy's and of Python's global generators, as plain data."""
    kind, keys, *rest = np.random.get_state()
    return {'numpy': [kind, keys.tolist()] + rest, 'python': random.getstate()}


def restore(state: Mapping[str, Any]) -> None:
    """Gives the global generators a state that `current` returned, also by way of JSON.

    Example:
        ```python
        >>> import random
        >>> state = current()
        >>> drawn = random.random(), np.random.random_sample()
        >>> restore(state)
        >>> drawn == (random.random(), np.random.random_sample())
        True
        ```
    """
    kind, keys, *rest = state['numpy']
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    version, words, spare = state['python']
    random.setstate((version, tuple(words), spare))


def restore_order(order: Array) -> None:
    """Lets the running `fit` shuffle on from an order of samples.

    Each epoch Keras shuffles what the epoch before has left, so the state of the generator alone
    does not tell the order of the next one (Keras 2.2.4, TF 1.11).

    Args:
        order: the numbers of the samples in the order of the last epoch. It is not used if `fit`
            has another number of samples, or does not go by their numbers.
    """
    own = keras_api.order_of_samples()
    if own is not None and own.shape == order.shape:
        own[:] = order
