# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What TensorFlow says of a failed run is raised in our words."""

from types import SimpleNamespace

import pytest
from frameworks import tf

import keras_parallax as kp
from keras_parallax.engine.session.run_errors import translated
from keras_parallax.engine.tables.pull import REFUSAL_MARK


def job_with(problem=None, later=None):
    """A job that has a problem, or has one once its watch has been waited for."""
    job = SimpleNamespace(rank=1, problem=problem)
    job.servers = SimpleNamespace(problem=lambda: None)
    job.watch = SimpleNamespace(await_problem=lambda: setattr(job, 'problem', later))
    return job


def scope(job, graph=None):
    return SimpleNamespace(job=job, graph=graph, servers=SimpleNamespace(count=3))


def fail(error):
    raise error


def test_what_goes_well_returns_what_it_returns():
    assert translated(scope(job_with()), max, 3, 5, key=abs) == 5


def test_nothing_is_run_in_a_job_that_has_failed():
    gone = kp.WorkerFailedError('rank 2 is gone')
    with pytest.raises(kp.WorkerFailedError, match='rank 2 is gone'):
        translated(scope(job_with(gone)), fail, AssertionError())


def test_a_run_that_breaks_off_is_told_by_the_rank_that_is_gone():
    gone = kp.WorkerFailedError('rank 2 is gone')
    error = tf.errors.UnavailableError(None, None, 'Socket closed')
    with pytest.raises(kp.WorkerFailedError) as raised:
        translated(scope(job_with(later=gone)), fail, error)
    assert raised.value is gone and raised.value.__cause__ is error


def test_an_error_of_a_function_of_the_users_is_left_as_it_is():
    gone = kp.WorkerFailedError('rank 2 is gone')
    with tf.Graph().as_default() as graph:
        tf.py_func(max, [1.0, 2.0], tf.float32, name='f')
        tf.no_op(name='g')
    # TensorFlow 1.11 says what the operation is, TensorFlow 2 does not.
    for message in ('{{node other/f}} = PyFunc[...]', 'KeyError: [[{{node f}}]]'):
        error = tf.errors.UnknownError(None, None, message)
        with pytest.raises(tf.errors.UnknownError) as raised:
            translated(scope(job_with(later=gone), graph), fail, error)
        assert raised.value is error
    error = tf.errors.UnknownError(None, None, 'Horovod has shut down: [[{{node g}}]]')
    with pytest.raises(kp.WorkerFailedError):
        translated(scope(job_with(later=gone), graph), fail, error)


def test_a_write_that_shards_cannot_take_is_named():
    message = 'assertion failed: [%s] [scatter] [words]' % REFUSAL_MARK
    error = tf.errors.InvalidArgumentError(None, None, message)
    with pytest.raises(kp.ParallaxError, match='scatter would write to words.* 3 servers'):
        translated(scope(job_with()), fail, error)
