# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which elements of a `tf.data.Dataset` a worker takes."""

import pytest
from frameworks import tf

from keras_parallax.compat import datasets


def elements(dataset):
    """All elements of a data set, in its graph."""
    following = tf.data.make_one_shot_iterator(dataset).get_next() if hasattr(
        tf.data, 'make_one_shot_iterator'
    ) else dataset.make_one_shot_iterator().get_next()  # fmt: skip
    found = []
    with tf.Session() as session:
        while True:
            try:
                found.append(session.run(following))
            except tf.errors.OutOfRangeError:
                return found


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize(
    'drop_remainder, shares',
    [(True, [[0, 3], [1, 4], [2, 5]]), (False, [[0, 3, 6], [1, 4, 7], [2, 5, 6]])],
)
def test_all_ranks_have_equally_many(drop_remainder, shares):
    found = [
        elements(datasets.every_nth(tf.data.Dataset.range(8), 3, rank, drop_remainder))
        for rank in range(3)
    ]
    assert found == shares


def test_elements_may_have_any_structure_and_shape():
    dataset = tf.data.Dataset.range(7).map(lambda number: ({'a': number}, number + 1)).batch(2)
    (element,) = elements(datasets.every_nth(dataset, 3, 1, True))
    assert element[0]['a'].tolist() == [2, 3]
    assert element[1].tolist() == [3, 4]
    found = [elements(datasets.every_nth(dataset, 4, rank, True)) for rank in range(4)]
    assert found[3][0][1].tolist() == [7]


@pytest.mark.skipif(not hasattr(tf, 'RaggedTensorSpec'), reason='no data set has ragged elements')
@pytest.mark.parametrize('drop_remainder', [True, False])
def test_ragged_elements_stay_so(drop_remainder):
    rows = [[1], [2, 3], [4, 5, 6], [], [7]]
    dataset = tf.data.Dataset.from_tensor_slices({'ids': tf.ragged.constant(rows, 'int64')})
    own = datasets.every_nth(dataset, 2, 1, drop_remainder).batch(3)
    (element,) = elements(own)
    assert element['ids'].to_list() == [[2, 3], []] + [[7]] * (not drop_remainder)


def test_what_a_dataset_is():
    assert datasets.is_dataset(tf.data.Dataset.range(3))
    assert not datasets.is_dataset([1, 2])
