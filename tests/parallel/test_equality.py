"""N workers against plain Keras in one process on the joined batch."""

import os

import cases
import launch
import numpy as np
import pytest
import reference

JOBS = [(ranks, package) for package in ('keras', 'tf.keras') for ranks in (1, 2, 3, 4)]


def names_of(ranks, package):
    """The names of the cases that a job runs besides those about the model."""
    if ranks not in (2, 3):
        return []
    matrix = sorted(cases.MATRIX_CASES)
    if package == 'tf.keras':
        # Its jobs share the matrix, as on a chessboard: there is one engine for both packages.
        matrix = [name for n, name in enumerate(matrix) if (n + n // 4 + ranks) % 2]
    return matrix + sorted(cases.ENGINE_CASES)


#: What is compared besides: pairs of a job and a case.
ENGINE_RUNS = [job + (name,) for job in JOBS for name in names_of(*job)]

each_job = pytest.mark.parametrize('ranks, package', JOBS)


@pytest.fixture(scope='module')
def job(tmp_path_factory):
    """A function that runs all cases of a job, once, and gives the folder of results."""
    done = {}

    def run(ranks, package):
        if (ranks, package) not in done:
            folder = str(tmp_path_factory.mktemp('equality'))
            names = sorted(cases.CASES) + names_of(ranks, package)
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


@pytest.mark.parametrize('ranks, package, name', ENGINE_RUNS)
def test_every_architecture_and_partitioning_equals_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    for beginning, kind in (('auto_400', 'dense'), ('auto_5', 'sparse')):
        if name.startswith(beginning):
            assert found['kinds'][0] == kind


@each_job
def test_every_job_ends_well(job, ranks, package):
    _, outcome = job(ranks, package)
    assert outcome.code == 0, outcome.output[-5000:]
    # As TensorFlow prints when functions of a session go that was closed because shards moved.
    assert '_Callable' not in outcome.output
