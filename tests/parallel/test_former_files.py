"""Jobs of any size load what the version before the package had folders has saved."""

import os

import former_files
import launch
import numpy as np
import pytest

#: The job that wrote the files had 2 ranks.
SIZES = (2, 3)


@pytest.fixture(scope='module', params=SIZES)
def job(request, tmpdir_factory):
    """The number of ranks, and the folder in which each has noted what it loaded."""
    folder = tmpdir_factory.mktemp('former')
    outcome = launch.run(request.param, 'parallel/former_files_worker.py', folder)
    assert outcome.code == 0, outcome.output[-5000:]
    return request.param, str(folder)


@pytest.mark.parametrize('kind', former_files.KINDS)
def test_every_rank_has_every_bit_of_what_a_former_version_saved(job, kind):
    size, folder = job
    names = [name for name in os.listdir(folder) if name.startswith(kind + '-')]
    assert len(names) == size * former_files.WAYS[kind]
    for name in names:
        arrays = np.load(os.path.join(folder, name))
        values = [arrays['arr_%d' % number] for number in range(len(arrays.files))]
        former_files.assert_equal(kind, values)
