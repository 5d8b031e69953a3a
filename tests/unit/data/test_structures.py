# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Arrays in tuples, lists and dicts."""

import collections

import numpy as np
import pytest

from keras_parallax.data import structures
from keras_parallax.errors import DataError

Pair = collections.namedtuple('Pair', 'ids targets')


def test_a_structure_stays_what_it_is():
    data = ({'a': [1, 2], 'b': None}, [np.zeros(2)])
    doubled = structures.mapped(lambda value: 2 * value, data[1])
    assert isinstance(doubled, list)
    assert structures.mapped(lambda value: value, data[0]['b']) is None
    assert structures.mapped(len, (np.zeros(2), np.zeros(3))) == (2, 3)
    assert structures.mapped(len, Pair(np.zeros(2), np.zeros(3))) == (2, 3)


def test_all_arrays_have_one_length():
    assert structures.count_of(({'a': np.zeros((3, 2))}, np.zeros(3))) == 3
    with pytest.raises(DataError, match='3 and 4 rows'):
        structures.count_of((np.zeros(3), np.zeros(4)))
    with pytest.raises(DataError, match='no arrays'):
        structures.count_of([])


@pytest.mark.parametrize('value', [3, {1, 2}, object()])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(DataError, match='not a ' + type(value).__name__):
        structures.as_arrays((np.zeros(3), value))


def test_lists_of_values_are_arrays_and_lists_of_lists_are_lists_of_arrays_as_in_keras():
    found = structures.as_arrays([1.5, 2])
    assert isinstance(found, np.ndarray) and found.tolist() == [1.5, 2.0]
    first, second = structures.as_arrays([[1, 2], ['a', 'b']])
    assert first.tolist() == [1, 2] and second.tolist() == ['a', 'b']
    named = structures.as_arrays({'ids': [[1, 2], [3, 4]], 'more': (['a', 'b'], np.zeros(2))})
    assert named['ids'].shape == (2, 2) and named['more'][0].tolist() == ['a', 'b']


def test_an_array_is_not_copied():
    array = np.zeros(3)
    assert structures.as_arrays((array,))[0] is array
