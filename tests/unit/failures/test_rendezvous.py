"""What ranks and watchdogs leave at the place where the ranks meet: Horovod's real store."""

import json
import os
import socket

import pytest
from horovod.run.gloo_run import _allocate
from horovod.run.http.http_server import RendezvousServer

from keras_parallax.failures import rendezvous

HOSTS = 'a:2,b:1,c:2'


@pytest.fixture
def store():
    """The store of a job of 5 ranks on 3 hosts."""
    made = RendezvousServer(verbose=0)
    made.port = made.start_server(_allocate(HOSTS, 5))
    yield made
    made.httpd.server_close()


def environ(port, rank=0):
    """The environment in which `horovodrun` starts a rank of that job."""
    slot = _allocate(HOSTS, 5)[rank]
    return {
        'HOROVOD_GLOO_RENDEZVOUS_ADDR': '127.0.0.1',
        'HOROVOD_GLOO_RENDEZVOUS_PORT': str(port),
        'HOROVOD_RANK': str(rank),
        'HOROVOD_SIZE': '5',
        'HOROVOD_LOCAL_RANK': str(slot.local_rank),
        'HOROVOD_LOCAL_SIZE': str(slot.local_size),
        'HOROVOD_CROSS_RANK': str(slot.cross_rank),
    }


def start(store, rank, host, hosts=None):
    """What a rank does when it starts, and Horovod after it."""
    variables = environ(store.port, rank)
    place = rendezvous.RendezvousStore(variables)
    place.announce(host, hosts)
    place._request('PUT', 'global_', rank, 'where to reach it')


def place_of(store):
    return rendezvous.RendezvousStore(environ(store.port))


def closed_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


# --- who is absent ---


def test_an_absent_rank_is_on_the_host_of_those_that_horovodrun_put_beside_it(store):
    start(store, 0, 'first')
    start(store, 2, 'second')
    assert place_of(store).absent() == {1: 'first', 3: None, 4: None}


def test_an_absent_rank_is_where_the_command_says_if_one_rank_has_seen_that(store):
    start(store, 0, 'first')
    start(store, 2, 'second', ['a', 'a', 'b', 'c', 'c'])
    assert place_of(store).absent() == {1: 'first', 3: 'c', 4: 'c'}


def test_a_rank_that_ended_before_horovod_came_to_it_is_absent_and_its_host_known(store):
    for rank in range(3):
        start(store, rank, 'h%d' % rank)
    variables = environ(store.port, 4)
    rendezvous.RendezvousStore(variables).announce('third', None)
    assert place_of(store).absent() == {3: 'third', 4: 'third'}


def test_nobody_is_absent_when_the_place_is_closed_or_there_is_none():
    variables = environ(closed_port())
    assert rendezvous.RendezvousStore(variables).absent() == {}
    rendezvous.RendezvousStore(variables).announce('first', None)
    assert rendezvous.RendezvousStore({}).absent() == {}


def test_a_proxy_in_the_environment_is_not_asked(store, monkeypatch):
    monkeypatch.setitem(os.environ, 'http_proxy', 'http://127.0.0.1:%d' % closed_port())
    place_of(store)._request('PUT', 'parallax', 'key', json.dumps('ä'))
    assert json.loads(place_of(store)._request('GET', 'parallax', 'key')) == 'ä'
    assert place_of(store)._request('GET', 'parallax', 'other') is None


# --- where watchdogs are ---


def test_the_watchdogs_of_ranks_that_have_started_can_be_found(store):
    for rank, place in ((0, ['10.0.0.1', 7, 'key']), (3, None)):
        variables = environ(store.port, rank)
        rendezvous.RendezvousStore(variables).announce('first', None, place)
    assert place_of(store).places() == {0: ['10.0.0.1', 7, 'key'], 3: None}


def test_no_watchdogs_are_found_where_the_store_is_closed():
    for variables in (environ(closed_port()), {}):
        assert rendezvous.RendezvousStore(variables).places() == {}
