# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Arrays, and what they lie in: tuples, lists and dicts, one in the other."""

from typing import Any, Callable, List

from keras_parallax.data import conversion
from keras_parallax.errors import DataError


def mapped(
    function: Callable[[Any], Any], data: Any, is_array: Callable[[Any], bool] = lambda data: False
) -> Any:
    """The same structure, with what a function makes of each array in it; `None` stays.

    Args:
        function: the function.
        data: the structure.
        is_array: function of a list, or of what else is in the structure: whether it is an array.
    """
    if data is None:
        return None
    if is_array(data):
        return function(data)
    if isinstance(data, dict):
        return {name: mapped(function, value, is_array) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        kind = list if isinstance(data, list) else tuple
        return kind(mapped(function, value, is_array) for value in data)
    return function(data)


def leaves(data: Any) -> List[Any]:
    """The arrays of a structure, a list."""
    found: List[Any] = []
    mapped(found.append, data)
    return found


def as_arrays(data: Any) -> Any:
    """The same structure, with what NumPy can take rows of for everything in it.

    A list of numbers or strings is one array, and a list of such lists is a list of arrays, as in
    Keras. Columns of a frame that are no array together become a dict of arrays.

    Raises:
        DataError: something is no array, and nothing like one, or has values that are missing.
    """
    if conversion.is_frame(data):
        data = conversion.columns_of(data)
    elif conversion.is_list_of_values(data):
        if any(isinstance(item, list) for item in data):
            return list(map(conversion.as_rows, data))
        return conversion.as_rows(data)
    return mapped(conversion.as_rows, data, is_array=conversion.is_list_of_values)


def count_of(data: Any) -> int:
    """How many samples the arrays of a structure have.

    Raises:
        DataError: they have unequal numbers, or there is no array.
    """
    counts = sorted({array.shape[0] for array in leaves(data)})
    if not counts:
        raise DataError('There are no arrays to share.')
    if len(counts) > 1:
        raise DataError(
            'All arrays have a row for each sample, but they have %s rows.'
            % ' and '.join(map(str, counts))
        )
    return counts[0]
