# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A `Sequence` of one worker's batches, as Keras reads it."""

import itertools

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF2

from keras_parallax.data.sample_order import Order
from keras_parallax.data.shards import shard


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    return cases.keras_module(request.param)


@pytest.fixture
def numbered(keras):
    """A `Sequence` of ten batches that counts how many epochs have ended."""

    class Numbered(keras.utils.Sequence):
        ended = 0

        def __len__(self):
            return 10

        def __getitem__(self, index):
            return np.full((1, 1), index), np.zeros((1, 1))

        def on_epoch_end(self):
            self.ended += 1

    return Numbered()


def number_of(batch):
    return int(batch[0][0, 0])


def test_a_worker_has_its_batches_of_each_epoch(as_worker, keras, numbered):
    as_worker(1, 2)
    share = shard(numbered, seed=3)
    assert isinstance(share, keras.utils.Sequence)
    assert len(share) == 5
    for epoch in range(3):
        batches = [number_of(share[index]) for index in range(len(share))]
        assert batches == Order(10, 2, 3).of_rank(1, epoch).tolist()
        share.on_epoch_end()
    assert numbered.ended == 3


@pytest.mark.parametrize('passed, made', [(3, [3, 4]), (5, [4])])
def test_batches_that_are_passed_over_are_not_made(as_worker, numbered, passed, made):
    as_worker(0, 2)
    share = shard(numbered, seed=3)
    asked, make = [], type(numbered).__getitem__

    def counted(sequence, index):
        asked.append(index)
        return make(sequence, index)

    type(numbered).__getitem__ = counted
    share.pass_over(passed)
    order = Order(10, 2, 3)
    batches = [number_of(share[index]) for index in range(5)]
    assert batches[passed:] == order.of_rank(0, 0).tolist()[passed:]
    assert sorted(set(asked)) == sorted(order.of_rank(0, 0)[made])
    # The next epoch is whole.
    share.on_epoch_end()
    assert [number_of(share[index]) for index in range(5)] == order.of_rank(0, 1).tolist()


def test_an_iteration_goes_on_with_the_next_epoch(as_worker, numbered):
    as_worker(0, 5)
    batches = map(number_of, itertools.islice(shard(numbered, seed=3, epoch=2), 4))
    order = Order(10, 5, 3)
    assert list(batches) == order.of_rank(0, 2).tolist() + order.of_rank(0, 3).tolist()


@pytest.mark.parametrize('workers', [0, 1, 2])
def test_fit_reads_the_batches_of_its_epochs(keras, numbered, monkeypatch, workers):
    import keras_parallax as kp
    from keras_parallax.data import worker

    read = []
    get = type(numbered).__getitem__
    monkeypatch.setattr(
        type(numbered), '__getitem__', lambda self, index: read.append(index) or get(self, index)
    )
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        model.compile('sgd', 'mse')
    share = shard(numbered, seed=3)
    fit = model.fit if TF2 else model.fit_generator
    for begin in (0, 1):  # What an earlier call has read ahead does not count.
        del read[:]
        fit(share, epochs=3, initial_epoch=begin, workers=workers, verbose=0)
        asked = [Order(10, 1, 3).of_all(epoch).tolist() for epoch in range(begin, 3)]
        # Which of two threads is the first is chance.
        epochs = [read[start : start + 10] for start in range(0, 10 * len(asked), 10)]
        if workers < 2:
            assert epochs == asked
        assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * len(asked)
    assert worker.current().size == 1
