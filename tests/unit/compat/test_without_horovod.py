# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A job of one process where Horovod is not installed."""

import glob
import os
import subprocess
import sys

import hidden_packages
import pytest

import keras_parallax as kp
from keras_parallax.compat import without_horovod

#: Trains, saves and loads; Keras 2 with every stack.
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import hidden_packages
hidden_packages.hide('horovod')
import cases
import numpy as np
import keras_parallax as kp
from frameworks import KERAS_PACKAGES

keras = cases.keras_module(KERAS_PACKAGES[0])
with kp.ParallaxStrategy() as strategy:
    model = keras.models.Sequential([
        keras.layers.Embedding(50, 4, input_length=3),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ])
    optimizer = kp.ParallaxOptimizer(keras.optimizers.SGD(0.1), compression=kp.Compression.fp16)
    model.compile(optimizer, 'mse')
ids, targets = np.arange(48).reshape(16, 3), np.ones([16, 1])
callbacks = [
    kp.callbacks.BroadcastGlobalVariablesCallback(0),
    kp.callbacks.MetricAverageCallback(),
    kp.callbacks.LearningRateWarmupCallback(warmup_epochs=2),
]
losses = model.fit(ids, targets, 4, 3, verbose=0, callbacks=callbacks).history['loss']
assert losses[-1] < losses[0], losses
model.save('model.h5')
before = model.predict(ids)
with kp.ParallaxStrategy():
    again = kp.load_model('model.h5')
np.testing.assert_allclose(again.predict(ids), before, rtol=1e-5)
assert not any(name.split('.')[0] == 'horovod' for name in sys.modules)
print('saved')
"""


def test_without_horovod_one_process_trains_saves_and_loads(tmp_path):
    script = SCRIPT.format(tests=os.path.dirname(hidden_packages.__file__))
    environ = {name: value for name, value in os.environ.items() if 'HOROVOD' not in name}
    output = subprocess.check_output(
        [sys.executable, '-c', script], cwd=str(tmp_path), env=environ, universal_newlines=True
    )
    assert output.strip().endswith('saved')
    assert glob.glob(str(tmp_path / 'model.h5'))


@pytest.mark.parametrize(
    'environ',
    [{}, {'HOROVOD_SIZE': '1'}, {'SLURM_STEP_NUM_TASKS': '1', 'OMPI_COMM_WORLD_SIZE': ''}],
)
def test_a_process_that_is_alone_needs_no_horovod(environ):
    without_horovod.check_alone(environ)


def test_several_processes_need_horovod():
    with pytest.raises(kp.StackError, match='HOROVOD_SIZE says that the job has 4 processes'):
        without_horovod.check_alone({'HOROVOD_SIZE': '4'})


def test_a_rank_is_asked_for_after_the_start_only():
    without_horovod.shutdown()
    with pytest.raises(ValueError, match='not been started'):
        without_horovod.rank()
    without_horovod.init()
    assert (without_horovod.rank(), without_horovod.size(), without_horovod.local_rank()) == (
        0,
        1,
        0,
    )
    without_horovod.shutdown()
