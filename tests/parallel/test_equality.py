"""N workers against plain Keras in one process on the joined batch."""

import os

import cases
import launch
import numpy as np
import pytest
import reference

JOBS = [(ranks, package) for package in ('keras', 'tf.keras') for ranks in (1, 2, 3, 4)]
#: The jobs that run the cases about the engine too.
ENGINE_JOBS = [(ranks, package) for ranks, package in JOBS if ranks in (2, 3)]

each_job = pytest.mark.parametrize('ranks, package', JOBS)


@pytest.fixture(scope='module')
def job(tmp_path_factory):
    """A function that runs all cases of a job, once, and gives the folder of results."""
    done = {}

    def run(ranks, package):
        if (ranks, package) not in done:
            folder = str(tmp_path_factory.mktemp('equality'))
            names = sorted(cases.CASES)
            if (ranks, package) in ENGINE_JOBS:
                names += sorted(cases.ENGINE_CASES)
            outcome = launch.run(
                ranks,
                'parallel/equality_worker.py',
                package,
                folder,
                *names,
                environ={'KERAS_PARALLAX_CACHE': folder},
            )
            done[ranks, package] = folder, outcome
        return done[ranks, package]

    return run


def compare(job, ranks, package, name):
    """Compares a case's result with plain Keras's, and returns it."""
    folder, outcome = job(ranks, package)
    result = os.path.join(folder, name + '.npz')
    assert os.path.exists(result), outcome.output[-5000:]
    found = np.load(result)
    reference.check(found, cases.find(name), cases.keras_module(package), ranks)
    return found


@pytest.mark.parametrize('name', sorted(cases.CASES))
@each_job
def test_workers_equal_plain_keras_on_the_joined_batch(job, ranks, package, name):
    compare(job, ranks, package, name)


@pytest.mark.parametrize('name', sorted(cases.ENGINE_CASES))
@pytest.mark.parametrize('ranks, package', ENGINE_JOBS)
def test_every_architecture_and_partitioning_equals_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    for beginning, kind in (('auto_400', 'dense'), ('auto_5', 'sparse')):
        if name.startswith(beginning):
            assert found['kinds'][0] == kind


@each_job
def test_every_job_ends_well(job, ranks, package):
    _, outcome = job(ranks, package)
    assert outcome.code == 0, outcome.output[-5000:]
