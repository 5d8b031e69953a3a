# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Our own sessions leave TensorFlow as many threads as a user's would have."""

import re

import launch
import pytest
from frameworks import TF2


def threads_of(kind, of_operation):
    """How many threads a process of each worker has, where an operation may have so many."""
    environ = {'OMP_NUM_THREADS': str(of_operation), 'OPENBLAS_NUM_THREADS': '1'}
    outcome = launch.run(2, 'parallel/threads_worker.py', kind, environ=environ)
    assert outcome.code == 0, outcome.output[-5000:]
    found = dict(re.findall(r'RANK (\d) HAS (\d+) THREADS', outcome.output))
    return [int(found[rank]) for rank in ('0', '1')]


@pytest.mark.parametrize('kind', ['dense', 'sparse'])
def test_the_threads_of_an_operation_are_as_many_as_asked_for(kind):
    # TensorFlow 1.11 makes them for all sessions of a process when it makes the first one.
    few, many = threads_of(kind, 2), threads_of(kind, 34)
    more = sorted(after - before for before, after in zip(few, many))
    # With TensorFlow 2, one of the two workers, whichever, has five more all the time.
    assert more == [32, 32] or (TF2 and more == [27, 37])
