# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which hosts may connect to the servers of a job."""

import pytest

import keras_parallax as kp
from keras_parallax.engine.job.allowed_hosts import (
    HostFacts,
    allowed_hosts,
    checked_networks,
    networks_of,
)

FIRST = HostFacts('first', 'a', ['10.0.0.1', '172.17.0.1', 'fe80::1'])
SECOND = HostFacts('second', 'b', ['10.0.0.2', '172.17.0.1', 'fd00::2', '169.254.7.7'])


def test_the_jobs_hosts_and_each_host_itself_are_admitted_and_others_are_not():
    allowed = allowed_hosts([FIRST, SECOND], 'a')
    for address in '10.0.0.2', '::ffff:10.0.0.2', 'fd00::2', '169.254.7.7', '127.0.1.1', '::1':
        assert allowed.admit(address)
    for address in '10.0.0.3', '::ffff:10.0.0.3', 'fd00::3', '::2', 'fe80::1%eth0':
        assert not allowed.admit(address)


def test_an_address_of_several_hosts_admits_nobody_but_a_host_of_the_job_that_has_it():
    third = HostFacts('third', 'c', ['10.0.0.3'])
    everyone = [FIRST, SECOND, third]
    assert not allowed_hosts(everyone, 'c').admit('172.17.0.1')
    assert allowed_hosts(everyone, 'a').admit('172.17.0.1')


def test_a_job_of_one_host_is_closed_to_all_others_unless_a_network_is_allowed():
    assert allowed_hosts([FIRST, FIRST], 'a').only_this_host
    opened = allowed_hosts([FIRST, FIRST._replace(networks=['10.7.0.0/16'])], 'a')
    assert opened.one_host and not opened.only_this_host
    assert opened.admit('10.7.3.3') and not opened.admit('10.8.3.3')


def test_hosts_of_one_name_and_address_are_several_if_their_networks_are():
    assert not allowed_hosts([FIRST, FIRST._replace(identity='b')], 'a').one_host


@pytest.mark.parametrize('network', ['0.0.0.0/0', '::/0'])
def test_a_network_of_all_addresses_switches_the_filter_off(network):
    assert allowed_hosts([FIRST._replace(networks=[network])], 'a').everybody
    assert not allowed_hosts([FIRST._replace(networks=['10.0.0.0/8'])], 'a').everybody


def test_networks_come_from_an_argument_and_from_the_environment():
    assert checked_networks('10.1.0.0/16') == ('10.1.0.0/16',)
    assert checked_networks(['fd00::1', '10.1.0.0/16']) == ('10.1.0.0/16', 'fd00::1/128')
    environ = {'KERAS_PARALLAX_ALLOWED_NETWORKS': ' 10.1.0.0/16, 10.0.0.7,'}
    assert networks_of(environ) == ('10.0.0.7/32', '10.1.0.0/16')
    assert networks_of({}) == ()


@pytest.mark.parametrize('network', ['10.0.0.1/8', 'myhost', '', None, 3.5])
def test_what_is_no_network_is_refused_with_its_value(network):
    with pytest.raises(kp.PlanError) as caught:
        checked_networks([network])
    assert repr(network) in str(caught.value)
    if isinstance(network, str) and network:
        with pytest.raises(kp.PlanError):
            networks_of({'KERAS_PARALLAX_ALLOWED_NETWORKS': network})


@pytest.mark.parametrize('networks', [7, {'10.0.0.0/8': 1}])
def test_what_is_no_list_of_networks_is_refused(networks):
    with pytest.raises(kp.PlanError) as caught:
        checked_networks(networks)
    assert repr(networks) in str(caught.value)
