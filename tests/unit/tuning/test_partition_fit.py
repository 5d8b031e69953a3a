# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The search for the number of shards, on published curves and on made ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.tuning.partition_fit import Fit, choose, fit, next_count

#: Words per second by number of partitions, as published for Parallax (EuroSys 2019).
LM = {2: 62291, 4: 109056, 8: 190609, 16: 279107, 32: 299567, 64: 303882, 128: 286200}
NMT = {2: 105720, 4: 119880, 8: 128160, 16: 133080, 32: 130680}

PARTS = st.floats(0, 10, allow_nan=False)
CURVES = st.builds(Fit, PARTS, PARTS, PARTS)


def seconds(curve):
    """Time of a word, which is as good as that of a step: the batch is always the same."""
    return [(shards, 1 / speed) for shards, speed in curve.items()]


def search(measure, start, most=10**6, limit=10, least=1):
    measured = []
    while True:
        shards = next_count(measured, start, least, most, limit)
        if shards is None:
            return measured
        measured.append((shards, measure(shards)))


# --- published curves --------------------------------------------------------


def test_the_language_model_s_best_is_near_48():
    choice = choose(seconds(LM))
    assert 46 <= choice.shards <= 50


def test_the_translation_model_s_best_is_near_19():
    assert 18 <= choose(seconds(NMT)).shards <= 20


def test_a_search_on_the_language_model_doubles_to_128_and_then_halves_once():
    measured = search(lambda shards: 1 / LM[shards], start=8)
    assert [shards for shards, _ in measured] == [8, 16, 32, 64, 128, 4]
    assert 45 <= choose(measured).shards <= 52


def test_a_search_on_the_translation_model_doubles_to_32_and_then_halves_once():
    measured = search(lambda shards: 1 / NMT[shards], start=4)
    assert [shards for shards, _ in measured] == [4, 8, 16, 32, 2]
    assert 18 <= choose(measured).shards <= 20


# --- the order of measurements -------------------------------------------------


def test_a_search_halves_on_where_fewer_shards_are_faster():
    measured = search(lambda shards: float(shards), start=8)
    assert [shards for shards, _ in measured] == [8, 16, 4, 2, 1]


def test_one_server_has_nothing_to_halve():
    assert [shards for shards, _ in search(float, start=1)] == [1, 2]


def test_a_search_does_not_try_more_shards_than_rows():
    measured = search(lambda shards: 1 / shards, start=4, most=11)
    assert [shards for shards, _ in measured] == [4, 8, 11, 2]
    assert [shards for shards, _ in search(lambda shards: 1 / shards, 9, most=5)] == [5, 2]


def test_a_search_does_not_try_less_than_its_minimum():
    assert [shards for shards, _ in search(float, start=8, least=3)] == [8, 16, 4, 3]
    assert [shards for shards, _ in search(float, start=2, least=5)] == [5, 10]
    # More than there are rows cannot be.
    assert [shards for shards, _ in search(float, start=2, most=4, least=5)] == [4]


def test_a_single_row_is_measured_once():
    assert [shards for shards, _ in search(float, start=4, most=1)] == [1]


@given(st.data(), st.integers(1, 64), st.integers(1, 5000), st.integers(1, 12), st.integers(1, 99))
def test_a_search_ends_within_its_limits_and_measures_nothing_twice(
    data, start, most, limit, least
):
    measured = search(lambda shards: data.draw(st.floats(0.001, 1)), start, most, limit, least)
    tried = [shards for shards, _ in measured]
    assert 1 <= len(tried) <= limit
    assert len(set(tried)) == len(tried)
    assert all(min(least, most) <= shards <= most for shards in tried)


@given(CURVES, st.integers(1, 64), st.integers(1, 5000))
def test_a_search_brackets_the_best_of_a_curve_that_falls_and_then_rises(curve, start, most):
    tried = [shards for shards, _ in search(curve.seconds, start, most, limit=30)]
    best = curve.best(1, most)
    # A flat curve is as good anywhere.
    nearest = max(min(tried), min(max(tried), best))
    assert curve.seconds(nearest) <= curve.seconds(best) * (1 + 1e-6) + 1e-9


# --- the fit ---------------------------------------------------------------------


@given(CURVES)
def test_a_fit_finds_the_curve_that_the_measurements_lie_on(curve):
    found = fit([(shards, curve.seconds(shards)) for shards in (1, 2, 4, 8, 16, 32)])
    for shards in (1, 3, 20, 32):
        assert found.seconds(shards) == pytest.approx(curve.seconds(shards), rel=1e-6, abs=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**5), st.floats(1e-4, 100)),
        min_size=3,
        max_size=12,
        unique_by=lambda pair: pair[0],
    )
)
def test_no_part_of_a_fit_is_negative_and_the_choice_is_among_what_was_tried(measured):
    choice = choose(measured)
    assert min(choice.fit) >= 0
    tried = [shards for shards, _ in measured]
    assert min(tried) <= choice.shards <= max(tried)


@given(CURVES, st.integers(1, 40), st.integers(0, 200))
def test_the_best_whole_number_is_no_worse_than_any_other(curve, lowest, more):
    best = curve.best(lowest, lowest + more)
    assert lowest <= best <= lowest + more
    least = min(curve.seconds(shards) for shards in range(lowest, lowest + more + 1))
    assert curve.seconds(best) <= least * (1 + 1e-9) + 1e-12


def test_a_fit_of_two_numbers_is_refused():
    with pytest.raises(ValueError, match='needs measurements of 3 numbers of shards.*2, 4'):
        fit([(2, 0.1), (4, 0.2), (2, 0.3)])


def test_with_too_few_numbers_the_fastest_is_taken():
    choice = choose([(1, 0.2), (2, 0.1)])
    assert (choice.shards, choice.fit) == (2, None)
    assert 'Too few' in choice.report()


# --- the report --------------------------------------------------------------------


def test_the_report_tells_what_was_tried_the_fit_and_the_choice():
    curve = Fit(0.1, 0.4, 0.001)
    choice = choose([(shards, curve.seconds(shards)) for shards in (8, 16, 32, 4)])
    lines = choice.report().splitlines()
    assert [line.split() for line in lines[2:6]] == [
        ['4', '204.00', '204.00'],
        ['8', '158.00', '158.00'],
        ['16', '141.00', '141.00'],
        ['32', '144.50', '144.50'],
    ]
    assert lines[6] == 'Fit: t(P) = 100 + 400 / P + 1 * P milliseconds'
    assert lines[7] == 'Chosen: 20 shards a table'
