# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the smoke test judges."""

import pytest
import smoke
from records import record, smoke_records


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


def test_the_smoke_test_judges_every_link_speed():
    slow = [dict(one, bandwidth_mbit=50) for one in smoke_records()]
    assert smoke.problems(smoke_records() + slow) == []
    (problem,) = smoke.problems(smoke_records(hybrid=record('hybrid', sent=130.0)) + slow)
    assert problem.startswith('At 200 Mbit/s, hybrid sends 1.300 times the floor')
