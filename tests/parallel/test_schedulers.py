# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs whose ranks a scheduler starts: Slurm's `srun`, or an indexed Job of Kubernetes.

By hand, jobs of a real `srun` have trained as well (docs/running/slurm.md).
"""

import os
import re

import cases
import launch
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES

PACKAGE = KERAS_PACKAGES[-1]
SCHEDULERS = pytest.mark.parametrize('scheduler', ['slurm', 'kubernetes'])


@SCHEDULERS
def test_workers_equal_plain_keras_on_the_joined_batch(scheduler, tmp_path):
    outcome = launch.run(
        2, 'parallel/equality_worker.py', PACKAGE, tmp_path, 'adagrad', launcher=scheduler
    )
    assert outcome.code == 0, outcome.output[-5000:]
    found = np.load(os.path.join(str(tmp_path), 'adagrad.npz'))
    reference.check(found, cases.find('adagrad'), cases.keras_module(PACKAGE), 2)


@SCHEDULERS
def test_a_killed_rank_ends_the_job_with_a_sentence(scheduler):
    outcome = launch.run(2, 'parallel/failure_worker.py', 'killed', launcher=scheduler)
    assert outcome.code not in (0, None), outcome.output
    assert re.search(r'Rank 1 on host \S+ was killed', outcome.output), outcome.output
