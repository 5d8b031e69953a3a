"""Arrays, and what they lie in: tuples, lists and dicts, one in the other."""

import numpy as np

from keras_parallax.errors import DataError


def mapped(function, data):
    """The same structure, with what a function makes of each array in it; `None` stays."""
    if data is None:
        return None
    if isinstance(data, dict):
        return {name: mapped(function, value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        kind = list if isinstance(data, list) else tuple
        return kind(mapped(function, value) for value in data)
    return function(data)


def leaves(data):
    """The arrays of a structure, a list."""
    found = []
    mapped(found.append, data)
    return found


def as_arrays(data):
    """The same structure, with an array for everything in it that is like one.

    Raises:
        DataError: something is none, or has no samples.
    """
    return mapped(_as_array, data)


def _as_array(value):
    array = np.asanyarray(value)
    if array.ndim == 0 or array.dtype == object:
        raise DataError(
            'Samples are arrays of numbers, or lists, tuples and dicts of them, not a %s%s.'
            % (type(value).__name__, '' if array.ndim == 0 else ' of objects')
        )
    return array


def count_of(data):
    """How many samples the arrays of a structure have.

    Raises:
        DataError: they have unequal numbers, or there is no array.
    """
    counts = sorted({len(array) for array in leaves(data)})
    if not counts:
        raise DataError('There are no arrays to share.')
    if len(counts) > 1:
        raise DataError(
            'All arrays have a row for each sample, but they have %s rows.'
            % ' and '.join(map(str, counts))
        )
    return counts[0]
