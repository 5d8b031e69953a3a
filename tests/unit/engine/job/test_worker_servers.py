# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Addresses and ports of the job's servers."""

import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.worker_servers import own_address
from keras_parallax.errors import ParallaxError

INTERFACES = {'eth0': ['10.0.0.7', '10.0.0.8'], 'ib0': []}


def address(**environ):
    return own_address(environ, lambda name: INTERFACES.get(name, []), 'worker-3')


# --- addresses ---------------------------------------------------------------


def test_the_address_is_that_of_the_interface_of_horovod():
    assert address(HOROVOD_GLOO_IFACE='eth0') == '10.0.0.7'


def test_without_an_interface_of_horovod_the_address_is_the_name_of_the_host():
    assert address() == 'worker-3'
    assert address(HOROVOD_GLOO_IFACE='') == 'worker-3'


@pytest.mark.parametrize('interface', ['ib0', 'missing'])
def test_an_interface_without_address_is_named_with_the_way_out(interface):
    with pytest.raises(ParallaxError) as caught:
        address(HOROVOD_GLOO_IFACE=interface)
    message = str(caught.value)
    assert interface in message and 'worker-3' in message
    assert 'horovodrun --network-interface' in message


# --- ports -------------------------------------------------------------------


def test_two_servers_never_share_a_port():
    # gRPC alone lets them (SO_REUSEPORT), each with a part of the connections; TensorFlow does not.
    # So when two workers of a host have picked the same free port, `start_servers` gets to know it.
    first = tf.train.Server.create_local_server()
    cluster = tf.train.ClusterSpec({'worker': [tf.compat.as_str(first.target).split('//')[1]]})
    with pytest.raises(tf.errors.OpError):
        tf.train.Server(cluster, 'worker', 0)
