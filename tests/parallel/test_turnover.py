# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which ids are admitted and evicted does not depend on how many workers have met them."""

import os

import dynamic
import launch
import numpy as np
import pytest
import turnover

TOLERANCE = 1e-5


class Folders(dict):
    """For each number of workers the folder of what its job, run when asked for, has written."""

    def __init__(self, make_folder):
        self._make_folder = make_folder

    def __missing__(self, ranks):
        self[ranks] = str(self._make_folder('turnover'))
        outcome = launch.run(ranks, 'parallel/turnover_worker.py', self[ranks])
        assert outcome.code == 0, outcome.output[-5000:]
        return self[ranks]


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    return Folders(tmp_path_factory.mktemp)


def of_run(folders, ranks, name, rank=0):
    return np.load(os.path.join(folders[ranks], '%s.%d.npz' % (name, rank)))


def rows_by_id(found):
    pairs = zip(found['ids'].tolist(), found['rows'])
    return {id_: row for id_, row in pairs if id_ != dynamic.NO_ID}


def assert_alike(one, other):
    np.testing.assert_allclose(one['losses'], other['losses'], rtol=TOLERANCE)
    np.testing.assert_allclose(one['out'], other['out'], rtol=0, atol=TOLERANCE)
    ours, others = rows_by_id(one), rows_by_id(other)
    assert set(ours) == set(others)
    for id_, row in ours.items():
        np.testing.assert_allclose(row, others[id_], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize('size', [2, 3])
def test_admitted_ids_train_as_in_one_process(folders, size):
    found, alone = of_run(folders, size, 'admitted'), of_run(folders, 1, 'admitted')
    assert_alike(found, alone)
    # The row of all others, too.
    np.testing.assert_allclose(found['rows'][-1], alone['rows'][-1], rtol=0, atol=TOLERANCE)
    assert np.abs(found['rows'][-1]).max() > 100 * TOLERANCE


@pytest.mark.parametrize('name', turnover.RUNS_OF[3])
def test_with_as_many_shards_two_ranks_and_three_train_alike(folders, name):
    assert_alike(of_run(folders, 2, name), of_run(folders, 3, name))


@pytest.mark.parametrize(
    'size, name', [(size, name) for size, names in turnover.RUNS_OF.items() for name in names]
)
def test_ids_have_rows_as_the_model_in_python_says(folders, size, name):
    parts = turnover.expected_parts(name, 1 if size == 1 else turnover.SHARDS)
    found = of_run(folders, size, name)
    assert set(rows_by_id(found)) == set().union(*[part.known for part in parts])
    assert found['rows_used'] == len(rows_by_id(found))
    assert found['rows_evicted'] == sum(part.evicted for part in parts)
    assert found['ids_left_out'] == sum(part.left_out for part in parts)
    assert found['rows_evicted'] == 0 if name == 'admitted' else found['rows_evicted'] > 10


@pytest.mark.parametrize('name', turnover.RUNS_OF[turnover.RESUMED_RANKS])
def test_a_job_goes_on_from_what_it_has_saved(folders, name):
    ranks = turnover.RESUMED_RANKS
    assert_alike(of_run(folders, ranks, name), of_run(folders, ranks, name + '.resumed'))
