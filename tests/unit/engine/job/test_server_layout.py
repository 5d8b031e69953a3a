# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which servers hold shards, and who owns each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.engine.job.devices import cpu_of
from keras_parallax.engine.job.server_layout import checked, place_servers
from keras_parallax.errors import PlanError


def placed(servers, ranks=5):
    """On two hosts of two workers, and one of one."""
    return place_servers(servers, ranks, [0, 2, 4], 'server_7')


def test_by_default_each_worker_serves_and_owns_what_it_serves():
    found = placed(None)
    assert found.owners == (0, 1, 2, 3, 4)
    assert found.devices == tuple(cpu_of('worker', rank) for rank in range(5))
    assert found.addresses == ()


def test_one_server_a_host_is_that_of_its_first_worker():
    found = placed('host')
    assert found.owners == (0, 2, 4)
    assert found.devices[1] == '/job:worker/task:2/device:CPU:0'
    assert found.count == 3 and found.addresses == ()


def test_dedicated_servers_hold_shards_that_workers_drive():
    found = placed(('a:1', 'b:2'), 4)
    assert found.devices == tuple(cpu_of('server_7', number) for number in range(2))
    assert found.owners == (0, 2)
    assert found.addresses == ('a:1', 'b:2')
    assert found.owner_on('/job:server_7/task:1/device:CPU:0') == 2
    assert found.owner_on('/job:worker/task:1/device:CPU:0') is None


@given(st.integers(1, 50), st.integers(1, 50))
def test_the_owners_of_dedicated_servers_are_spread_evenly(servers, ranks):
    owners = placed(tuple('h:%d' % number for number in range(1, servers + 1)), ranks).owners
    owned = [owners.count(rank) for rank in range(ranks)]
    assert sum(owned) == servers
    assert max(owned) - min(owned) <= 1


@pytest.mark.parametrize('servers', [None, 'host'])
def test_what_needs_no_check_stays_as_it_is(servers):
    assert checked(servers) == servers


def test_addresses_are_kept_in_order():
    assert checked(['b:1', '10.0.0.1:65535']) == ('b:1', '10.0.0.1:65535')


@pytest.mark.parametrize(
    'servers, told',
    [
        ('hosts', "'host'"),
        ([], r'\[\]'),
        (3, '3'),
        (['a'], "'a' is in it"),
        (['a:b'], "'a:b' is in it"),
        (['a:0'], "'a:0' is in it"),
        (['a:65536'], "'a:65536' is in it"),
        (['grpc://a:1'], "'grpc://a:1' is in it"),
        ([12345], '12345 is in it'),
        (['a:1', 'b:1', 'a:1'], 'names an address twice'),
    ],
)
def test_other_arguments_are_refused_and_repeated(servers, told):
    with pytest.raises(PlanError, match=told):
        checked(servers)
