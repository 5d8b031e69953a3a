# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which arguments of admissions and evictions are taken."""

import pytest

import keras_parallax as kp
from keras_parallax.engine.tables.id_policies import Admission, Eviction, as_policy


@pytest.mark.parametrize(
    'arguments, said',
    [
        ({}, 'needs min_count or probability'),
        ({'min_count': 1, 'probability': 1}, 'needs min_count or probability'),
        ({'min_count': 0}, 'min_count must be an integer from 1, but got 0'),
        ({'min_count': 2.5}, 'min_count must be an integer from 1, but got 2.5'),
        ({'min_count': True}, 'min_count must be an integer from 1, but got True'),
        ({'probability': 0}, 'probability must be greater than 0 and at most 1, but got 0'),
        ({'probability': 1.1}, 'probability must be greater than 0 and at most 1, but got 1.1'),
    ],
)
def test_an_admission_that_admits_everything_or_nothing_is_refused(arguments, said):
    with pytest.raises(kp.PlanError, match=said):
        Admission(**arguments)


def test_a_count_or_a_probability_is_enough_for_an_admission():
    assert Admission(min_count=2.0).get_config() == {'min_count': 2, 'probability': 1.0}
    assert Admission(probability=0.5).get_config() == {'min_count': 1, 'probability': 0.5}


@pytest.mark.parametrize(
    'arguments, said',
    [
        ({'policy': 'fifo'}, "policy must be 'lru' or 'lfu', but got 'fifo'"),
        ({'max_age_steps': 0}, 'max_age_steps must be an integer from 1, but got 0'),
        ({'max_age_steps': 1.5}, 'max_age_steps must be an integer from 1, but got 1.5'),
    ],
)
def test_an_eviction_of_another_policy_or_without_an_age_is_refused(arguments, said):
    with pytest.raises(kp.PlanError, match=said):
        Eviction(**arguments)


@pytest.mark.parametrize('made', [Admission(3, 0.5), Eviction('lfu', 7), Eviction()])
def test_a_policy_is_made_again_from_its_config(made):
    again = as_policy(type(made), 'an argument', made.get_config())
    assert type(again) is type(made) and again.get_config() == made.get_config()
    assert as_policy(type(made), 'an argument', made) is made
    assert as_policy(type(made), 'an argument', None) is None


def test_what_is_no_policy_is_refused_by_the_name_of_the_argument():
    with pytest.raises(kp.PlanError, match="eviction must be a kp.Eviction, but got 'lru'"):
        as_policy(Eviction, 'eviction', 'lru')
    with pytest.raises(kp.PlanError, match='admission must be a kp.Admission'):
        as_policy(Admission, 'admission', Eviction())
