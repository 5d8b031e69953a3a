# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Arrays as arguments of `fit`."""

import warnings

import numpy as np
import pytest
import scipy.sparse

from keras_parallax.data.fit_arrays import ArrayShare, arrays
from keras_parallax.data.sample_order import Order
from keras_parallax.errors import DataError

X, Y = np.arange(24).reshape(12, 2), np.arange(12.0)


def test_arguments_are_those_that_were_given(as_worker):
    as_worker(0, 2)
    assert sorted(arrays(X)) == ['shuffle', 'x']
    assert sorted(arrays(X, Y)) == ['shuffle', 'x', 'y']
    assert sorted(arrays(X, Y, sample_weight=Y)) == ['sample_weight', 'shuffle', 'x', 'y']
    assert arrays(X)['shuffle'] is False


def test_a_share_has_the_rows_of_an_epoch(as_worker):
    for rank in range(3):
        as_worker(rank, 3)
        given = arrays({'ids': X}, [Y], seed=5)
        ids, (targets,) = given['x']['ids'], given['y']
        for epoch in (0, 2, 1):
            for share in (ids, targets):
                share.begin_epoch(epoch)
            rows = Order(12, 3, 5).of_rank(rank, epoch)
            assert (ids == X[rows]).all()
            assert (targets == Y[rows]).all()


def test_a_share_of_a_sparse_matrix_has_the_rows_of_an_epoch_and_so_has_an_array_of_it(as_worker):
    as_worker(1, 2)
    matrix = scipy.sparse.random(12, 3, 0.5, random_state=0)
    given = arrays({'words': matrix}, Y, seed=5, validation_split=0.25)
    share, (validation, _) = given['x']['words'], given['validation_data']
    dense, whole = share.toarray(), matrix.toarray()
    for epoch in (0, 2, 1):
        share.begin_epoch(epoch)
        rows = whole[Order(9, 2, 5).of_rank(1, epoch)]
        assert scipy.sparse.issparse(share) and (share.tocoo().toarray() == rows).all()
        assert (dense == rows).all() and (share[[0, 2]].toarray() == rows[[0, 2]]).all()
    assert not share[1:3].changes
    assert (validation['words'].toarray() == whole[10::2]).all()


@pytest.mark.parametrize('kind', [list, lambda texts: np.array(texts, object), np.array])
def test_a_share_of_strings_has_the_rows_of_an_epoch(as_worker, kind):
    as_worker(0, 2)
    texts = ['text %d' % number for number in range(12)]
    share = arrays(kind(texts), seed=5)['x']
    for epoch in (0, 2, 1):
        share.begin_epoch(epoch)
        assert share.tolist() == [texts[row] for row in Order(12, 2, 5).of_rank(0, epoch)]


def test_what_keras_makes_of_a_share_has_its_rows(as_worker):
    as_worker(0, 2)
    share = arrays(Y, seed=5)['x']
    column = np.expand_dims(share, 1)
    share.begin_epoch(3)
    assert (column[:, 0] == Y[Order(12, 2, 5).of_rank(0, 3)]).all()
    assert not column.changes
    assert isinstance(share, ArrayShare)


def test_without_shuffling_a_share_stays(as_worker):
    as_worker(1, 2)
    share = arrays(Y, shuffle=False)['x']
    assert not share.changes
    share.begin_epoch(3)
    assert (share == Y[1::2]).all()


def test_the_last_samples_validate_and_are_never_trained_on(as_worker):
    trained, validated = [], []
    for rank in range(2):
        as_worker(rank, 2)
        given = arrays(Y, Y, sample_weight=Y, validation_split=0.25)
        x, y, weights = given['validation_data']
        assert (x == y).all()
        assert (x == weights).all()
        validated.extend(x)
        for epoch in range(5):
            given['x'].begin_epoch(epoch)
            trained.extend(given['x'])
    assert sorted(validated) == [9, 10, 11]
    assert max(trained) < 9


def test_too_few_samples_are_refused(as_worker):
    as_worker(0, 4)
    with pytest.raises(DataError, match='There are 3 samples for 4 workers'):
        arrays(X[:3])
    with pytest.raises(DataError, match='There are no samples'):
        arrays(X[:0])
    with pytest.raises(DataError, match='leaves 3 samples to validate on for 4 workers'):
        arrays(X, validation_split=0.2)
    with pytest.raises(DataError, match='validation_split is from 0 to below 1'):
        arrays(X, validation_split=1)


def test_rank_0_says_once_how_many_are_repeated(as_worker):
    as_worker(0, 5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        arrays(X, Y, drop_remainder=False)
    (warning,) = caught
    assert '12 samples on 5 workers: 3 of them are repeated' in str(warning.message)
    # It points to the line of the script.
    assert warning.filename == __file__
