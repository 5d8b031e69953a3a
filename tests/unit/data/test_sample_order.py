# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which samples are whose."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keras_parallax.data import sample_order as order_module
from keras_parallax.data.sample_order import Order
from keras_parallax.errors import DataError

SEEDS = st.one_of(st.none(), st.integers(0, 2**32 - 1))
ORDERS = st.builds(Order, st.integers(1, 60), st.integers(1, 9), SEEDS, st.booleans())
EPOCHS = st.integers(0, 5)


@given(ORDERS, EPOCHS)
def test_all_ranks_have_equally_many(order, epoch):
    lengths = {len(order.of_rank(rank, epoch)) for rank in range(order.ranks)}
    assert lengths == {order.length}


@given(ORDERS, EPOCHS)
def test_no_sample_is_trained_on_twice_and_few_are_left_out(order, epoch):
    assume(order.drop_remainder)
    numbers = np.concatenate([order.of_rank(rank, epoch) for rank in range(order.ranks)])
    assert len(set(numbers)) == len(numbers) == order.count - order.remainder
    assert set(numbers) <= set(range(order.count))


@given(ORDERS, EPOCHS)
def test_every_sample_is_there_where_some_are_repeated(order, epoch):
    assume(not order.drop_remainder)
    numbers = np.concatenate([order.of_rank(rank, epoch) for rank in range(order.ranks)])
    assert set(numbers) == set(range(order.count))
    assert 0 <= len(numbers) - order.count < order.ranks


@given(ORDERS, EPOCHS, st.integers(1, 9))
def test_batches_of_all_ranks_are_those_of_one_process(order, epoch, batch_size):
    joined, parts = order.of_all(epoch), range(order.ranks)
    for begin in range(0, order.length, batch_size):
        batches = [order.of_rank(rank, epoch)[begin : begin + batch_size] for rank in parts]
        whole = joined[begin * order.ranks : (begin + batch_size) * order.ranks]
        assert sorted(np.concatenate(batches)) == sorted(whole)


@given(ORDERS, EPOCHS, st.integers(1, 9))
def test_the_order_of_one_process_is_the_same_for_every_number_of_ranks(order, epoch, ranks):
    other = order._replace(ranks=ranks)
    length = min(order.count - order.remainder, other.count - other.remainder)
    assert (order.of_all(epoch)[:length] == other.of_all(epoch)[:length]).all()


def test_each_epoch_and_each_seed_has_an_order_of_its_own():
    orders = {
        tuple(Order(50, 2, seed).of_all(epoch)) for seed in (0, 1, 2**32 - 1) for epoch in (0, 1, 7)
    }
    assert len(orders) == 9


def test_without_a_seed_samples_stay_in_order():
    assert Order(7, 3).of_all(4).tolist() == [0, 1, 2, 3, 4, 5]
    assert Order(7, 3).of_rank(1, 4).tolist() == [1, 4]


def test_an_order_is_the_same_in_every_version():
    # A job that goes on with another NumPy must not train on samples twice.
    assert Order(10, 1, 3).of_all(2).tolist() == [0, 9, 3, 8, 1, 6, 7, 5, 4, 2]


@pytest.mark.parametrize('count', [0, 1, 3])
def test_an_empty_share_is_refused(count):
    with pytest.raises(DataError, match='empty'):
        order_module.check(Order(count, 4), 'files')


def test_fewer_files_than_workers_go_to_several_on_demand():
    order = Order(3, 4, drop_remainder=False)
    order_module.check(order, 'files')
    assert [order.of_rank(rank, 0).tolist() for rank in range(4)] == [[0], [1], [2], [0]]


@pytest.mark.parametrize(
    'order, sentence',
    [
        (Order(8, 2), None),
        (Order(5, 2), '5 files on 2 workers: 1 of them is left out of each epoch.'),
        (
            Order(8, 3, 0),
            '8 files on 3 workers: 2 of them are left out of each epoch, not always the same.',
        ),
        (Order(8, 3, None, False), '8 files on 3 workers: 1 of them is repeated in each epoch.'),
    ],
)
def test_a_sentence_says_what_becomes_of_the_remainder(order, sentence):
    assert order_module.remainder_sentence(order, 'files') == sentence
