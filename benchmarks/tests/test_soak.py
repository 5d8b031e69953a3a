# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The soak's choice of where it kills, and its verdict, without a job."""

import random

import numpy as np
import pytest
import soak


def test_kills_are_spread_over_the_run_in_an_order_that_the_seed_tells():
    found = soak.places(50, 320, random.Random(0))
    assert found == soak.places(50, 320, random.Random(0)) != soak.places(50, 320, random.Random(1))
    phases = [phase for phase, _ in found]
    assert phases.count('start') == phases.count('resume') == 6 and phases.count('train') == 38
    epochs = [epoch for _, epoch in found]
    assert epochs == sorted(epochs)
    assert 0 <= epochs[0] < 40 and 260 < epochs[-1] <= 320 - soak.LAST_EPOCHS


def test_a_difference_is_relative_to_the_largest_entry():
    expected = [np.array([0.0, 4.0]), np.zeros(2)]
    assert soak.differences(expected, expected) == [0, 0]
    assert soak.differences([np.array([1.0, 4.0]), np.zeros(2)], expected) == [0.25, 0]
    with pytest.raises(soak.Failure):
        soak.differences([np.zeros(3), np.zeros(2)], expected)
