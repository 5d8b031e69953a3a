# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the workers must agree on, and who is named if they do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.engine.step.agreement import check_agreement
from keras_parallax.errors import ModelMismatchError

REPORT = [
    ('table/embeddings', '[23, 4] float32, sparse'),
    ('out/kernel', '[20, 1] float32, dense'),
    ('optimizer', 'Adam'),
]
REPORTS = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=4)


def message_of(*reports):
    with pytest.raises(ModelMismatchError) as caught:
        check_agreement(list(reports))
    return str(caught.value)


@given(REPORTS, st.integers(1, 4))
def test_equal_reports_agree(report, ranks):
    check_agreement([list(report) for _ in range(ranks)])


@given(REPORTS, REPORTS)
def test_reports_agree_exactly_if_they_are_equal(one, other):
    if one == other:
        check_agreement([one, other])
    else:
        message_of(one, other)


def test_reports_that_went_through_json_agree():
    check_agreement([REPORT, json.loads(json.dumps(REPORT))])


def test_a_differing_value_is_told_with_the_rank_and_the_variable():
    other = REPORT[:1] + [('out/kernel', '[20, 2] float32, dense')] + REPORT[2:]
    message = message_of(REPORT, REPORT, other)
    assert 'rank 2 has out/kernel: [20, 2] float32, dense where rank 0 has out/kernel: ' in message
    assert '[20, 1]' in message


def test_a_differing_name_is_told_with_both_names():
    other = [('table_1/embeddings', REPORT[0][1])] + REPORT[1:]
    message = message_of(REPORT, other)
    assert 'rank 1 has table_1/embeddings: ' in message
    assert 'rank 0 has table/embeddings: ' in message


@pytest.mark.parametrize('here, there', [('table/e', 'table_1/e'), ('a_2/b_3/w', 'a_1/b/w')])
def test_names_that_differ_in_their_numbers_are_told_with_where_they_come_from(here, there):
    message = message_of([(here, 'x')], [(there, 'x')])
    assert 'numbers layers without a name' in message and 'name=' in message
    assert 'same order on every worker' in message
    assert 'numbers layers' not in message_of([('a/w', 'x')], [('b_1/w', 'x')])
    assert 'numbers layers' not in message_of([('a_1/w', 'x')], [('a_1/w', 'y')])


def test_a_missing_entry_is_told():
    assert 'rank 1 has nothing more where rank 0 has optimizer: Adam' in message_of(
        REPORT, REPORT[:-1]
    )


def test_an_extra_entry_is_told():
    assert 'rank 1 has optimizer: Adam where rank 0 has nothing more' in message_of(
        REPORT[:-1], REPORT
    )


def test_the_first_rank_that_differs_is_the_one_named():
    other = REPORT[:-1] + [('optimizer', 'SGD')]
    assert 'rank 1 has optimizer: SGD' in message_of(REPORT, other, other)


def test_the_message_says_what_to_do():
    message = message_of(REPORT, [])
    assert 'Build the same model' in message and 'on every worker' in message
