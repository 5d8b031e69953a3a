# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Quantities as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.errors import PlanError
from keras_parallax.planning.units import (
    bandwidth_in_words,
    numbered,
    parse_bandwidth,
    parse_size,
    seconds_in_words,
    size_in_words,
)


@pytest.mark.parametrize(
    'text, rate',
    [
        ('100Gbit', 12.5e9),
        ('10 Gbit/s', 1.25e9),
        ('200mbit', 25e6),
        ('200 Mbps', 25e6),
        ('1.25GB/s', 1.25e9),
        ('8bit', 1),
        ('3 bytes', 3),
    ],
)
def test_a_bandwidth_is_bits_or_bytes_per_second(text, rate):
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize('text', ['', '10', '10G', '10Gb', 'fast', '0Gbit', '-1Gbit', 10, None])
def test_what_is_no_bandwidth_is_refused_with_an_example(text):
    with pytest.raises(PlanError, match="such as '10Gbit' or '1.25GB', but ") as caught:
        parse_bandwidth(text)
    assert repr(text) in str(caught.value)


@given(st.integers(1, 999), st.sampled_from(['bit', 'kbit', 'Mbit', 'Gbit', 'Tbit']))
def test_a_bandwidth_in_words_reads_back(number, unit):
    text = '%d %s/s' % (number, unit)
    assert bandwidth_in_words(parse_bandwidth(text)) == text


@pytest.mark.parametrize(
    'seconds, words', [(0, '0 us'), (2e-6, '2 us'), (0.0015, '1.5 ms'), (2.5, '2.5 s')]
)
def test_times_in_words(seconds, words):
    assert seconds_in_words(seconds) == words


@given(st.floats(0, 1e18))
def test_a_size_in_words_is_below_the_next_unit(count):
    number, unit = size_in_words(count).split()
    assert float(number) < 1024 or unit == 'PiB'


@pytest.mark.parametrize(
    'text, size',
    [('64GiB', 64 * 2**30), ('16 GB', 16e9), ('1.5kB', 1500), ('10 bytes', 10), ('7b', 7)],
)
def test_a_size_is_bytes_by_thousands_or_with_an_i_by_1024(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize('text', ['', '64', '64G', '0GB', '8iB', '-1GB', 'large', 64, None])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(PlanError, match="such as '64GiB' or '16GB', but ") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    'numbers, words',
    [
        ([3], 'server 3'),
        ([0, 1], 'servers 0, 1'),
        ([0, 1, 2, 5, 7, 8, 9], 'servers 0-2, 5, 7-9'),
        (range(0, 40, 2), '20 servers'),
    ],
)
def test_numbers_are_told_by_ranges_or_counted_if_they_are_many(numbers, words):
    assert numbered('server', list(numbers)) == words
