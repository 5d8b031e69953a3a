# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A job of another size loads what the version before the package had folders has saved."""

import os

import former_files
import launch
import numpy as np
import pytest
import selected

#: The job that wrote the files had 2 workers; in `tests/unit/` a single process loads them.
SIZE = 3


@pytest.fixture(scope='module')
def folder(request, tmpdir_factory):
    """The folder in which each worker has noted what it loaded."""
    folder = tmpdir_factory.mktemp('former')
    kinds = selected.cases_of(request, former_files.KINDS)
    outcome = launch.run(SIZE, 'parallel/former_files_worker.py', folder, *kinds)
    assert outcome.code == 0, outcome.output[-5000:]
    return str(folder)


@pytest.mark.parametrize('kind', former_files.KINDS)
def test_every_rank_has_every_bit_of_what_a_former_version_saved(folder, kind):
    names = [name for name in os.listdir(folder) if name.startswith(kind + '-')]
    assert len(names) == SIZE * former_files.WAYS[kind]
    for name in names:
        arrays = np.load(os.path.join(folder, name))
        values = [arrays['arr_%d' % number] for number in range(len(arrays.files))]
        former_files.assert_equal(kind, values)
