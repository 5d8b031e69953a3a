"""What a job makes of the hosts that may connect, and of kernels that do not enforce it."""

import logging
import socket
from types import SimpleNamespace

import pytest

import keras_parallax as kp
from keras_parallax.engine.job import private_sockets
from keras_parallax.engine.job.allowed_hosts import AllowedHosts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.engine.job.job_privacy import HostFacts, JobPrivacy


def privacy_of(*facts, hosts=((0,), (1,))):
    job = SimpleNamespace(rank=0, hosts=list(hosts), gather=lambda value: [value])
    return JobPrivacy(job, [HostFacts(*one) for one in facts])


def test_hosts_and_networks_of_every_worker_may_connect():
    privacy = privacy_of((['10.0.0.1'], []), (['10.0.0.2', 'fd00::2'], ['10.7.0.0/16']))
    assert {'10.0.0.1', '10.0.0.2', 'fd00::2', '10.7.0.0/16'} < set(privacy.allowed().networks)


def test_hosts_of_dedicated_servers_may_connect_and_their_problems_count():
    privacy = privacy_of((['10.0.0.1'], []))
    allowed = privacy.include([ServerFacts('s1', ['10.0.0.9'], 'an old kernel', None)], False)
    assert allowed.admit('10.0.0.9') and not allowed.admit('10.0.0.8')
    assert privacy.problems == [('s1', 'an old kernel')]


def test_a_server_that_no_one_answers_for_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr(private_sockets, 'restrict_port', lambda port, allowed: None)
    privacy = privacy_of((['10.0.0.1'], []))
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))  # It does not listen.
        absent = '127.0.0.1:%d' % taken.getsockname()[1]
        with pytest.raises(kp.ParallaxError) as caught:
            privacy.close_server(['127.0.0.1:1', absent], [], AllowedHosts((), False))
    for fact in 'Rank 0', absent, 'KERAS_PARALLAX_ALLOWED_NETWORKS':
        assert fact in str(caught.value)


def test_open_servers_are_told_once_and_refused_where_none_may_be(caplog):
    privacy = privacy_of((['10.0.0.1'], []))
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
