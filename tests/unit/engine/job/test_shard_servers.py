# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which servers a job starts, without starting one."""

import contextlib
from types import SimpleNamespace

import pytest

from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import (
    dedicated_servers,
    shard_servers,
    worker_servers,
)
from keras_parallax.engine.job.allowed_hosts import HostFacts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.engine.job.job_privacy import JobPrivacy
from keras_parallax.engine.job.shard_servers import ShardServers
from keras_parallax.errors import PlanError, ServerLostError

HERE = HostFacts('h', 'a', ['10.0.0.1'])


class Privacy(JobPrivacy):
    """That of one worker, which closes nothing."""

    def __init__(self):
        super().__init__(SimpleNamespace(rank=0), [HERE])
        self.closed = []

    def close_server(self, addresses, dedicated):
        self.closed.append((addresses, list(dedicated)))


def job_of(size, gather):
    return SimpleNamespace(
        size=size,
        rank=0,
        hosts=[list(range(size))],
        config=None,
        gather=gather,
        call=lambda name: contextlib.ExitStack(),
        watch=SimpleNamespace(lost=[]),
        privacy=Privacy(),
    )


@pytest.fixture
def dedicated(monkeypatch):
    """One worker with a dedicated server, of which nobody looks whether it lives."""
    started, hosts = [], {'a': 'a', 'b': 'b'}

    def start_servers(rank, config, gather, address, addresses):
        started.append((address, list(addresses)))
        cluster = {'worker': [address + ':1'], 'job': list(addresses)}
        return worker_servers.Started('server %d' % len(started), 'job', cluster)

    monkeypatch.setattr(worker_servers, 'start_servers', start_servers)
    monkeypatch.setattr(worker_servers, 'find_own_address', lambda: 'myhost')
    monkeypatch.setattr(
        dedicated_servers,
        'ask',
        lambda addresses: [
            ServerFacts(HostFacts('h', hosts[one[0]], ['10.0.0.2']), None, None)
            for one in addresses
        ],
    )
    assigned = []
    monkeypatch.setattr(dedicated_servers, 'assign', lambda *told: assigned.append(told))
    monkeypatch.setattr(ShardServers, '_look_after', lambda servers, addresses: None)
    job = job_of(1, lambda value: [value])
    return SimpleNamespace(
        servers=ShardServers(job),
        started=started,
        hosts=hosts,
        assigned=assigned,
        closed=job.privacy.closed,
    )


def test_one_rank_without_dedicated_servers_starts_none():
    servers = ShardServers(job_of(1, None))
    assert servers.serve() == servers.serve('host') == (None, None)
    assert servers.server is None and servers.problem() is None


def test_ranks_that_are_given_other_servers_are_told():
    servers = ShardServers(job_of(2, lambda value: [value, None]))
    expected = "Give every worker the same servers: rank 0 was given 'host', rank 1 None."
    with pytest.raises(PlanError, match=expected):
        servers.serve('host')


def test_the_same_servers_are_started_once(dedicated):
    servers = dedicated.servers
    server, layout = servers.serve(['a:1', 'b:1'])
    assert servers.serve(('a:1', 'b:1')) == (server, layout)
    assert dedicated.started == [('myhost', ['a:1', 'b:1'])]
    assert servers.server == server == 'server 1'
    assert layout.addresses == ('a:1', 'b:1') and layout.owners == (0, 0)


@pytest.mark.parametrize('of_second', ['a', 'a container'])
def test_a_job_of_one_host_keeps_to_the_loopback_and_one_with_a_container_does_not(
    dedicated, of_second
):
    dedicated.hosts['b'] = of_second
    _, layout = dedicated.servers.serve(['a:1', 'b:2'])
    one_host = of_second == 'a'
    addresses = ['127.0.0.1:1', '127.0.0.1:2'] if one_host else ['a:1', 'b:2']
    own_address = '127.0.0.1' if one_host else 'myhost'
    assert dedicated.started == [(own_address, addresses)]
    assert list(layout.addresses) == addresses
    assert dedicated.closed == [([own_address + ':1'], addresses)]
    ((cluster, server_job, allowed),) = dedicated.assigned
    assert cluster[server_job] == addresses
    assert [one.one_host for one in allowed] == 2 * [one_host]


def test_a_server_that_serves_the_job_no_more_is_a_problem(dedicated, monkeypatch):
    servers = dedicated.servers
    servers.serve(['a:1', 'b:1'])
    gone = {('b:1', 'job', 1): 'The server at b:1 is gone.'}
    monkeypatch.setattr(dedicated_servers, 'server_problem', lambda *asked: gone.get(asked))
    problem = servers.problem()
    assert isinstance(problem, ServerLostError) and str(problem) == 'The server at b:1 is gone.'
    gone.clear()
    assert servers.problem() is None


def test_a_server_that_refuses_twice_is_reported_to_the_watch(monkeypatch):
    lost = []
    job = job_of(1, lambda value: [value])
    job.watch.lose_server = lost.append
    monkeypatch.setattr(shard_servers, '_PROBE_SECONDS', 0)
    monkeypatch.setattr(
        probe, 'probe', lambda address: probe.GONE if address == 'b:1' else probe.ANSWERS
    )
    ShardServers(job)._look_after(['a:1', 'b:1'])
    assert lost == ['The server at b:1 is gone, and its shards with it.']
