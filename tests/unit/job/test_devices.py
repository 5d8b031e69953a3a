"""The devices of a job's tasks."""

import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.job.devices import shard_device, worker_device


def test_device_of_a_worker_is_its_task():
    assert worker_device(3) == '/job:worker/task:3'


def test_device_of_a_shard_is_the_cpu_of_its_server():
    assert shard_device(3) == '/job:worker/task:3/device:CPU:0'


@pytest.mark.parametrize('device', [worker_device(3), shard_device(3)])
def test_devices_are_what_tensorflow_reads(device):
    spec = tf.DeviceSpec.from_string(device)
    assert (spec.job, spec.task) == ('worker', 3)
