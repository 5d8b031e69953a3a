# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a term of a loss grows with its batch, from its values."""

import numpy as np
import pytest

from keras_parallax.planning import loss_kinds
from keras_parallax.planning.loss_kinds import MEAN, NEITHER, SUM, UNKNOWN, Trial


@pytest.mark.parametrize(
    'values, kind',
    [
        ((2.0, 3.0, 5.0), SUM),
        ((2.0, 3.0, 2.5), MEAN),
        ((2.0, 2.0, 2.0), MEAN),
        ((-2.0, 3.0, 1.0), SUM),
        # The square roots of a sum, and of a mean.
        ((3.0, 4.0, 5.0), NEITHER),
        ((1.0, 7.0, 5.0), NEITHER),
        ((1.0, 2.0, float('nan')), NEITHER),
        ((float('nan'), 2.0, 2.0), UNKNOWN),
        ((0.0, 0.0, 0.0), UNKNOWN),
        # Both the sum and the mean of these are 0.
        ((1.0, -1.0, 0.0), UNKNOWN),
        ((0.0, 3.0, 3.0), SUM),
    ],
)
def test_the_kind_of_a_term_is_that_of_its_values_for_two_batches_and_both(values, kind):
    assert loss_kinds.kind_of(Trial(*values)) == kind


@pytest.mark.parametrize('dtype', ['float16', 'float32', 'float64'])
def test_rounding_makes_no_other_kind(dtype):
    random = np.random.RandomState(0)
    first, second = (random.uniform(size=1000).astype(dtype) for _ in range(2))
    both = np.concatenate([first, second])
    for kind, reduce in ((SUM, np.sum), (MEAN, np.mean)):
        trial = loss_kinds.trial_of(*[reduce(of, dtype=dtype) for of in (first, second, both)])
        assert loss_kinds.kind_of(*trial) == kind


def test_an_array_counts_as_the_sum_of_its_entries():
    trial, number_bytes = loss_kinds.trial_of(*[np.ones(size, 'float32') for size in (3, 3, 6)])
    assert trial == (3, 3, 6) and number_bytes == 4


def test_trials_that_differ_are_of_neither_kind_and_those_that_do_not_tell_are_left_out():
    assert loss_kinds.joint_kind([SUM, UNKNOWN, SUM]) == SUM
    assert loss_kinds.joint_kind([SUM, MEAN]) == NEITHER
    assert loss_kinds.joint_kind([UNKNOWN]) == UNKNOWN


def test_the_trial_that_is_shown_is_one_of_the_kind_that_was_found():
    trials = [Trial(2.0, 3.0, 5.0), Trial(3.0, 4.0, 5.0)]
    assert loss_kinds.telling(trials, NEITHER) == trials[1]
    assert loss_kinds.telling(trials, UNKNOWN) == trials[0]
