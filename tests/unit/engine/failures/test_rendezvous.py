# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What workers leave at the place where they meet: Horovod's real store."""

import os
import socket

import pytest
from frameworks import TF2

from keras_parallax.engine.failures import rendezvous

if TF2:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer
else:
    from horovod.run.gloo_run import _allocate
    from horovod.run.http.http_server import RendezvousServer


def opened(server, hosts, size):
    """The port of a store, which is open as `horovodrun` opens it."""
    if not TF2:
        return server.start_server(_allocate(hosts, size))
    port = server.start()
    server.init(get_host_assignments(parse_hosts(hosts), size))
    return port


def environ(port):
    """The part of the environment in which `horovodrun` tells where the store is."""
    return {
        'HOROVOD_GLOO_RENDEZVOUS_ADDR': '127.0.0.1',
        'HOROVOD_GLOO_RENDEZVOUS_PORT': str(port),
    }


@pytest.fixture
def store():
    """The environment of a job whose store is open."""
    server = RendezvousServer(verbose=0)
    yield environ(opened(server, 'a:2,b:1', 3))
    server.stop() if TF2 else server.httpd.server_close()


def closed_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def test_ranks_find_what_others_have_left(store):
    rendezvous.leave(store, 0, ['10.0.0.1', 7, 'ä'])
    rendezvous.leave(store, 2, None)
    assert rendezvous.entries(store, range(3)) == {0: ['10.0.0.1', 7, 'ä'], 2: None}
    assert rendezvous.entries(store, [1]) == {}


def test_a_store_that_is_closed_or_not_there_says_so():
    for variables in (environ(closed_port()), {}):
        with pytest.raises(OSError):
            rendezvous.leave(variables, 0, 'here')
        with pytest.raises(OSError):
            rendezvous.entries(variables, [0])


def test_a_proxy_in_the_environment_is_not_asked(store, monkeypatch):
    monkeypatch.setitem(os.environ, 'http_proxy', 'http://127.0.0.1:%d' % closed_port())
    rendezvous.leave(store, 1, 'here')
    assert rendezvous.entries(store, [1]) == {1: 'here'}
