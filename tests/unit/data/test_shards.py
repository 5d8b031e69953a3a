# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""This worker's part of data of any kind."""

import itertools
import os
import pathlib
import warnings

import numpy as np
import pytest
import scipy.sparse

from keras_parallax.data import worker
from keras_parallax.data.sample_order import Order
from keras_parallax.data.shards import shard
from keras_parallax.errors import DataError, ScopeError


def said(function):
    """What a function warns of, a list of sentences."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        function()
    return [str(warning.message) for warning in caught]


def test_a_job_is_needed(monkeypatch):
    monkeypatch.setattr(worker.job_module, 'current', lambda: None)
    with pytest.raises(ScopeError, match='make a ParallaxStrategy'):
        shard(['a'])


def test_arrays_keep_their_structure_and_their_rows(as_worker):
    ids, targets = np.arange(12).reshape(6, 2), np.arange(6)
    for rank, epoch in itertools.product(range(3), range(2)):
        as_worker(rank, 3)
        named, [found] = shard(({'ids': ids}, [targets]), seed=4, epoch=epoch)
        rows = Order(6, 3, 4).of_rank(rank, epoch)
        assert (named['ids'] == ids[rows]).all()
        assert (found == targets[rows]).all()


def test_columns_and_sparse_matrices_may_be_in_the_place_of_arrays(as_worker):
    as_worker(1, 2)
    matrix = scipy.sparse.csr_matrix(np.arange(12).reshape(6, 2))
    words, names = shard((matrix, {'names': list('abcdef')}), shuffle=False)
    assert words.toarray().tolist() == [[2, 3], [6, 7], [10, 11]]
    assert names['names'].tolist() == ['b', 'd', 'f']


def test_without_shuffling_a_worker_has_every_nth_row(as_worker):
    as_worker(1, 2)
    assert shard(np.arange(6), shuffle=False, epoch=3).tolist() == [1, 3, 5]


@pytest.mark.parametrize('kind', [str, pathlib.Path])
def test_every_file_is_of_one_worker_and_none_is_opened(as_worker, kind):
    files = [kind('no_such_file_%d' % number) for number in range(8)]
    assert not any(map(os.path.exists, files))
    epochs = []
    for epoch in range(3):
        shares = []
        for rank in range(4):
            as_worker(rank, 4)
            shares.append(shard(files, seed=1, epoch=epoch))
        assert sorted(itertools.chain(*shares)) == files
        epochs.append(shares)
    assert epochs[0] != epochs[1] != epochs[2]


def test_fewer_files_than_workers_are_refused(as_worker):
    as_worker(0, 3)
    with pytest.raises(DataError, match='2 files for 3 workers: the share of some is empty'):
        shard(('a', 'b'))
    as_worker(2, 3)
    assert shard(('a', 'b'), shuffle=False, drop_remainder=False) == ['a']


@pytest.mark.parametrize('data', [[], np.zeros((0, 3)), (np.zeros(0), np.zeros(0))])
def test_an_empty_share_is_refused(as_worker, data):
    as_worker(0, 2)
    with pytest.raises(DataError, match='the share of every worker is empty'):
        shard(data)


def test_a_flag_that_is_none_is_refused(as_worker):
    as_worker(0, 2)
    with pytest.raises(DataError, match="shuffle must be True or False, but 'batch'"):
        shard(np.arange(6), shuffle='batch')
    with pytest.raises(DataError, match="drop_remainder must be True or False, but 'no'"):
        shard(np.arange(6), drop_remainder='no')


@pytest.mark.parametrize('seed', [None, -1, 2**32, 0.5, True])
def test_a_seed_that_not_all_ranks_have_is_refused(as_worker, seed):
    as_worker(0, 2)
    with pytest.raises(DataError, match='seed is a whole number'):
        shard(np.arange(3), seed=seed)


@pytest.mark.parametrize('data', [3, None, 'file', {1, 2}])
def test_data_of_another_kind_is_refused(as_worker, data):
    as_worker(0, 2)
    with pytest.raises(DataError, match='not a ' + type(data).__name__):
        shard(data)


def test_rank_0_alone_says_what_is_left_out(as_worker):
    as_worker(1, 2)
    assert said(lambda: shard(np.arange(5))) == []
    as_worker(0, 2)
    assert len(said(lambda: shard(np.arange(5)))) == 1
    assert said(lambda: shard(np.arange(6))) == []


def items(count, rank, size, as_worker, **arguments):
    as_worker(rank, size)
    return list(shard(iter(range(count)), **arguments))


def test_a_generator_gives_every_rank_as_many_items(as_worker):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        left_out = [items(8, rank, 3, as_worker) for rank in range(3)]
        repeated = [items(8, rank, 3, as_worker, drop_remainder=False) for rank in range(3)]
    assert left_out == [[0, 3], [1, 4], [2, 5]]
    assert repeated == [[0, 3, 6], [1, 4, 7], [2, 5, 6]]


def test_a_generator_is_read_no_further_than_asked(as_worker):
    as_worker(1, 3)
    source = itertools.count()
    assert next(shard(source)) == 1
    assert next(source) == 3


def test_a_generator_says_at_its_end_what_is_left_out(as_worker):
    assert said(lambda: items(6, 0, 2, as_worker)) == []
    assert said(lambda: items(5, 1, 2, as_worker)) == []
    (sentence,) = said(lambda: items(5, 0, 2, as_worker))
    assert 'The last of the 5 items of the generator' in sentence
    assert 'left out' in sentence


@pytest.mark.parametrize('count', [0, 2])
def test_a_generator_without_an_item_for_each_rank_is_refused(as_worker, count):
    with pytest.raises(DataError, match='ended after %d items, and there are 3' % count):
        items(count, 0, 3, as_worker)
