# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The store where workers meet that a scheduler has started."""

import http.client
import os
import subprocess
import sys

import as_scheduler
import pytest

from keras_parallax.engine.job import rendezvous_server
from keras_parallax.errors import StackError


@pytest.fixture(scope='module')
def port():
    port = as_scheduler.free_port()
    rendezvous_server._serve(port)
    return port


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection('localhost', port, timeout=10)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_what_was_put_under_a_key_is_found_there_and_nowhere_else(port):
    assert ask(port, 'PUT', '/global/0', b'one\0two') == (200, b'')
    assert ask(port, 'GET', '/global/0') == (200, b'one\0two')
    assert ask(port, 'GET', '/global/1') == (404, b'')
    assert ask(port, 'GET', '/local_0/0') == (404, b'')


def test_an_empty_value_is_one(port):
    ask(port, 'PUT', '/global/2', b'')
    assert ask(port, 'GET', '/global/2') == (200, b'')


def test_a_rank_that_is_done_may_say_so(port):
    assert ask(port, 'DELETE', '/global/0') == (200, b'')
    # Another may not have read its address yet.
    assert ask(port, 'GET', '/global/0')[1] == b'one\0two'


def test_a_port_that_is_taken_is_named(port):
    with pytest.raises(StackError, match='could not open port %d.*_PORT on every worker' % port):
        rendezvous_server._serve(port)


def test_a_rank_0_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(rendezvous_server, 'WAIT_SECONDS', -1)
    # Other tests of this process may have initialized Horovod.
    monkeypatch.setattr(rendezvous_server, '_is_initialized', lambda: False)
    environ = as_scheduler.variables("kubernetes", 1, 2, 1)
    with pytest.raises(StackError, match='Rank 1 has waited in vain for rank 0 at localhost'):
        rendezvous_server.join(environ)
    assert 'HOROVOD_RANK' not in environ


LATE = """
import horovod.tensorflow as hvd
hvd.init()
import keras_parallax as kp
from keras_parallax.engine.step import step_spec
for make in (kp.ParallaxStrategy, step_spec.HorovodWorkers):
    try:
        make()
    except kp.StackError as error:
        print(error)
"""


def test_ranks_that_horovod_has_taken_for_single_ones_are_told_so():
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
    environ.update(as_scheduler.variables('slurm', 1, 2, 1))
    text = subprocess.check_output(
        [sys.executable, '-c', LATE], env=environ, universal_newlines=True, cwd='/'
    )
    told = 'Rank 1 of 2 was started by Slurm or Kubernetes, but hvd.init() came first'
    assert text.count(told) == 2
