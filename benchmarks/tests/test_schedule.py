# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How many steps a link speed takes."""

from measuring import schedule


def test_long_steps_are_measured_a_few_times_only():
    assert [schedule.steps(30, seconds) for seconds in (0.1, 2.0, 60.0)] == [30, 15, 5]
    assert [schedule.warmup(12, seconds) for seconds in (0.1, 3.0, 60.0)] == [12, 10, 2]
    assert schedule.steps(2, 60.0) == 2
