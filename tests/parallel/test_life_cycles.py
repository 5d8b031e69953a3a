# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models that are compiled again, frozen, shared or saved train on as in plain Keras."""

import itertools
import os

import launch
import life_cycles
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES
from selected import cases_of

RUNS = [
    pytest.param(package, name, marks=[pytest.mark.covered] * case.is_covered)
    for package, (name, case) in itertools.product(KERAS_PACKAGES, life_cycles.CASES.items())
]


@pytest.fixture(scope='module')
def job(request, tmpdir_factory):
    """The folder where a job of two workers has written what cases note, and its output."""
    jobs = {}

    def of_package(package):
        if package not in jobs:
            folder = str(tmpdir_factory.mktemp('life_cycles'))
            names = cases_of(request, life_cycles.CASES, package)
            outcome = launch.run(2, 'parallel/life_cycle_worker.py', package, folder, *names)
            jobs[package] = folder, outcome.output
        return jobs[package]

    return of_package


@pytest.mark.parametrize('package, name', RUNS)
def test_a_life_cycle_has_the_numbers_of_plain_keras(job, package, name):
    folder, output = job(package)
    error, noted = (os.path.join(folder, name + ending) for ending in ('.error', '.npz'))
    if os.path.exists(error):
        with open(error) as file:
            pytest.fail(file.read())
    assert os.path.exists(noted), output[-5000:]
    case, file = life_cycles.CASES[name], np.load(noted)
    expected = life_cycles.run(case, package, folder, life_cycles.RANKS)
    found = [file['arr_%d' % number] for number in range(len(file.files))]
    assert [array.shape for array in found] == [array.shape for array in expected]
    for number, (own, plain) in enumerate(zip(found, expected)):
        largest = max(np.abs(plain).max(), 1e-30)
        np.testing.assert_allclose(
            own, plain, rtol=0, atol=case.tolerance * largest, err_msg='note %d' % number
        )
