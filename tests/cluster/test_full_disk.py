# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A disk that is full when a job saves, or that is not every worker's; needs root, to mount one."""

import json
import os
import shutil

import launch
import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which('unshare'), reason='needs root and unshare'
)


@pytest.fixture(scope='module')
def ranks(tmpdir_factory):
    """What both workers saw."""
    disk, results = (str(tmpdir_factory.mktemp(name)) for name in ('disk', 'results'))
    # The disk is there for the job only, and gone with it.
    mounted = 'mount -t tmpfs -o size=4m tmpfs %s && exec "$@"' % disk
    outcome = launch.run(
        2, 'cluster/full_disk_worker.py', disk, results,
        prefix=['unshare', '--mount', 'sh', '-c', mounted, 'sh'],
    )  # fmt: skip
    assert outcome.code == 0, outcome.output[-5000:]
    found = []
    for rank in range(2):
        with open(os.path.join(results, '%d.json' % rank)) as file:
            found.append(json.load(file))
    return found


@pytest.mark.parametrize('form', ['single', 'sharded'])
def test_a_full_disk_is_told_and_training_goes_on(ranks, form):
    (told,) = ranks[0][form]['warn']
    assert 'No checkpoint after epoch 2' in told
    assert 'No space left on device' in told and 'MiB are free' in told
    assert ranks[0][form]['trained'] != ranks[0][form]['saved']
    assert ranks[0][form]['trained'] == ranks[1][form]['trained']


@pytest.mark.parametrize('form', ['single', 'sharded'])
def test_the_checkpoint_of_before_is_whole(ranks, form):
    for rank in ranks:
        assert rank[form]['first'] == []
        assert rank[form]['epoch'] == 1
        assert rank[form]['resumed'] == rank[form]['saved']


@pytest.mark.parametrize('form', ['single', 'sharded'])
def test_nothing_incomplete_is_left_and_the_next_save_succeeds(ranks, form):
    assert ranks[0][form]['files'] == ['model.h5'] + ['parts'] * (form == 'sharded')
    for rank in ranks:
        assert rank[form]['again'] == []
        assert rank[form]['epoch again'] == 2
    # A part of each worker, Keras's file, and the manifest.
    assert len(ranks[0]['sharded']['parts']) == 4


def test_every_rank_is_told_which_rank_could_not_save_its_part(ranks):
    for rank in ranks:
        (told,) = rank['sharded']['raise']
        assert told.startswith('CheckpointError: Rank ') and 'No space left on device' in told


def test_parts_on_disks_that_are_not_the_same_are_refused_on_every_rank(ranks):
    for rank in ranks:
        assert 'does not see the checkpoint that rank 0 sees' in rank['apart']['resume']
        assert 'must save to storage that every host sees' in rank['apart']['save']
        assert 'rank-00001' in rank['apart']['save']
        assert rank['apart']['after'] == rank['apart']['before']
    # The checkpoint of before is whole, and nothing of the failed save is left.
    assert ranks[0]['apart']['parts'] == ranks[0]['apart']['parts before']
    assert len(ranks[0]['apart']['parts']) == 4
    assert ranks[1]['apart']['parts'] == []


def test_a_single_file_that_only_rank_0_sees_is_enough_to_go_on(ranks):
    assert [rank['apart']['found'] for rank in ranks] == [True, False]
    for rank in ranks:
        assert rank['apart']['epoch'] == 2
        assert rank['apart']['resumed'] == rank['apart']['loaded'] != rank['apart']['before']
