# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The step's barrier against TensorFlow's graph optimizer, which would rather do without it."""

import ast
import re

import launch
import numpy as np
import pytest


def expected_losses():
    """The same training in numpy: the mean of squares of `sum of three rows - 1`, SGD."""
    table, ids = np.linspace(0, 1, 20), np.arange(12).reshape(4, 3)
    losses = []
    for _ in range(6):
        error = table[ids].sum(1) - 1
        losses.append(np.mean(error**2))
        # No id comes twice.
        table[ids] -= 0.05 * 2 * error[:, None] / len(ids)
    return losses


@pytest.mark.parametrize('optimizer', ['keras', 'tensorflow', 'counting'])
def test_no_rank_pulls_rows_that_their_owner_has_yet_to_update(optimizer):
    outcome = launch.run(2, 'parallel/barrier_worker.py', optimizer, limit=120)
    assert outcome.code == 0, outcome.output
    found = re.findall(r'LOSSES (\d) (\[.*\])', outcome.output)
    assert sorted(rank for rank, _ in found) == ['0', '1'], outcome.output
    for _, losses in found:
        np.testing.assert_allclose(ast.literal_eval(losses), expected_losses(), rtol=1e-5)
