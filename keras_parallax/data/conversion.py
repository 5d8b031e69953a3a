# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Arrays of what else `fit` of Keras takes: lists, columns and frames of pandas, sparse matrices.

pandas and SciPy are not needed for it: their objects are known by what they can do.
"""

from typing import Any, Set

import numpy as np

from keras_parallax.errors import DataError

_SCALARS = (str, bytes, bool, int, float, np.generic)
_TEXTS = (str, bytes)


def is_sparse(value: Any) -> bool:
    """Whether something is a sparse matrix of SciPy."""
    return hasattr(value, 'tocsr') and hasattr(value, 'shape')


def is_frame(value: Any) -> bool:
    """Whether something is a table with named columns, a `DataFrame` of pandas for instance."""
    return hasattr(value, 'columns') and hasattr(value, 'dtypes')


def is_list_of_values(value: Any) -> bool:
    """Whether something is a list of numbers or strings, or lists of them: one array for Keras."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(item, _SCALARS) or is_list_of_values(item) for item in value)


def as_rows(value: Any) -> Any:
    """Data with a row for each sample that NumPy can take rows of.

    Args:
        value: an array or what is like one: a list, a column or a frame of pandas.

    Returns:
        An array of numbers or of strings; or of a sparse matrix the same with compressed rows.

    Raises:
        DataError: it is none of these, or has values that are missing.
    """
    if is_sparse(value):
        return value.tocsr()
    if is_frame(value):
        return _of_frame(value)
    if isinstance(value, list):
        kinds = _kinds(_flat(value))
        array = _made(value, object if _are(kinds, _TEXTS) else None)
        if not (_are(kinds, _TEXTS) or array.dtype.kind in 'biufc'):
            array = _made(value, object)
    else:
        array = np.asanyarray(value)
    if array.ndim == 0:
        raise DataError(
            'Samples are arrays of numbers or strings, or lists, tuples and dicts of them, not a '
            '%s.' % type(value).__name__
        )
    if array.dtype.kind == 'T':  # Strings of NumPy 2, which TensorFlow does not take.
        array = array.astype(object)
    if array.dtype.kind in 'mM':
        raise DataError('Samples are arrays of numbers or strings, and dates are neither.')
    return _of_objects(array) if array.dtype == object else array


def columns_of(frame: Any) -> Any:
    """A dict of the columns of a frame, if these are no array together; otherwise the frame.

    Keras takes a frame for one array. Numbers and strings together are none.
    """
    columns = {name: as_rows(frame[name]) for name in frame.columns}
    kinds = {column.dtype == object for column in columns.values()}
    return columns if len(kinds) > 1 else frame


def _of_frame(frame: Any) -> np.ndarray:
    columns = [as_rows(frame[name]) for name in frame.columns]
    kinds = {column.dtype == object for column in columns}
    if len(kinds) > 1:
        raise DataError(
            'A frame with columns of numbers and columns of strings, %s, is no array; give its '
            'columns in a dict, one for each input of the model: dict(frame).'
            % ', '.join(map(str, frame.columns))
        )
    if not columns:
        raise DataError('A frame without columns has no samples.')
    array = np.asarray(getattr(frame, 'values', frame))
    return np.stack(columns, 1) if array.dtype == object else array


def _of_objects(array: np.ndarray) -> np.ndarray:
    """An array of objects that are all strings; or an array of numbers, if they all are numbers.

    Raises:
        DataError: they are of both kinds, or of another.
    """
    kinds = _kinds(array.ravel())
    if _are(kinds, _TEXTS):
        return array
    if kinds and _are(kinds, (bool, int, float, np.number, np.bool_)):
        numbers = np.array(array.tolist())
        if numbers.dtype.kind in 'biuf':
            return numbers
    if _are(kinds, (list, tuple, np.ndarray)):
        raise DataError(
            'The rows of an array have unequal lengths, or are lists in an array of objects; pad '
            'them to one length, for instance with keras.preprocessing.sequence.pad_sequences.'
        )
    items = list(enumerate(array.ravel()))
    odd = [pair for pair in items if not isinstance(pair[1], _SCALARS)]
    number, value = (odd or [pair for pair in items if not isinstance(pair[1], _TEXTS)])[0]
    raise DataError(
        'Samples are arrays of numbers or of strings, but in one of objects there is %r, a %s, at '
        'row %d. Where a value is missing, put one in its place, as fillna of pandas does.'
        % (value, type(value).__name__, number // max(1, array.size // len(array)))
    )


def _made(value: Any, dtype: Any) -> np.ndarray:
    try:
        return np.array(value, dtype)
    except ValueError as error:
        raise DataError(
            'The rows of a list have unequal lengths (%s); pad them to one length.' % error
        ) from error


def _flat(value: Any) -> Any:
    for item in value:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def _kinds(values: Any) -> Set[type]:
    return set(map(type, values))


def _are(kinds: Set[type], of: Any) -> bool:
    return all(issubclass(kind, of) for kind in kinds)
