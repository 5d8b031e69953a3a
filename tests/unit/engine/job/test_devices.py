# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The devices of a job's tasks."""

import pytest

from keras_parallax.compat import session_config
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.devices import (
    GPUS_VARIABLE,
    card_error,
    card_of,
    card_problem,
    shard_device,
    worker_device,
)
from keras_parallax.errors import PlanError


def test_device_of_a_worker_is_its_task():
    assert worker_device(3) == '/job:worker/task:3'


def test_device_of_a_shard_is_the_cpu_of_its_server():
    assert shard_device(3) == '/job:worker/task:3/device:CPU:0'


@pytest.mark.parametrize('device', [worker_device(3), shard_device(3)])
def test_devices_are_what_tensorflow_reads(device):
    spec = tf.DeviceSpec.from_string(device)
    assert (spec.job, spec.task) == ('worker', 3)


def test_a_rank_has_the_card_of_its_local_rank_or_that_which_is_named_for_it():
    assert card_of(3, 4, 1, {}) == 1
    assert [card_of(rank, 4, rank % 2, {GPUS_VARIABLE: '2,3,0, 1'}) for rank in range(4)] == [
        2, 3, 0, 1,
    ]  # fmt: skip


@pytest.mark.parametrize('text', ['0', '0,1,2', '0,x', '0,', '0 1'])
def test_cards_that_are_not_one_for_each_worker_are_refused(text):
    with pytest.raises(
        PlanError, match='On rank 1, KERAS_PARALLAX_GPUS is .*the numbers of 2 cards'
    ):
        card_of(1, 2, 1, {GPUS_VARIABLE: text})


@pytest.mark.parametrize('card, cards', [(0, 1), (3, 4), (1, 0), (1, None)])
def test_a_card_that_is_there_and_a_host_without_any_are_no_problem(card, cards):
    assert card_problem(session_config.of_worker(card), cards, 1, 'h') is None


def test_a_card_that_is_not_there_is_named_with_how_to_share_one():
    problem = card_problem(session_config.of_worker(1), 1, 1, 'h')
    for fact in ('Rank 1', 'card 1', 'host h', 'sees 1 there', '--resources', '`h: 0, 0`'):
        assert fact in problem


def test_what_tensorflow_says_of_a_card_that_is_not_there_is_understood():
    config = session_config.of_worker(1)
    said = "'visible_device_list' listed an invalid GPU id '1' but visible device count is 1"
    problem = card_error(config, tf.errors.InvalidArgumentError(None, None, said), 1, 'h')
    assert 'Rank 1' in problem and said in problem and '--resources' in problem
    other = tf.errors.UnknownError(None, None, 'Could not start gRPC server')
    assert card_error(config, other, 1, 'h') is None
