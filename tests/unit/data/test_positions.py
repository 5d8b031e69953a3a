# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""At which batch of an epoch `fit` goes on: by the data, then and now."""

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.data import positions
from keras_parallax.data.sample_order import Order


def shares(count, ranks, batch_size, seed=0, drop_remainder=True):
    """What is said of arrays of `kp.data.arrays`."""
    order = Order(count, ranks, seed, drop_remainder)
    return dict(order._asdict(), kind='arrays of kp.data.arrays', batch_size=batch_size)


def trained(order, batch_size, batches):
    """The samples of the first batches of an epoch, of all workers, a set."""
    return {
        sample
        for rank in range(order.ranks)
        for sample in order.of_rank(rank, 3)[: batches * batch_size]
    }


@pytest.mark.parametrize('ranks, batch_size', [(2, 6), (3, 4), (1, 12), (4, 3), (6, 2), (12, 1)])
@pytest.mark.parametrize('count', [120, 127])
def test_the_same_batches_are_over_on_another_number_of_workers(count, ranks, batch_size):
    saved, now = shares(count, 2, 6), shares(count, ranks, batch_size)
    assert positions.batches_over(4, saved, now) == (4, 0)
    before = trained(Order(count, 2, 0), 6, 4)
    assert trained(Order(count, ranks, 0), batch_size, 4) == before
    assert len(before) == 48


@pytest.mark.parametrize('ranks, batch_size, over, again', [
    (3, 6, 2, 12), (1, 6, 8, 0), (2, 5, 4, 8), (2, 24, 1, 0), (2, 50, 0, 48),
])  # fmt: skip
def test_samples_are_trained_again_rather_than_left_out(ranks, batch_size, over, again):
    saved, now = shares(120, 2, 6), shares(120, ranks, batch_size)
    assert positions.batches_over(4, saved, now) == (over, again)
    before = trained(Order(120, 2, 0), 6, 4)
    passed_over = trained(Order(120, ranks, 0), batch_size, over)
    assert passed_over <= before and len(before - passed_over) == again


@pytest.mark.parametrize('drop_remainder', [True, False])
@pytest.mark.parametrize('ranks, batch_size, batches', [(2, 6, 2), (3, 5, 2), (1, 7, 4)])
def test_an_epoch_that_is_over_is_so_whatever_the_batches(
    ranks, batch_size, batches, drop_remainder
):
    # The last batch of each worker has 5 samples, or 6.
    saved = shares(23, 2, 6, drop_remainder=drop_remainder)
    now = shares(23, ranks, batch_size, drop_remainder=drop_remainder)
    found, again = positions.batches_over(2, saved, now)
    assert again == 0 and (found - 1) * batch_size < Order(**order_of(now)).length <= (
        found * batch_size
    )
    assert found == batches


def order_of(data):
    return {name: data[name] for name in Order._fields}


@pytest.mark.parametrize('changed, told', [
    ({'count': 121}, 'count=120, and now it is 121'),
    ({'seed': 1}, 'seed=0, and now it is 1'),
    ({'drop_remainder': False}, 'drop_remainder=True, and now it is False'),
    ({'kind': 'arrays'}, 'kp.data.arrays, and now it is arrays'),
])  # fmt: skip
def test_other_data_is_refused(changed, told):
    saved = shares(120, 2, 6)
    with pytest.raises(kp.DataError, match=told + '.*model.load_weights'):
        positions.batches_over(4, saved, dict(saved, **changed))


@pytest.mark.parametrize('changed, told', [
    ({'samples': 41}, '40 samples on each worker, and now it is 41'),
    ({'batch_size': 5}, '4 samples in a batch, and now it is 5'),
    ({'ranks': 3}, '2 workers, and now it is 3'),
])  # fmt: skip
def test_arrays_of_a_workers_own_are_to_be_the_same(changed, told):
    saved = {'kind': 'arrays', 'ranks': 2, 'samples': 40, 'batch_size': 4, 'shuffles': False}
    assert positions.batches_over(4, saved, saved) == (4, 0)
    with pytest.raises(kp.DataError, match=told):
        positions.batches_over(4, saved, dict(saved, **changed))


def test_arrays_that_keras_shuffles_need_the_order_of_each_worker():
    data = {'kind': 'arrays', 'ranks': 2, 'samples': 40, 'batch_size': 4, 'shuffles': True}
    assert positions.batches_over(4, data, data, orders=2) == (4, 0)
    with pytest.raises(kp.DataError, match='of rank 0, but not of all 2 workers.*sharded=True'):
        positions.batches_over(4, data, data, orders=1)


@pytest.mark.parametrize('ranks, expected', [(2, (9, 0)), (3, (6, 0)), (1, (18, 0)), (4, (4, 2))])
def test_a_generator_of_all_workers_goes_on_on_any_number_of_them(ranks, expected):
    saved = {'kind': 'a generator of kp.data.shard', 'ranks': 2}
    assert positions.batches_over(9, saved, dict(saved, ranks=ranks)) == expected


class Batches(keras.utils.Sequence):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return np.ones((2, 1)), np.ones((2, 1))


def test_data_is_told_apart_by_its_kind():
    kp.ParallaxStrategy()
    x = np.ones((10, 2))
    for given, kind in (
        (kp.data.arrays(x)['x'], 'arrays of kp.data.arrays'),
        (kp.data.arrays([x, x], shuffle=False)['x'], 'arrays of kp.data.arrays'),
        (x, 'arrays'),
        ({'one': x, 'other': x}, 'arrays'),
        (kp.data.shard(Batches()), 'a Sequence of kp.data.shard'),
        (Batches(), 'a Sequence'),
        (iter([x]), 'a generator'),
        (kp.data.shard(iter([x])), 'a generator of kp.data.shard'),
        (tf.data.Dataset.from_tensor_slices(x), 'a tf.data.Dataset'),
        (None, 'tensors'),
        (tf.constant(x), 'tensors'),
    ):
        assert positions.described({'x': given})['kind'] == kind
    # Rows that were taken out of a share are as any others.
    part = kp.data.arrays(x)['x'][:4]
    assert positions.described({'x': part, 'batch_size': 3}) == {
        'kind': 'arrays', 'ranks': 1, 'samples': 4, 'batch_size': 3, 'shuffles': True,
    }  # fmt: skip


def test_data_whose_order_will_not_be_known_is_refused():
    for named, told in (
        ({'generator': Batches()}, 'a Sequence.*ahead of training.*Take kp.data'),
        ({'x': None, 'steps_per_epoch': 3}, 'tensors'),
    ):
        with pytest.raises(kp.DataError, match=told):
            positions.check_known(positions.described(named))
    for named in ({'shuffle': False}, {'workers': 0}):
        positions.check_known(positions.described(dict(named, generator=Batches())))
