# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What launchers say in the environment of the processes that they start."""

import socket

import pytest

from keras_parallax.engine.job.launchers import (
    Started,
    check_controller,
    check_host_name,
    own_interface,
    started,
)
from keras_parallax.errors import StackError

OF_HOROVODRUN = {'HOROVOD_RANK': '1', 'HOROVOD_SIZE': '3'}
OF_MPIRUN = {'OMPI_COMM_WORLD_RANK': '2', 'OMPI_COMM_WORLD_SIZE': '4'}
ADDRESSES = {'lo': ['127.0.0.1'], 'eth0': ['10.0.0.7', '10.0.0.8'], 'ib0': []}


@pytest.mark.parametrize(
    'environ, expected',
    [
        ({}, Started(None, 0, 0)),
        (OF_HOROVODRUN, Started('horovodrun', 1, 3)),
        (OF_MPIRUN, Started('mpirun', 2, 4)),
        # A job of horovodrun's within one of mpirun's.
        (dict(OF_MPIRUN, **OF_HOROVODRUN), Started('horovodrun', 1, 3)),
    ],
)
def test_either_launcher_says_the_rank_and_the_number_of_ranks(environ, expected):
    assert started(environ) == expected


def test_ranks_of_mpirun_that_horovod_would_not_know_of_are_refused():
    message = 'Rank 2 was started by mpirun as one of 4, but Horovod was built without MPI'
    with pytest.raises(StackError, match=message):
        check_controller(started(OF_MPIRUN), has_mpi=False)
    check_controller(started(OF_MPIRUN), has_mpi=True)
    check_controller(started(OF_HOROVODRUN), has_mpi=False)
    check_controller(started(dict(OF_MPIRUN, OMPI_COMM_WORLD_SIZE='1')), has_mpi=False)


ON_ONE_HOST = {'HOROVOD_SIZE': '2', 'HOROVOD_LOCAL_SIZE': '2'}
ON_TWO_HOSTS = {'HOROVOD_SIZE': '2', 'HOROVOD_LOCAL_SIZE': '1'}


def resolved_to(*addresses):
    """A `socket.getaddrinfo` that gives addresses, or knows of none."""

    def resolve(name, port, type):
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, 'Name or service not known')
        return [(socket.AF_INET, type, 6, '', (address, 0)) for address in addresses]

    return resolve


@pytest.mark.parametrize(
    'environ, addresses',
    [
        ({}, ['127.0.1.1']),
        (ON_ONE_HOST, ['127.0.1.1']),
        (ON_ONE_HOST, ['::1']),
        (ON_TWO_HOSTS, ['10.0.0.7', '127.0.1.1']),
        (ON_TWO_HOSTS, ['fe80::1%eth0']),
    ],
)
def test_a_host_whose_name_leads_the_others_to_it_is_taken(environ, addresses):
    check_host_name('h0', environ, resolved_to(*addresses))


@pytest.mark.parametrize(
    'environ, addresses, problem',
    [
        ({}, [], 'h0, has no address'),
        (ON_ONE_HOST, [], 'h0, has no address'),
        (ON_TWO_HOSTS, ['127.0.1.1', '10.0.0.7'], 'h0, has the address 127.0.1.1, where no other'),
        (ON_TWO_HOSTS, ['::1'], 'h0, has the address ::1, where no other'),
    ],
)
def test_a_host_whose_name_leads_nobody_to_it_is_refused(environ, addresses, problem):
    with pytest.raises(StackError, match=problem + '.*/etc/hosts'):
        check_host_name('h0', environ, resolved_to(*addresses))


def addresses_of(interface):
    if interface is None:
        return [address for addresses in ADDRESSES.values() for address in addresses]
    return ADDRESSES.get(interface, [])


@pytest.mark.parametrize(
    'given, expected',
    [
        ('', (None, None)),
        ('eth0', ('eth0', '10.0.0.7')),
        ('ib0, eth0', ('eth0', '10.0.0.7')),
        ('ib0,none', ('ib0, none', None)),
        ('192.168.0.0/16,10.0.0.0/8', ('10.0.0.0/8', '10.0.0.7')),
        ('10.0.0.8/32', ('10.0.0.8/32', '10.0.0.8')),
    ],
)
def test_open_mpi_may_be_given_several_interfaces_and_networks(given, expected):
    assert own_interface({'OMPI_MCA_btl_tcp_if_include': given}, addresses_of) == expected


def test_that_of_gloo_counts_where_there_are_two():
    environ = {'HOROVOD_GLOO_IFACE': 'lo', 'OMPI_MCA_btl_tcp_if_include': 'eth0'}
    assert own_interface(environ, addresses_of) == ('lo', '127.0.0.1')
