"""Numbers of batches: what Keras tells a callback, and what the ranks must have alike."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.callbacks.epoch_reports import batches_per_epoch, check_equal_batches
from keras_parallax.errors import UnequalBatchesError


@pytest.mark.parametrize(
    'params, batches',
    [
        ({'steps': 7, 'samples': None, 'batch_size': None}, 7),
        # Keras prefers steps when it has both.
        ({'steps': 7, 'samples': 100, 'batch_size': 10}, 7),
        ({'steps': None, 'samples': 100, 'batch_size': 10}, 10),
        ({'steps': None, 'samples': 101, 'batch_size': 10}, 11),
        ({'steps': None, 'samples': 1, 'batch_size': 10}, 1),
        ({'steps': None, 'samples': None, 'batch_size': 10}, None),
        ({'steps': None, 'samples': 100, 'batch_size': None}, None),
        ({'samples': np.int64(101), 'batch_size': np.int64(10)}, 11),
        ({}, None),
    ],
)
def test_number_of_batches_comes_from_steps_or_from_samples(params, batches):
    assert batches_per_epoch(params) == batches


@given(st.integers(1, 1000), st.integers(1, 100))
def test_number_of_batches_is_that_of_the_slices_of_the_samples(samples, batch_size):
    params = {'steps': None, 'samples': samples, 'batch_size': batch_size}
    assert batches_per_epoch(params) == len(range(0, samples, batch_size))


@pytest.mark.parametrize('package', [keras, tf.keras], ids=['keras', 'tf.keras'])
@pytest.mark.parametrize(
    'fit',
    [
        lambda model: model.fit(np.zeros([7, 2]), np.zeros([7, 1]), batch_size=2, verbose=0),
        lambda model: model.fit_generator(
            ((np.zeros([2, 2]), np.zeros([2, 1])) for _ in range(99)),
            steps_per_epoch=4,
            verbose=0,
        ),
    ],
    ids=['fit', 'fit_generator'],
)
def test_number_of_batches_is_what_keras_runs(package, fit):
    package.backend.clear_session()
    model = package.models.Sequential([package.layers.Dense(1, input_shape=(2,))])
    model.compile('sgd', 'mse')
    history = fit(model)
    assert batches_per_epoch(history.params) == 4
    assert package.backend.get_value(model.optimizer.iterations) == 4


@pytest.mark.parametrize('batches', [[3], [3, 3, 3], [None, 3, None, 3], [None, None], [0, 0]])
def test_equal_or_unknown_numbers_are_accepted(batches):
    check_equal_batches(batches)


def test_unequal_numbers_are_told_rank_by_rank():
    with pytest.raises(UnequalBatchesError) as caught:
        check_equal_batches([3, None, 4, 3])
    message = str(caught.value)
    assert 'rank 0 has 3, rank 2 has 4, rank 3 has 3' in message and 'rank 1' not in message
    assert 'Give every rank the same number' in message


def test_none_at_all_is_a_number_too():
    with pytest.raises(UnequalBatchesError, match='rank 1 has 0'):
        check_equal_batches([3, 0])
