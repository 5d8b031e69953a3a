# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The comparison of `auto` with what it chooses from: what is measured, and what is made of it."""

import architectures
import pytest
from report import scripts


@pytest.mark.parametrize('setting', sorted(architectures.SETTINGS))
def test_all_four_train_at_the_same_time_on_all_cores(setting):
    _, suite, hosts, speed = architectures.SETTINGS[setting]
    jobs = architectures.jobs_of(suite, hosts, speed, rounds=3, steps=20)
    assert [job[0]['system'] for job in jobs] == list(architectures.SYSTEMS)
    for job in jobs:
        # The first phase is that in which `auto` chooses.
        assert job == [job[0]] * 4 and job[0]['steps'] == 20
        assert (job[0]['hosts'], job[0]['bandwidth_mbit']) == (hosts, speed)
    assert 4 * hosts * jobs[0][0]['cores_per_host'] == pytest.approx(architectures.CORES)


def records(*rounds):
    """Records as `measure.measure` returns them: of each phase all four."""
    return [
        dict(
            system=system,
            step_seconds=seconds,
            step_seconds_quarter=seconds,
            step_seconds_three_quarters=seconds,
            steps=20,
            **({'settled_on': SETTLED} if system == 'auto' else {}),
        )
        for of_round in rounds
        for system, seconds in zip(architectures.SYSTEMS, of_round)
    ]


SETTLED = {'following': 'ps', 'measured': [['hybrid', 1.3], ['ps', 1.0]]}


def test_ratios_are_those_of_a_round_and_the_round_of_the_choice_does_not_count():
    # The machine is half as fast in the second round.
    found = records((9, 9, 9, 99), (1.2, 1.0, 1.5, 1.01), (2.4, 2.0, 3.0, 2.2), (1.2, 1, 1.5, 1.0))
    kept = architectures.kept('two hosts', found)
    assert kept['settled_on'] == 'ps' and len(kept['rounds']) == 3
    ratios = scripts.settled_ratios(kept['rounds'])
    assert ratios == pytest.approx({'hybrid': 1.01 / 1.2, 'ps': 1.01, 'allreduce': 1.01 / 1.5})
    line = scripts.architectures_table([kept]).splitlines()[-1]
    assert [cell.strip() for cell in line.strip('|').split('|')] == [
        'two hosts', '1200', '1000', '1500', '1010', 'ps', '1.01'
    ]  # fmt: skip
