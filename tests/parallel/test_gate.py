# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Nothing is written in a step before the backward pass and the metrics have read it."""

import json
import re

import launch
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF2

RANKS = 2


@pytest.fixture(scope='module')
def outcome():
    outcome = launch.run(RANKS, 'parallel/gate_worker.py')
    assert outcome.code == 0, outcome.output
    return outcome


def test_a_step_writes_dense_variables_after_all_its_reads_of_them(outcome):
    counts = re.findall(r'WRITES (\d+) READS (\d+)', outcome.output)
    # Two layers with a kernel and a bias: each is written once, and read by the forward pass, by
    # its update (that of Keras 2.15 is one operation) and, the kernels, by the backward pass.
    assert len(counts) == len(KERAS_PACKAGES), outcome.output
    assert all(int(writes) == 4 and int(reads) >= (6 if TF2 else 10) for writes, reads in counts), (
        counts
    )


# Not `package`: `JOB_PARAMETERS` in conftest.py would start the job of this file for each package.
@pytest.mark.parametrize('architecture', ['hybrid', 'ps', 'allreduce'])
@pytest.mark.parametrize('trained_package', KERAS_PACKAGES)
def test_metrics_read_the_weights_that_a_batch_begins_with(trained_package, architecture, outcome):
    found = [json.loads(line) for line in re.findall(r'METRIC (.*)', outcome.output)]
    batches = [rows for *job, rows in found if job == [trained_package, architecture]]
    assert len(batches) == RANKS, outcome.output
    for of_rank in batches:
        values, expected = np.moveaxis(np.array(of_rank), 1, 0)
        assert len(np.unique(expected[:, :3])) == expected[:, :3].size  # Each batch moves them.
        np.testing.assert_allclose(values, expected, rtol=1e-6)
