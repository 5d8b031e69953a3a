# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Inputs that are made from shapes: of any size, valid ids, more cautious with each try."""

import numpy as np
import pytest

from keras_parallax.checkpoint.sample_inputs import InputSpec, made_inputs


@pytest.mark.parametrize('shape, expected', [
    ((None, 3), (8, 3)),
    ((2, 3), (2, 3)),
    ((None, None, 4), (8, 5, 4)),
    ((), (8,)),
    ((None,), (8,)),
])  # fmt: skip
def test_a_dimension_of_any_size_gets_one(shape, expected):
    (array,) = next(made_inputs([InputSpec(shape, 'float32')]))
    assert array.shape == expected and array.dtype == np.float32


def test_later_tries_are_larger_where_any_size_will_do():
    sizes = [arrays[0].shape[1] for arrays in made_inputs([InputSpec((None, None), 'float32')])]
    assert sizes[:3] == [5, 32, 224]


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'int32', 'int64'])
def test_where_rows_are_looked_up_all_numbers_are_ids(dtype):
    for arrays in made_inputs([InputSpec((None, 50), dtype)], rows=7):
        assert arrays[0].dtype == np.dtype(dtype)
        assert set(arrays[0].flat) <= set(range(7))


def test_the_last_tries_look_up_the_first_row_alone():
    *_, last = made_inputs([InputSpec((None, 50), 'float32')], rows=7)
    assert not last[0].any()


def test_what_is_made_is_the_same_each_time_and_differs_between_inputs():
    specs = [InputSpec((None, 9), 'float32')] * 2
    once, again = next(made_inputs(specs)), next(made_inputs(specs))
    for first, second in zip(once, again):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(*once)


def test_strings_and_truths_are_made_too():
    texts, truths = next(made_inputs([InputSpec((None, 2), 'string'), InputSpec((4,), 'bool')]))
    assert texts.shape == (8, 2) and all(text.isdigit() for text in texts.flat)
    assert truths.shape == (4,) and truths.dtype == bool
