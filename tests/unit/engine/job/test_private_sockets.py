# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Closing sockets of this process, tried on the kernel itself."""

import contextlib
import os
import socket

import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import private_sockets
from keras_parallax.engine.job.allowed_hosts import AllowedHosts
from keras_parallax.engine.job.job_privacy import host_facts

#: Every packet of the loopback may have any of its addresses as source.
FRIEND, STRANGER = '127.0.0.1', '127.0.0.2'
ALLOWED = AllowedHosts((FRIEND,), (), False)

needs_filter = pytest.mark.skipif(
    private_sockets.kernel_problem(one_host=False) is not None,
    reason='the kernel does not let this user filter connections',
)
needs_binding = pytest.mark.skipif(
    private_sockets.kernel_problem(one_host=True) is not None, reason='Linux is older than 5.7'
)


@pytest.fixture
def listener():
    with socket.socket() as made:
        made.bind(('', 0))
        made.listen(8)
        yield made


def connects(port, source='', address='127.0.0.1'):
    """Whether a connection to a port of this host comes about within a second."""
    try:
        socket.create_connection((address, port), 1, (source, 0)).close()
    except OSError:
        return False
    return True


@needs_filter
def test_only_allowed_addresses_reach_a_restricted_socket(listener):
    port = listener.getsockname()[1]
    assert connects(port, STRANGER)
    assert private_sockets.restrict(listener, ALLOWED) is None
    assert connects(port, FRIEND) and not connects(port, STRANGER)


@needs_filter
def test_a_connection_of_a_stranger_that_came_before_is_ended_and_a_friends_is_not(listener):
    port = listener.getsockname()[1]
    with contextlib.ExitStack() as stack:
        friend, stranger = (
            stack.enter_context(socket.create_connection(('127.0.0.1', port), 1, (source, 0)))
            for source in (FRIEND, STRANGER)
        )
        accepted = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        assert private_sockets.restrict_port(port, ALLOWED) is None
        private_sockets.close_strangers(port, ALLOWED)
        for one in accepted:
            with contextlib.suppress(OSError):  # That of the stranger is shut.
                one.sendall(b'x')
        assert friend.recv(1) == b'x' and stranger.recv(1) == b''


@needs_binding
def test_a_socket_of_one_host_is_reached_at_the_loopback_only(listener):
    port = listener.getsockname()[1]
    addresses = host_facts().addresses
    outward = [one for one in addresses if '.' in one and one[:4] != '127.']
    assert private_sockets.restrict(listener, AllowedHosts((), (), True)) is None
    assert connects(port)
    assert not any(connects(port, address=address) for address in outward)


def test_everybody_reaches_a_socket_if_all_networks_are_allowed(listener):
    assert private_sockets.restrict(listener, AllowedHosts((), ('0.0.0.0/0',), False)) is None
    assert connects(listener.getsockname()[1], STRANGER)


@needs_filter
@pytest.mark.skipif(tf.__version__.startswith('1.6'), reason='its server stays for all tests')
def test_the_server_of_tensorflow_is_found_by_its_port():
    server = tf.train.Server.create_local_server()
    port = int(tf.compat.as_str(server.target).rpartition(':')[2])
    assert connects(port, STRANGER)
    assert private_sockets.restrict_port(port, ALLOWED) is None
    assert connects(port, FRIEND) and not connects(port, STRANGER)


def test_a_connection_that_is_completed_late_is_ended_as_well(listener, monkeypatch):
    monkeypatch.setattr(private_sockets, '_REPETITIONS', (0.2, 0.2))
    port = listener.getsockname()[1]
    private_sockets.keep_out(port, ALLOWED)
    with socket.create_connection(('127.0.0.1', port), 5, (STRANGER, 0)) as stranger:
        accepted = listener.accept()[0]
        stranger.settimeout(10)
        assert stranger.recv(1) == b''
        accepted.close()


@needs_binding
def test_a_job_of_one_host_is_closed_where_a_network_that_it_allows_cannot_be_let_in(
    listener, monkeypatch
):
    monkeypatch.setattr(private_sockets, '_filter', lambda listener, networks: 'no capability')
    networks = AllowedHosts((), ('10.7.0.0/16',), True)
    assert private_sockets.restrict(listener, networks) is None
    assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)[:2] == b'lo'


def test_a_port_on_which_this_process_does_not_listen_is_a_problem(listener):
    with socket.socket() as unused:
        unused.bind(('', 0))
        port = unused.getsockname()[1]
        assert private_sockets.restrict_port(port, ALLOWED) is not None


@needs_filter
def test_a_socket_whose_filter_is_locked_is_a_problem_that_names_the_capability(listener):
    assert private_sockets.restrict(listener, ALLOWED) is None
    lock_filter = 44
    listener.setsockopt(socket.SOL_SOCKET, lock_filter, 1)
    assert 'CAP_NET_ADMIN' in private_sockets.restrict(listener, ALLOWED)


@needs_filter
def test_a_list_that_the_kernel_does_not_take_is_a_problem(listener):
    # The kernel takes 4096 instructions.
    many = ['10.%d.%d.1' % (high, low) for high in range(16) for low in range(256)]
    assert private_sockets.restrict(listener, AllowedHosts(tuple(many), (), False)) is not None
    assert connects(listener.getsockname()[1], STRANGER)


def test_no_descriptor_stays_open(listener):
    port = listener.getsockname()[1]
    before = len(os.listdir('/proc/self/fd'))
    private_sockets.restrict_port(port, ALLOWED)
    private_sockets.close_strangers(port, ALLOWED)
    assert len(os.listdir('/proc/self/fd')) == before
