# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs whose ranks MPI connects, started by `mpirun`, and by `horovodrun`, which calls it.

`make test-parallel MPI=1 PYTEST_ARGS='-k test_mpi'` builds a Horovod that has MPI, and runs them.
"""

import os
import re
import time

import cases
import launch
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES

from keras_parallax.compat.horovod_api import hvd

pytestmark = pytest.mark.skipif(
    not hvd.mpi_built(), reason='Horovod was built without MPI; make env MPI=1 builds it with'
)

LAUNCHERS = ('mpirun', 'horovodrun --mpi')
#: For machines with fewer cores than workers; no verdict depends on how long a job takes.
LIMIT_SECONDS = 240
PACKAGE = KERAS_PACKAGES[0]
#: Tables on servers, rows that are gathered, and dense variables on servers.
NAMES = ('shared_adam', 'allreduce_adam', 'ps_3_adagrad')


@pytest.fixture(scope='module', params=LAUNCHERS)
def trained(request, tmp_path_factory):
    """The folder with what a job of two workers has come to, and its `Outcome`."""
    folder = str(tmp_path_factory.mktemp('mpi'))
    return folder, launch.run(
        2,
        'parallel/equality_worker.py',
        PACKAGE,
        folder,
        *NAMES,
        launcher=request.param,
        limit=LIMIT_SECONDS,
    )


@pytest.mark.parametrize('name', NAMES)
def test_workers_equal_plain_keras_on_the_joined_batch(trained, name):
    folder, outcome = trained
    assert outcome.code == 0, outcome.output[-5000:]
    found = np.load(os.path.join(folder, name + '.npz'))
    reference.check(found, cases.find(name), cases.keras_module(PACKAGE), 2)


@pytest.mark.parametrize('launcher', LAUNCHERS)
@pytest.mark.parametrize(
    'way, sentence',
    [
        ('killed', r'Rank 1 on host \S+ was killed from outside or crashed'),
        ('exception', r'Rank 1 on host \S+ failed: KeyError'),
    ],
)
def test_a_failed_job_ends_and_says_why(launcher, way, sentence):
    outcome = launch.run(
        2, 'parallel/failure_worker.py', way, launcher=launcher, limit=LIMIT_SECONDS
    )
    assert outcome.code not in (0, None), outcome.output
    assert re.search(sentence, outcome.output), outcome.output
    assert len(re.findall('PROCESS', outcome.output)) == 2
    # `mpirun` does not wait for those that it has told to end.
    deadline = time.monotonic() + LIMIT_SECONDS
    while launch.left_over(outcome.output):
        assert time.monotonic() < deadline, launch.left_over(outcome.output)
        time.sleep(0.1)
