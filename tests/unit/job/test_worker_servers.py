"""Addresses, devices and session settings of the job's servers."""

import os
import subprocess
import sys

import pytest

from keras_parallax.compat import session_config
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError
from keras_parallax.job.devices import shard_device, worker_device
from keras_parallax.job.worker_servers import own_address

#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))

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


# --- devices -----------------------------------------------------------------


def test_device_of_a_worker_is_its_task():
    assert worker_device(3) == '/job:worker/task:3'


def test_device_of_a_shard_is_the_cpu_of_its_server():
    assert shard_device(3) == '/job:worker/task:3/device:CPU:0'


@pytest.mark.parametrize('device', [worker_device(3), shard_device(3)])
def test_devices_are_what_tensorflow_reads(device):
    spec = tf.DeviceSpec.from_string(device)
    assert (spec.job, spec.task) == ('worker', 3)


# --- session settings --------------------------------------------------------


@pytest.mark.parametrize('local_rank', [0, 3])
def test_a_worker_sees_its_own_card_only(local_rank):
    options = session_config.of_worker(local_rank).gpu_options
    assert options.visible_device_list == str(local_rank)
    assert options.allow_growth


def test_what_has_no_kernel_on_a_card_goes_to_the_cpu():
    assert session_config.of_worker(0).allow_soft_placement


@pytest.mark.parametrize('value, threads', [('3', 3), ('', 0), (None, 0)])
def test_omp_num_threads_bounds_the_threads_of_an_operation(monkeypatch, value, threads):
    if value is None:
        monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    else:
        monkeypatch.setenv('OMP_NUM_THREADS', value)
    # 0 leaves the choice to TensorFlow.
    assert session_config.of_worker(0).intra_op_parallelism_threads == threads


def test_omp_num_threads_bounds_the_session_that_a_strategy_gives_to_keras():
    script = (
        'import keras_parallax as kp, tensorflow as tf\n'
        'with kp.ParallaxStrategy(): pass\n'
        'session = tf.keras.backend.get_session()\n'
        'print(session._config.intra_op_parallelism_threads)\n'
    )
    output = subprocess.check_output(
        [sys.executable, '-c', script],
        cwd=HERE,
        env=dict(os.environ, OMP_NUM_THREADS='1', TF_CPP_MIN_LOG_LEVEL='2'),
        universal_newlines=True,
    )
    assert output.strip() == '1'


# --- ports -------------------------------------------------------------------


def test_two_servers_never_share_a_port():
    # gRPC alone lets them (SO_REUSEPORT), each with a part of the connections; TensorFlow does not.
    # So when two ranks of a host have picked the same free port, `start_servers` gets to know it.
    first = tf.train.Server.create_local_server()
    cluster = tf.train.ClusterSpec({'worker': [first.target.decode().split('//')[1]]})
    with pytest.raises(tf.errors.OpError):
        tf.train.Server(cluster, 'worker', 0)
