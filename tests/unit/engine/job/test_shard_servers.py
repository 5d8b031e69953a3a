"""Which servers a job starts, without starting one."""

import contextlib
from types import SimpleNamespace

import pytest

from keras_parallax.engine.failures import probe
from keras_parallax.engine.job import dedicated_servers, shard_servers, worker_servers
from keras_parallax.engine.job.shard_servers import ShardServers
from keras_parallax.errors import PlanError, ServerLostError


def job_of(size, gather):
    return SimpleNamespace(
        size=size,
        rank=0,
        hosts=[list(range(size))],
        config=None,
        gather=gather,
        call=lambda name: contextlib.ExitStack(),
        watch=SimpleNamespace(lost=[]),
    )


@pytest.fixture
def dedicated(monkeypatch):
    """One worker with a dedicated server, of which nobody looks whether it lives."""
    started = []

    def start_servers(rank, config, gather, addresses):
        started.append(addresses)
        return 'server %d' % len(started), 'job'

    monkeypatch.setattr(worker_servers, 'start_servers', start_servers)
    monkeypatch.setattr(ShardServers, '_look_after', lambda servers, addresses: None)
    return ShardServers(job_of(1, lambda value: [value])), started


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
    servers, started = dedicated
    server, layout = servers.serve(['a:1', 'b:1'])
    assert servers.serve(('a:1', 'b:1')) == (server, layout)
    assert started == [('a:1', 'b:1')] and servers.server == server == 'server 1'
    assert layout.addresses == ('a:1', 'b:1') and layout.owners == (0, 0)


def test_a_server_that_serves_the_job_no_more_is_a_problem(dedicated, monkeypatch):
    servers, _ = dedicated
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
