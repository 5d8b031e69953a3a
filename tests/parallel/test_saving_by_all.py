# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A script that saves on every rank: what is written, and how often."""

import glob
import json
import os
import tempfile

import cases
import launch
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES

RANKS = 2


@pytest.fixture(scope='module', params=KERAS_PACKAGES[-1:])
def shown(request, tmpdir_factory):
    """The package, the folder, and what each worker found."""
    folder = str(tmpdir_factory.mktemp('saving_by_all'))
    places = os.path.join(tempfile.gettempdir(), 'keras-parallax-*')
    before = set(glob.glob(places))
    outcome = launch.run(RANKS, 'parallel/saving_by_all_worker.py', folder, request.param)
    assert outcome.code == 0, outcome.output[-5000:]
    ranks = []
    for rank in range(RANKS):
        with open(os.path.join(folder, 'rank-%d.json' % rank)) as file:
            ranks.append(json.load(file))
    return request.param, folder, ranks, set(glob.glob(places)) - before


def files(found):
    return [save['file'] for save in found]


def owned(found):
    """Whether each array of the worker's model was in the file, after each save."""
    return [all(save['own']) for save in found]


@pytest.mark.parametrize('case', ['callbacks', 'at_once', 'by_turns', 'changed', 'exported'])
def test_what_all_ranks_save_to_one_path_is_written_once(shown, case):
    first, second = (rank[case] for rank in shown[2])
    assert files(first) == files(second)
    # Each time another file.
    assert len({tuple(file) for file in files(first)}) == len(first)


@pytest.mark.parametrize('case', ['at_once', 'by_turns', 'changed', 'of_each'])
def test_the_file_is_there_with_its_content_when_a_call_returns(shown, case):
    for rank in shown[2]:
        assert owned(rank[case]) == [True] * len(rank[case])
    contents = [save['arrays'] for save in shown[2][0][case]]
    if case in ('by_turns', 'changed'):
        assert all(one != other for one, other in zip(contents, contents[1:]))


def test_each_rank_writes_to_a_path_of_its_own(shown):
    first, second = (rank['of_each'][0] for rank in shown[2])
    assert first['file'] != second['file'] and first['arrays'] == second['arrays']


def test_the_averages_of_rank_0_are_saved_whoever_comes_first(shown):
    first, second = (rank['averages'] for rank in shown[2])
    assert owned(first) == [True, True]
    # Where rank 1 came second, it left the file of rank 0 as it was.
    assert first[0]['file'] == second[0]['file'] and owned(second)[0] is False
    # Where it came first it wrote its own, and rank 0 after it.
    assert first[1]['file'] != second[1]['file'] and owned(second)[1] is True


def test_the_weights_that_rank_0_alone_has_set_are_saved_whoever_comes_first(shown):
    first, second = (rank['set_on_rank_0'] for rank in shown[2])
    assert owned(first) == [True, True]
    # Where rank 1 came second, it left the file of rank 0 as it was.
    assert first[0]['file'] == second[0]['file'] and owned(second)[0] is False
    assert first[1]['file'] != second[1]['file'] and owned(second)[1] is True


def test_an_export_of_rank_0_takes_the_place_of_one_with_other_averages(shown):
    _, folder, (first, second), _ = shown
    assert first['exported_averages'][0]['file'] != second['exported_averages'][0]['file']
    assert sorted(os.listdir(os.path.join(folder, 'averages'))) == ['saved_model.pb', 'variables']


def test_any_one_rank_saves_alone_and_a_file_that_has_gone_is_written_again(shown):
    _, folder, (first, second), _ = shown
    assert owned(second['alone']) == [True, True] and owned(first['alone']) == [True]
    assert os.path.exists(os.path.join(folder, 'alone.h5'))
    assert os.path.exists(os.path.join(folder, 'moved.h5'))


def test_a_callback_of_keras_on_all_ranks_saves_the_numbers_of_plain_keras(shown):
    package, folder, _, _ = shown
    keras, case = cases.keras_module(package), cases.CASES['adam']
    keras.backend.clear_session()
    plain = case.model(keras)
    plain.compile(reference.gated(case.optimizer(keras)), 'mse')
    plain.set_weights(cases.start_weights(plain))
    for epoch in range(3):
        for batch in cases.joined_batches(case, RANKS, 4):
            plain.train_on_batch(*batch)
        saved = keras.models.load_model(os.path.join(folder, '%d.h5' % (epoch + 1)))
        expected = plain.get_weights()
        for found, value in zip(saved.get_weights(), expected):
            np.testing.assert_allclose(found, value, rtol=0, atol=1e-5 * np.abs(value).max())
    saved.load_weights(os.path.join(folder, 'weights.h5'))
    for found, value in zip(saved.get_weights(), expected):
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-5 * np.abs(value).max())
    keras.backend.clear_session()


def test_sets_and_functions_in_the_configuration_of_an_optimizer_are_no_mismatch(shown):
    """Two processes order sets in other ways, and have functions at other addresses."""
    assert [rank['configured'] for rank in shown[2]] == [[5], [5]]


def test_nothing_is_left_in_the_folder_for_temporary_files(shown):
    assert shown[3] == set()
