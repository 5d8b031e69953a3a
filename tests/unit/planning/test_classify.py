# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The rule that makes a variable dense or sparse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.planning.classify import (
    BY_ROW,
    DENSE,
    SPARSE,
    WHOLE_TABLE,
    VariableUse,
    classify,
)

REACHES = st.sampled_from([None, BY_ROW, WHOLE_TABLE])
USES = st.builds(
    VariableUse,
    name=st.just('table/embeddings'),
    shape=st.just((23, 4)),
    dtype=st.just('float32'),
    lookups=st.integers(0, 3),
    whole_reads=st.lists(st.sampled_from(['MatMul', 'Add', 'Enter', 'Switch']), max_size=3).map(
        tuple
    ),
    regularizer=REACHES,
    constraint=REACHES,
    on_shards=st.just(False),
)


def use(**fields):
    return VariableUse('table/embeddings', (23, 4), 'float32', **fields)


@given(USES)
def test_sparse_is_what_is_looked_up_and_never_read_whole(any_use):
    expected = SPARSE if any_use.lookups and not any_use.whole_reads else DENSE
    assert classify(any_use).kind == expected


@given(USES, REACHES, REACHES)
def test_regularizer_and_constraint_do_not_change_the_class(any_use, regularizer, constraint):
    other = any_use._replace(regularizer=regularizer, constraint=constraint)
    assert classify(other).kind == classify(any_use).kind


@given(USES)
def test_every_variable_can_be_made_dense(any_use):
    assert classify(any_use, DENSE).kind == DENSE


@given(USES)
def test_asking_for_the_class_found_anyway_changes_nothing(any_use):
    found = classify(any_use)
    assert classify(any_use, found.kind) == found


@given(USES, st.sampled_from([None, DENSE, SPARSE]))
def test_a_table_on_shards_stays_sparse_whatever_a_later_loss_reads(any_use, override):
    any_use = any_use._replace(on_shards=True)
    if any_use.lookups or any_use.whole_reads:
        assert classify(any_use, override).kind == SPARSE


def test_a_table_on_shards_says_who_reads_it_whole_and_what_follows():
    tied = use(lookups=2, whole_reads=('MatMul',), on_shards=True)
    reason = classify(tied).reason
    assert 'MatMul' in reason and 'shards' in reason and 'all of its rows are pushed' in reason
    assert classify(tied, SPARSE).reason == reason
    assert reason in classify(tied, DENSE).reason and classify(tied, DENSE).reason != reason


@pytest.mark.parametrize(
    'fields, reason',
    [
        (dict(lookups=1), 'looked up by rows in 1 place'),
        (dict(lookups=2), 'looked up by rows in 2 places'),
        (dict(whole_reads=('MatMul',)), 'read whole by MatMul'),
        (dict(whole_reads=('MatMul', 'Add', 'MatMul')), 'read whole by Add, MatMul'),
        (dict(whole_reads=('Enter',)), 'read whole by a loop'),
        (dict(whole_reads=('StatefulPartitionedCall',)), 'read whole by a function'),
        (dict(whole_reads=('RefEnter', 'RefSwitch')), 'read whole by a branch, a loop'),
        (
            dict(lookups=1, whole_reads=('MatMul',)),
            'looked up by rows and also read whole by MatMul, as tied weights are',
        ),
        (dict(), 'read whole by no operation of the loss'),
        (
            dict(lookups=1, regularizer=BY_ROW),
            'looked up by rows in 1 place; regularized by the owner',
        ),
        (
            dict(lookups=1, constraint=WHOLE_TABLE),
            'looked up by rows in 1 place; constrained by the owner of the whole table',
        ),
        (
            dict(lookups=1, regularizer=WHOLE_TABLE, constraint=BY_ROW),
            'looked up by rows in 1 place; regularized by the owner of the whole table; '
            'constrained by the owner',
        ),
    ],
)
def test_the_reason_says_how_the_loss_reads_the_variable(fields, reason):
    assert classify(use(**fields)).reason == reason


def test_the_reason_of_an_override_says_what_the_variable_would_have_been():
    reason = classify(use(lookups=2), DENSE).reason
    assert reason == 'made dense by the user (it is looked up by rows in 2 places)'


@pytest.mark.parametrize(
    'fields, why',
    [
        (dict(lookups=1, whole_reads=('MatMul',)), 'as tied weights are'),
        (dict(whole_reads=('MatMul',)), 'read whole by MatMul'),
        (dict(), 'no operation of the loss'),
    ],
)
def test_what_is_read_whole_cannot_be_made_sparse(fields, why):
    with pytest.raises(ValueError) as caught:
        classify(use(**fields), SPARSE)
    message = str(caught.value)
    assert message.startswith('table/embeddings cannot be made sparse')
    assert why in message and message.endswith('Take it out of `overrides`.')


@pytest.mark.parametrize('override', ['Sparse', '', 'auto', 1, True])
def test_an_override_that_is_no_class_is_refused_by_name(override):
    with pytest.raises(ValueError) as caught:
        classify(use(lookups=1), override)
    assert 'table/embeddings' in str(caught.value) and repr(override) in str(caught.value)
