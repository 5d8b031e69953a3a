# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `fit` takes instead of an array of numbers."""

import numpy as np
import pytest

from keras_parallax.data import structures
from keras_parallax.errors import DataError


class Column:
    """A `Series` or a categorical, as far as it is asked: NumPy can make an array of it."""

    def __init__(self, values, dtype=object):
        self._array = np.array(values, dtype)

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)


class Frame:
    """A `DataFrame` of pandas, as far as it is asked."""

    def __init__(self, **columns):
        self._columns, self.columns, self.dtypes = columns, list(columns), None

    @property
    def values(self):
        return np.stack([np.asarray(column) for column in self._columns.values()], 1)

    def __getitem__(self, name):
        return self._columns[name]

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_a_column_of_strings_is_an_array_of_objects():
    found = structures.as_arrays({'user': Column(['a', b'b'])})['user']
    assert found.dtype == object and found.tolist() == ['a', b'b']


@pytest.mark.parametrize('values, dtype', [([1, 2], 'int64'), ([1, 2.5, np.nan], 'float64')])
def test_objects_that_are_numbers_are_an_array_of_numbers(values, dtype):
    found = structures.as_arrays(Column(values))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array(values, dtype))


def test_a_frame_of_numbers_or_of_strings_is_one_array_as_in_keras():
    numbers = Frame(age=Column([1, 2], 'int64'), rate=Column([0.5, 1.5], 'float64'))
    assert structures.as_arrays(numbers).tolist() == [[1.0, 0.5], [2.0, 1.5]]
    # Columns that may have missing values are objects together.
    assert structures.as_arrays(Frame(a=Column([1, 2]), b=Column([3, 4]))).dtype == 'int64'
    strings = structures.as_arrays({'words': Frame(a=Column(['a', 'b']), b=Column(['c', 'd']))})
    assert strings['words'].tolist() == [['a', 'c'], ['b', 'd']]


def test_a_frame_of_numbers_and_strings_is_a_dict_of_its_columns():
    frame = Frame(user=Column(['a', 'b']), age=Column([1, 2], 'int64'))
    found = structures.as_arrays(frame)
    assert list(found) == ['user', 'age'] and found['user'].tolist() == ['a', 'b']
    with pytest.raises(DataError, match=r'user, age.*dict\(frame\)'):
        structures.as_arrays([frame])


@pytest.mark.parametrize('missing', [None, np.nan])
def test_a_missing_value_among_strings_is_told_with_its_row(missing):
    with pytest.raises(DataError, match='%r, .* at row 2' % missing):
        structures.as_arrays(Column(['a', 'b', missing]))
    with pytest.raises(DataError, match='%r, .* at row 1' % missing):
        structures.as_arrays(Column([['a', 'b'], ['c', missing]]))


@pytest.mark.parametrize(
    'value, told',
    [
        ([1, 'a'], '1, a int, at row 0'),
        ({'ids': [[1], [1, 2]]}, 'unequal lengths'),
        (Column([[1], [1, 2]]), 'unequal lengths'),
        (Column(['2018-07-01'], 'datetime64[ns]'), 'dates'),
        ({'frame': Frame()}, 'without columns'),
    ],
)
def test_what_tensorflow_does_not_take_is_refused(value, told):
    with pytest.raises(DataError, match=told):
        structures.as_arrays(value)
