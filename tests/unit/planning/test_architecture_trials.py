# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which architectures are tried, how often, and which is kept."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uses import dense, table

from keras_parallax.planning import architecture_trials
from keras_parallax.planning.architecture_trials import Trials, candidates, choose, next_trial
from keras_parallax.planning.architectures import ALLREDUCE, AUTO, HYBRID, PS
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import Update, make_plan
from keras_parallax.planning.plan_summary import architecture_in_words

THREE = [HYBRID, PS, ALLREDUCE]
GIB = 2**30


def plans(uses, density=None, slots=1.0):
    updates = {use.name: Update('', slots=slots) for use in uses}
    return {
        name: make_plan(
            uses, 0 if name == ALLREDUCE else 2, None, name, density=density, cluster=Cluster(2)
        ).with_updates(updates)
        for name in architecture_trials.TRIED
    }


def run(seconds_of, names):
    """Takes the trials that are asked for; returns the measurements, and what is kept."""
    measured = []
    while True:
        name = next_trial(measured, names)
        if name is None:
            return measured, choose(measured, names)
        measured.append((name, seconds_of(name)))


def test_each_is_tried_once_and_the_clearly_fastest_is_kept():
    seconds = {HYBRID: 0.03, PS: 0.02, ALLREDUCE: 0.05}
    measured, kept = run(seconds.get, THREE)
    assert [name for name, _ in measured] == THREE and kept == PS


def test_what_is_near_the_fastest_is_tried_twice_in_turns():
    seconds = {HYBRID: 0.031, PS: 0.03, ALLREDUCE: 0.05}
    measured, kept = run(seconds.get, THREE)
    names = [name for name, _ in measured]
    assert names == [HYBRID, PS, ALLREDUCE, HYBRID, PS] and kept == PS
    seconds[ALLREDUCE] = 0.0305
    measured, _ = run(seconds.get, THREE)
    # What is followed comes first.
    assert [name for name, _ in measured[3:]] == [ALLREDUCE, HYBRID, PS]


@given(st.permutations(THREE), st.randoms())
def test_trials_that_are_off_by_two_per_cent_still_find_what_is_ten_per_cent_faster(order, chance):
    true = dict(zip(order, (1.0, 1.1, 1.4)))
    noise = random.Random(chance.random())
    _, kept = run(lambda name: true[name] * noise.uniform(0.98, 1.02), THREE)
    assert kept == order[0]


@given(st.dictionaries(st.sampled_from(THREE), st.floats(1e-4, 10), min_size=1))
def test_the_kept_one_is_as_fast_as_the_fastest_within_two_per_cent(seconds):
    names = [name for name in THREE if name in seconds]
    measured, kept = run(seconds.get, names)
    assert seconds[kept] <= 1.02 * min(seconds.values())
    assert len(measured) <= 2 * len(names)


def test_of_equals_the_first_is_kept():
    assert choose([(PS, 1.0), (HYBRID, 1.01), (ALLREDUCE, 1.0)], THREE) == HYBRID


def test_what_is_exchanged_alike_is_tried_once():
    found, left_out = candidates(plans([table('words', 10**4, 64), dense()]), 100 * GIB)
    assert found == [HYBRID, PS, ALLREDUCE] and not left_out
    both = [table('words', 10**4, 64), table('tags', 10**4, 64)]
    found, _ = candidates(plans(both, density={'words': 0.99, 'tags': 0.01}), 100 * GIB)
    # With a dense table by cost, and without; nothing is dense, so `ps` is `hybrid`.
    assert found == [AUTO, HYBRID, ALLREDUCE]


def test_a_large_table_is_not_copied_to_every_rank():
    uses = [table('words', 10**6, 200), dense()]
    found, left_out = candidates(plans(uses), 100 * GIB)
    assert found == [HYBRID, PS]
    ((name, why),) = left_out
    assert name == ALLREDUCE and '1.5 GiB' in why
    # Without a slot it would be half of that.
    assert candidates(plans(uses, slots=0.0), 100 * GIB)[0] == THREE


def test_so_many_tables_are_not_moved_to_every_rank():
    for count, kept in ((32, THREE), (33, [HYBRID, PS])):
        uses = [table('table_%d' % number, 10**4, 64) for number in range(count)]
        found, left_out = candidates(plans([*uses, dense()]), 100 * GIB)
        assert found == kept and len(left_out) == (count > 32)
    assert '33 variables' in left_out[0][1]
    # Back to their shards they all are.
    density = dict.fromkeys([use.name for use in uses], 0.99)
    assert candidates(plans([*uses, dense()], density), 100 * GIB)[0] == [AUTO, HYBRID, PS]


def test_what_does_not_fit_is_not_tried():
    uses = [table('words', 10**5, 200), dense()]
    found, left_out = candidates(plans(uses), 50 * 2**20)
    assert found == [HYBRID, PS]
    assert left_out[0][0] == ALLREDUCE and 'memory' in left_out[0][1]


@pytest.mark.parametrize(
    'told, words',
    [
        (Trials(PS), 'being tried'),
        (Trials(PS, ((HYBRID, 0.02),)), 'being tried, hybrid takes 20 ms a step'),
        (
            Trials(PS, ((AUTO, 0.02), (PS, 0.01)), ((ALLREDUCE, 'which is large'),), True),
            'the fastest of those tried: ps takes 10 ms a step, hybrid with dense tables 20 ms; '
            'not tried: allreduce, which is large',
        ),
        (
            Trials(HYBRID, ((HYBRID, 0.0101), (PS, 0.01)), (), True),
            'as good as the fastest of those tried: ps takes 10 ms a step, hybrid 10.1 ms',
        ),
        (Trials(HYBRID, (), (), True), 'nothing else was tried'),
    ],
)
def test_a_plan_says_why_with_numbers(told, words):
    plan = make_plan([table(), dense()], 2, architecture=PS).as_followed({}, {}, told)
    assert plan.requested == AUTO
    said = architecture_in_words(plan)
    assert said.startswith(plan.architecture + ' (') and words in said


def test_a_plan_is_what_is_followed_and_another_cluster_is_asked_anew():
    plan = make_plan([table(), dense()], 2, architecture=ALLREDUCE, cluster=Cluster(2))
    followed = plan.as_followed({}, {}, Trials(ALLREDUCE, ((ALLREDUCE, 0.01),), (), True))
    assert followed.architecture == ALLREDUCE
    assert followed.as_data()['trials']['measured'] == [[ALLREDUCE, 0.01]]
    assert followed.for_cluster(Cluster(4)).requested == AUTO


def test_a_report_has_a_line_for_each():
    measured = ((AUTO, 0.02), (PS, 0.01), (PS, 0.03))
    text = Trials(AUTO, measured, ((ALLREDUCE, 'which is large'),), True).report()
    assert 'hybrid with dense tables  1 trial' in text
    assert 'ps                        2 trials' in text
    assert text.splitlines()[-2:] == [
        'Not tried: allreduce, which is large',
        'Chosen: hybrid with dense tables',
    ]
