"""What ranks and guards leave at the place where the ranks meet: Horovod's real store."""

import json
import os
import socket
import threading

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
    rendezvous.announce(place, variables, host, hosts)
    place.put('global_', rank, 'where to reach it')


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
    assert rendezvous.absent(place_of(store), 5) == {1: 'first', 3: None, 4: None}


def test_an_absent_rank_is_where_the_command_says_if_one_rank_has_seen_that(store):
    start(store, 0, 'first')
    start(store, 2, 'second', ['a', 'a', 'b', 'c', 'c'])
    assert rendezvous.absent(place_of(store), 5) == {1: 'first', 3: 'c', 4: 'c'}


def test_a_rank_that_ended_before_horovod_came_to_it_is_absent_and_its_host_known(store):
    for rank in range(3):
        start(store, rank, 'h%d' % rank)
    variables = environ(store.port, 4)
    rendezvous.announce(rendezvous.RendezvousStore(variables), variables, 'third', None)
    assert rendezvous.absent(place_of(store), 5) == {3: 'third', 4: 'third'}


def test_nobody_is_absent_when_the_place_is_closed_or_there_is_none():
    variables = environ(closed_port())
    assert rendezvous.absent(rendezvous.RendezvousStore(variables), 5) == {}
    rendezvous.announce(rendezvous.RendezvousStore(variables), variables, 'first', None)
    assert rendezvous.absent(rendezvous.RendezvousStore({}), 5) == {}


def test_a_proxy_in_the_environment_is_not_asked(store, monkeypatch):
    monkeypatch.setitem(os.environ, 'http_proxy', 'http://127.0.0.1:%d' % closed_port())
    place_of(store).put('parallax', 'key', json.dumps('ä'))
    assert json.loads(place_of(store).get('parallax', 'key')) == 'ä'
    assert place_of(store).get('parallax', 'other') is None


# --- who tells the user ---


def test_one_of_those_who_ask_at_once_tells_the_user_and_it_is_the_lowest(store):
    answers = {}

    def ask(rank):
        answers[rank] = rendezvous.claim(place_of(store), rank)

    threads = [threading.Thread(target=ask, args=[rank]) for rank in (3, 1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {1: True, 3: False, 4: False}
    assert not rendezvous.claim(place_of(store), 0)


def test_who_finds_the_place_closed_is_told_so():
    for place in (
        rendezvous.RendezvousStore(environ(closed_port())),
        rendezvous.RendezvousStore({}),
    ):
        with pytest.raises(OSError):
            rendezvous.claim(place, 1)
