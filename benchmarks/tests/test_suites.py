# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The choice of cases, and which of them are measured together."""

from measuring import suites
from systems import catalog
from works import stack


def test_what_sends_nothing_is_measured_once_whatever_the_link_speeds():
    found = suites.cases('lm', hosts=(1, 2), systems=('tf', 'hybrid'), bandwidths=(200, None))
    assert [(case['system'], case['hosts'], case['bandwidth_mbit']) for case in found] == [
        ('tf', 1, None), ('hybrid', 1, None), ('hybrid', 2, 200), ('hybrid', 2, None),
    ]  # fmt: skip


def test_every_suite_has_cases_and_one_process_systems_come_with_one_host_only():
    for suite in suites.SUITES:
        cases = suites.cases(suite)
        assert cases
        for case in cases:
            assert (case['system'] in suites.ALONE) <= (case['hosts'] == 1)


def test_a_job_measures_all_link_speeds_of_a_case_the_fastest_first():
    cases = suites.cases(
        'lm', hosts=(1, 2), systems=('hvd-allgather', 'hybrid'), bandwidths=(40, None, 200)
    )
    jobs = suites.jobs(cases)
    found = [
        (job[0]['system'], job[0]['hosts'], [case['bandwidth_mbit'] for case in job])
        for job in jobs
    ]
    assert found == [
        ('hybrid', 1, [None]),
        ('hvd-allgather', 2, [None, 200, 40]),
        ('hybrid', 2, [None, 200, 40]),
    ]
    for job in jobs:
        assert all(dict(case, bandwidth_mbit=None) == dict(job[0], bandwidth_mbit=None)
                   for case in job)  # fmt: skip


def test_every_case_of_a_suite_is_in_one_job():
    for suite in suites.SUITES:
        cases = suites.cases(suite)
        taken = [case for job in suites.jobs(cases) for case in job]
        assert len(taken) == len(cases) and all(case in taken for case in cases)


def test_what_sends_tables_whole_is_not_measured_at_the_speed_of_a_headline():
    speeds = {}
    for case in suites.cases('lm', hosts=(8,)):
        speeds.setdefault(case['system'], set()).add(case['bandwidth_mbit'])
    headline = suites.SUITES['lm']['headline']
    assert speeds['hybrid'] - speeds['hvd-dense'] == {headline}
    asked = suites.cases('lm', hosts=(8,), systems=['hvd-dense'], bandwidths=(headline,))
    assert [case['bandwidth_mbit'] for case in asked] == [headline]


def test_rounds_share_the_steps_of_a_suite():
    for suite in suites.SUITES:
        steps = {case['steps'] for case in suites.cases(suite, steps=30)}
        assert steps == {30 // suites.rounds_of(suite)}
    assert suites.rounds_of('dense') > 1 == suites.rounds_of('lm')


def test_systems_train_side_by_side_as_many_as_there_are_hosts_for():
    def groups(hosts, room, bandwidths=None):
        cases = suites.cases(
            'lm',
            hosts=hosts,
            systems=('hvd-keras', 'tf-ps', 'hybrid', 'ps'),
            bandwidths=bandwidths,
        )
        jobs = suites.jobs(cases)
        found = suites.side_by_side(jobs, room)
        assert sorted(map(id, jobs)) == sorted(id(job) for group in found for job in group)
        return [[job[0]['system'] for job in group] for group in found]

    speeds = (None, 200)
    assert groups((2,), 8, speeds) == [['hvd-keras', 'tf-ps', 'hybrid', 'ps']]
    assert groups((4,), 8, speeds) == [['hvd-keras', 'tf-ps'], ['hybrid', 'ps']]
    one_by_one = [['hvd-keras'], ['tf-ps'], ['hybrid'], ['ps']]
    assert groups((8,), 8, speeds) == groups((2,), 1, speeds) == one_by_one
    # One that leaves a link speed out would be done with the others still at work.
    assert groups((2,), 8) == [['hvd-keras'], ['tf-ps', 'hybrid', 'ps']]


def test_what_only_one_stack_has_is_known_by_all_and_run_by_that_one():
    chosen = {case['system'] for case in suites.cases('smoke')}
    left_out = {system for system in chosen if not catalog.is_here(system)}
    assert left_out == (set() if stack.HAS_TENSORFLOW_2 else {'tf-ps-strategy'})
