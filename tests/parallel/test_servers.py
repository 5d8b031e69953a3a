# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Dedicated servers: `keras-parallax server` starts, serves a job, and ends; or does not."""

import re
import signal
import socket
import threading

import launch
import pytest
import servers
from servers import Server, free_port


def train(ranks, way, *addresses, pid=0):
    return launch.run(ranks, 'parallel/servers_worker.py', way, *addresses, pid, limit=180)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_says_so_and_ends_well(tmp_path, number):
    with Server(free_port(), tmp_path) as server:
        server.wait_for('listening on port %d' % server.port)
        server.process.send_signal(number)
        assert server.wait() == 0
        assert (
            server.output()
            .splitlines()[-1]
            .endswith('ends: told by %s' % signal.Signals(number).name)
        )


def test_a_port_that_another_has_is_not_shared_with_it(tmp_path):
    with socket.socket() as other:
        other.bind(('', 0))
        other.listen(1)
        with Server(other.getsockname()[1], tmp_path) as server:
            assert server.wait() == 1
            assert 'Port %d: Address already in use' % server.port in server.output()


def test_servers_end_when_their_job_is_gone_or_wait_for_the_next_which_starts_afresh(tmp_path):
    with Server(free_port(), tmp_path, '--keep') as keeps, Server(free_port(), tmp_path) as once:
        first = train(2, 'end', keeps.address, once.address)
        assert first.code == 0, first.output
        assert once.wait() == 0
        assert once.output().splitlines()[-1].endswith('ends: the job is gone')
        keeps.wait_for('the job is gone')
        # One worker may use dedicated servers too.
        second = train(0, 'end', keeps.address)
        assert second.code == 0, second.output
        keeps.process.send_signal(signal.SIGTERM)
        assert keeps.wait() == 0
        assert keeps.output().count('serves a job of') == 2
    found = [re.search('LOSSES.*', outcome.output).group() for outcome in (first, second)]
    numbers = [list(map(float, line.split()[1:])) for line in found]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)


def test_one_worker_with_a_server_is_refused_what_it_compiles_outside_the_scope(tmp_path):
    with Server(free_port(), tmp_path) as server:
        outcome = train(0, 'outside', server.address)
    assert outcome.code == 0, outcome.output
    told = re.findall('^OUTSIDE ScopeError: .* outside the scope of', outcome.output, re.MULTILINE)
    assert len(told) == 4, outcome.output


def test_a_job_whose_server_is_killed_ends_and_names_it(tmp_path):
    with Server(free_port(), tmp_path) as server:
        outcome = train(2, 'kill', server.address, pid=server.process.pid)
    assert outcome.code not in (0, None), outcome.output
    assert 'The server at %s is gone' % server.address in outcome.output


def test_a_job_does_not_go_on_with_a_server_that_was_started_anew(tmp_path):
    again = []
    with Server(free_port(), tmp_path) as server:

        def start_again():
            server.process.wait()
            again.append(Server(server.port, tmp_path))

        restart = threading.Thread(target=start_again)
        restart.start()
        outcome = train(2, 'kill', server.address, pid=server.process.pid)
        restart.join(servers.LIMIT_SECONDS)
        with again[0]:
            assert outcome.code not in (0, None), outcome.output
            assert re.search(
                'The server at %s (is gone|was started anew)' % server.address, outcome.output
            ), outcome.output
            assert 'serves a job' not in again[0].output()


def test_a_server_that_is_not_there_is_named_with_what_to_do():
    outcome = train(0, 'absent', '127.0.0.1:%d' % free_port())
    assert outcome.code == 1
    assert re.search(
        r'ServerLostError: No server answers at 127.0.0.1:(\d+); start one there with: '
        r'keras-parallax server --port \1 ',
        outcome.output,
    ), outcome.output


def test_ranks_that_are_given_other_servers_are_told(tmp_path):
    outcome = train(2, 'differ', '127.0.0.1:1', '127.0.0.1:2')
    assert outcome.code not in (0, None)
    assert re.search('PlanError: Give every worker the same servers: rank 0', outcome.output)
