# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a job assigns a server to itself, and finds out whether one serves it; the server is here."""

import socket

import pytest

from keras_parallax.engine.job import dedicated_servers
from keras_parallax.engine.job.allowed_hosts import AllowedHosts, HostFacts
from keras_parallax.engine.job.dedicated_servers import (
    JobAssignment,
    ServerFacts,
    WaitingServer,
    ask,
    assign,
    server_problem,
)
from keras_parallax.errors import ServerLostError

HOST = HostFacts('gpu-7', 'a', ['10.0.0.7'], ['10.7.0.0/16'])
FACTS = ServerFacts(HOST, 'no filter', None)
ALLOWED = AllowedHosts(('10.0.0.1', '10.0.0.2'), ('10.7.0.0/16',), False)


def free_port():
    with socket.socket() as test:
        test.bind(('127.0.0.1', 0))
        return test.getsockname()[1]


@pytest.fixture(scope='module')
def port():
    return free_port()


@pytest.fixture(scope='module')
def server(port):
    return WaitingServer(port, FACTS)


def test_an_assignment_is_read_as_it_was_written():
    cluster = {'worker': ['a:1', 'b:1'], 'server_7': ['c:1']}
    assignment = JobAssignment(cluster, 'server_7', 0, ALLOWED)
    assert JobAssignment.from_text(assignment.to_text()) == assignment


def test_a_server_that_waits_serves_no_job_yet(server, port):
    address = '127.0.0.1:%d' % port
    expected = 'The server at %s was started anew, so what it held is lost.' % address
    assert server_problem(address, 'server_7', 0) == expected


def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(dedicated_servers, '_REACH_SECONDS', 0)
    address = '127.0.0.1:%d' % free_port()
    assert server_problem(address, 'server_7', 0) == (
        'The server at %s is gone (nothing listens there).' % address
    )
    with pytest.raises(ServerLostError, match='No server answers at ' + address):
        ask([address])


def test_a_waiting_server_tells_each_job_that_asks_about_its_host(server, port):
    address = '127.0.0.1:%d' % port
    assert ask([address]) == ask([address]) == [FACTS]


def test_the_reason_why_a_server_stays_open_depends_on_the_hosts_of_the_job():
    assert FACTS.problem_with(ALLOWED) == 'no filter'
    assert FACTS.problem_with(ALLOWED._replace(one_host=True)) is None
    assert FACTS.problem_with(ALLOWED._replace(networks=('0.0.0.0/0',))) is None


def test_a_server_learns_of_its_job(server, port, monkeypatch):
    monkeypatch.setattr(dedicated_servers, '_TAKE_SECONDS', 0)
    cluster = {'worker': ['a:1'], 'server_7': ['127.0.0.1:%d' % port]}
    # It would start anew, which this one does not.
    problem = assign(cluster, 'server_7', [ALLOWED])
    assert problem.endswith('It was told of this job, but does not serve it.')
    assert server.came.wait(30)
    assert JobAssignment.from_text(server.assignment) == JobAssignment(
        cluster, 'server_7', 0, ALLOWED
    )
