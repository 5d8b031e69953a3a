"""The benchmarks' choice of cases and their verdicts, without a measurement."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', '..', 'benchmarks'))
import report  # noqa: E402
import smoke  # noqa: E402
import suites  # noqa: E402


def record(system, losses=(3.0, 2.0), seconds=1.0, sent=100.0, floor=100.0, hosts=2):
    return dict(
        suite='smoke', options={}, system=system, hosts=hosts, workers_per_host=1,
        bandwidth_mbit=200, losses=list(losses), step_seconds=seconds, sent_bytes=sent,
        floor_bytes=floor, load=2.0,
    )  # fmt: skip


def smoke_records(**changes):
    found = {
        'hvd-allgather': record('hvd-allgather', sent=200.0),
        'hybrid': record('hybrid', sent=105.0),
        'allreduce': record('allreduce', sent=150.0),
    }
    found.update(changes)
    return list(found.values())


def test_the_smoke_test_accepts_what_is_right():
    assert smoke.problems(smoke_records()) == []


@pytest.mark.parametrize(
    'wrong',
    [
        record('hybrid', sent=130.0),
        record('hybrid', sent=90.0),
        record('hybrid', sent=105.0, losses=(3.0, 2.1)),
        dict(record('hybrid'), error='exit code 1'),
    ],
    ids=['too many bytes', 'fewer than the floor', 'learns differently', 'failed'],
)
def test_the_smoke_test_refuses_what_is_wrong(wrong):
    assert smoke.problems(smoke_records(hybrid=wrong))


def test_a_faster_run_that_learns_differently_does_not_count():
    records = smoke_records(hybrid=record('hybrid', seconds=0.1, losses=(3.0, 2.1)))
    assert '10.00x' not in report.targets(records)
    assert '10.00x' in report.targets(smoke_records(hybrid=record('hybrid', seconds=0.1)))


def test_every_suite_has_cases_and_one_process_systems_come_with_one_host_only():
    for suite in suites.SUITES:
        cases = suites.cases(suite)
        assert cases
        for case in cases:
            assert (case['system'] in suites.ALONE) <= (case['hosts'] == 1)
