# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What follows from what workers tell each other around an epoch."""

import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, keras_module
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.callbacks import epoch_reports
from keras_parallax.errors import MetricMismatchError, ReplicaMismatchError, UnequalBatchesError


def report(logs, trained=8, validated=4):
    return {'logs': logs, 'trained': trained, 'validated': validated}


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(1, 99)), min_size=1))
def test_metrics_are_those_of_all_samples_together(parts):
    reports = [report({'loss': value, 'val_loss': -value}, n, 100 - n) for value, n in parts]
    values, counts = np.array(parts).T
    averaged = epoch_reports.averages(reports)
    assert averaged['loss'] == pytest.approx((values * counts).sum() / counts.sum())
    rest = 100 - counts
    assert averaged['val_loss'] == pytest.approx(-(values * rest).sum() / rest.sum())


def test_ranks_count_alike_where_a_number_of_samples_is_not_known():
    reports = [report({'val_loss': 1.0}, validated=3), report({'val_loss': 2.0}, validated=None)]
    assert epoch_reports.averages(reports) == {'val_loss': 1.5}


def test_a_metric_of_some_ranks_is_the_average_of_those():
    reports = [report({'a': 1.0, 'b': 1.0}), report({'a': 3.0}), report({'a': 5.0, 'b': 2.0})]
    assert epoch_reports.averages(reports) == {'a': 3.0, 'b': 1.5}


@given(st.floats(allow_nan=False), st.integers(1, 9))
def test_the_mean_of_equal_numbers_is_that_number(value, count):
    assert epoch_reports.mean([value] * count, [7] * count) == value


def test_a_loss_that_is_no_number_makes_the_average_none():
    averaged = epoch_reports.averages([report({'loss': 1.0}), report({'loss': float('nan')})])
    assert np.isnan(averaged['loss'])


def test_numbers_of_logs_leave_out_what_cannot_be_averaged():
    logs = {
        'a': np.float32(1),
        'b': 2,
        'c': np.zeros(3),
        'd': 'text',
        'e': None,
        'f': np.array(3.0),
    }
    assert epoch_reports.numbers(logs) == {'a': 1.0, 'b': 2.0, 'f': 3.0}
    assert epoch_reports.numbers(None) == {}


def test_each_rank_that_lacks_metrics_is_named_with_them():
    names = [['loss', 'val_loss'], ['loss'], ['val_loss']]
    assert epoch_reports.metrics_missing(names) == (
        'The workers have different metrics: rank 1 lacks val_loss, rank 2 lacks loss'
    )
    assert epoch_reports.metrics_missing([['loss'], ['loss']]) is None


def test_shares_of_different_sizes_are_told_by_rank():
    assert epoch_reports.shares_differ([24, 24, 24]) is None
    sentence = epoch_reports.shares_differ([24, 22])
    assert sentence.startswith('The workers trained on different numbers of samples in an epoch')
    assert 'rank 0 on 24, rank 1 on 22' in sentence


def test_epochs_are_equal_if_as_many_remain():
    epoch_reports.check_equal_epochs([(0, 5), (0, 5)])
    epoch_reports.check_equal_epochs([(2, 5), (0, 3)])
    with pytest.raises(UnequalBatchesError, match='rank 1 from initial_epoch=3 to epochs=5'):
        epoch_reports.check_equal_epochs([(0, 5), (3, 5)])


def test_callbacks_for_all_ranks_are_on_all_in_one_order():
    epoch_reports.check_equal_calls([['a', 'b'], ['a', 'b']])
    with pytest.raises(MetricMismatchError, match='rank 0 lacks b'):
        epoch_reports.check_equal_calls([['a'], ['a', 'b']])
    with pytest.raises(MetricMismatchError, match='on rank 0 it is a, b, on rank 1 b, a'):
        epoch_reports.check_equal_calls([['a', 'b'], ['b', 'a']])
    with pytest.raises(MetricMismatchError, match='on rank 0 it is a, a, on rank 1 a'):
        epoch_reports.check_equal_calls([['a', 'a'], ['a']])


def test_a_rate_of_one_rank_is_told_with_the_callbacks_that_change_it():
    users = [{'lr': ['LearningRateScheduler']}, {'lr': ['LearningRateScheduler', 'Mine']}]
    epoch_reports.check_rates([{'lr': 0.1}, {'lr': 0.1}], 'now', users)
    with pytest.raises(ReplicaMismatchError) as caught:
        epoch_reports.check_rates(
            [{'lr': 0.1, 'decay': 0.0}, {'lr': 0.2, 'decay': 0.0}], 'now', users
        )
    assert 'lr now: rank 0 has 0.1, rank 1 has 0.2' in str(caught.value)
    assert 'changed by LearningRateScheduler or Mine' in str(caught.value)
    with pytest.raises(ReplicaMismatchError, match='None of the callbacks mentions it'):
        epoch_reports.check_rates([{'lr': 0.1}, {'lr': 0.2}], 'now', [{}, {}])


# --- numbers of batches: what Keras tells a callback, and what workers must have alike ---


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
    assert epoch_reports.batches_per_epoch(params) == batches


@given(st.integers(1, 1000), st.integers(1, 100))
def test_number_of_batches_is_that_of_the_slices_of_the_samples(samples, batch_size):
    params = {'steps': None, 'samples': samples, 'batch_size': batch_size}
    assert epoch_reports.batches_per_epoch(params) == len(range(0, samples, batch_size))


@pytest.mark.parametrize('package', map(keras_module, KERAS_PACKAGES), ids=KERAS_PACKAGES)
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
    assert epoch_reports.batches_per_epoch(history.params) == 4
    assert package.backend.get_value(model.optimizer.iterations) == 4


@pytest.mark.parametrize('batches', [[3], [3, 3, 3], [None, 3, None, 3], [None, None], [0, 0]])
def test_equal_or_unknown_numbers_are_accepted(batches):
    epoch_reports.check_equal_batches(batches)


def test_unequal_numbers_are_told_rank_by_rank():
    with pytest.raises(UnequalBatchesError) as caught:
        epoch_reports.check_equal_batches([3, None, 4, 3])
    message = str(caught.value)
    assert 'rank 0 has 3, rank 2 has 4, rank 3 has 3' in message and 'rank 1' not in message
    assert 'Give every worker the same number' in message


def test_none_at_all_is_a_number_too():
    with pytest.raises(UnequalBatchesError, match='rank 1 has 0'):
        epoch_reports.check_equal_batches([3, 0])
