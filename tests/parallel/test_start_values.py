# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Start values are made where the shards lie, and are the same wherever that is."""

import launch
import numpy as np
import pytest
from servers import Server, free_port


def start(folder, partitions, *servers):
    folder.mkdir()
    outcome = launch.run(2, 'parallel/start_worker.py', folder, partitions, *servers)
    assert outcome.code == 0, outcome.output
    return [dict(np.load(str(folder / ('%d.npz' % rank)))) for rank in range(2)]


@pytest.fixture(scope='module')
def starts(tmp_path_factory):
    """What the workers of two jobs noted: three shards on their own servers, one on another's."""
    folder = tmp_path_factory.mktemp('starts')
    with Server(free_port(), folder) as server:
        dedicated = start(folder / 'dedicated', 1, server.address)
    return start(folder / 'workers', 3), dedicated


def test_start_values_do_not_depend_on_the_number_and_place_of_shards(starts):
    (workers, _), (dedicated, _) = starts
    assert np.array_equal(workers['small'], dedicated['small'])
    assert workers['large'] == dedicated['large']


def test_start_values_are_those_of_plain_keras_with_the_seeds_of_rank_0(starts):
    for chief, _ in starts:
        assert np.array_equal(chief['small'], chief['plain'])


def test_no_worker_holds_a_table_that_lies_on_a_dedicated_server(starts):
    for found in starts[1]:
        assert found['extra'] < found['large_bytes'] / 2
