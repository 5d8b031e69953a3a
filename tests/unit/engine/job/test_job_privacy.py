# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a job makes of the hosts that may connect, and of kernels that do not enforce it."""

import logging
import socket
from types import SimpleNamespace

import pytest

import keras_parallax as kp
from keras_parallax.engine.job import job_privacy, private_sockets
from keras_parallax.engine.job.allowed_hosts import HostFacts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.engine.job.job_privacy import JobPrivacy, host_facts

FIRST, SECOND = HostFacts('gpu-1', 'a', ['10.0.0.1']), HostFacts('gpu-2', 'b', ['10.0.0.2'])
SERVER = HostFacts('s1', 'c', ['10.0.0.9'])


def privacy_of(*facts):
    return JobPrivacy(SimpleNamespace(rank=0, gather=lambda value: [value]), facts)


def test_hosts_and_networks_of_every_worker_may_connect():
    allowed = privacy_of(FIRST, SECOND._replace(networks=['10.7.0.0/16'])).allowed()
    assert allowed.admit('10.0.0.2') and allowed.admit('10.7.3.3') and not allowed.one_host


def test_two_processes_of_one_network_have_one_identity():
    assert host_facts().identity == host_facts().identity
    assert host_facts(['10.7.0.0/16']).networks == ['10.7.0.0/16']


def test_hosts_of_dedicated_servers_may_connect_and_their_problems_count():
    privacy = privacy_of(FIRST)
    assert privacy.allowed().one_host
    privacy.include([ServerFacts(SERVER, 'an old kernel', None)])
    allowed = privacy.allowed()
    assert allowed.admit('10.0.0.9') and not allowed.admit('10.0.0.8') and not allowed.one_host
    assert privacy.problems == [('s1', 'an old kernel')]


def test_networks_of_a_dedicated_server_are_those_of_the_job():
    privacy = privacy_of(FIRST)
    privacy.include([ServerFacts(SERVER._replace(networks=['10.7.0.0/16']), None, None)])
    assert privacy.allowed().networks == privacy.allowed('c').networks == ('10.7.0.0/16',)


def test_a_server_that_cannot_be_reached_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr(private_sockets, 'restrict_port', lambda port, allowed: None)
    monkeypatch.setattr(job_privacy, '_REACH_SECONDS', 0)
    privacy = privacy_of(FIRST, SECOND)
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))  # It does not listen.
        absent = '127.0.0.1:%d' % taken.getsockname()[1]
        with pytest.raises(kp.ParallaxError) as caught:
            privacy.close_server(['127.0.0.1:1', absent], [])
    for fact in 'Rank 0', absent, 'KERAS_PARALLAX_ALLOWED_NETWORKS':
        assert fact in str(caught.value)


def test_open_servers_are_told_once_and_refused_where_none_may_be(caplog):
    privacy = privacy_of(FIRST)
    privacy.report(is_required=True)
    privacy.problems += [('gpu-1', 'no capability'), ('gpu-2', 'no capability')]
    with caplog.at_level(logging.WARNING, 'keras_parallax'):
        privacy.report(is_required=False)
        privacy.report(is_required=False)
    (record,) = caplog.records
    assert 'gpu-1 and gpu-2: no capability' in record.getMessage()
    with pytest.raises(kp.PublicServerError) as caught:
        privacy.report(is_required=True)
    assert 'gpu-2' in str(caught.value) and 'no capability' in str(caught.value)


def test_servers_that_are_open_since_the_last_report_are_told_too(caplog):
    privacy = privacy_of(FIRST)
    with caplog.at_level(logging.WARNING, 'keras_parallax'):
        for host in 'gpu-1', 's1':
            privacy.problems.append((host, 'no capability'))
            privacy.report(is_required=False)
    assert len(caplog.records) == 2 and 's1' in caplog.records[1].getMessage()


def test_servers_cannot_be_private_and_open_to_everybody():
    privacy = privacy_of(FIRST._replace(networks=['0.0.0.0/0']))
    privacy.report(is_required=False)
    with pytest.raises(kp.PublicServerError, match='0.0.0.0/0'):
        privacy.report(is_required=True)
