# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of Keras 3 models in several parts: which are written, kept, and refused."""

import json
import os
import subprocess
import sys

import former_files
import frameworks
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

# In a process of its own, for in graph mode, which other tests need, Keras 3 makes no variables.
CODE = """
import glob
import json
import os
import sys
import h5py
import numpy as np
import keras
import keras_parallax as kp

folder = sys.argv[1]
ids, y = np.arange(12).reshape(12, 1) % 7, np.linspace(0, 1, 12)
strategy = kp.ParallaxStrategy()


def built():
    with strategy:
        model = keras.Sequential([
            keras.Input((1,), dtype='int32'),
            keras.layers.Embedding(7, 2, name='moves'),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ])
        model.compile(keras.optimizers.Adagrad(0.1), 'mse')
    return model


class Judged(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs['judged'] = [3.0, 2.0, 5.0, 1.0][epoch]


def fit(model, first=0, epochs=3, **arguments):
    saver = kp.callbacks.ModelCheckpoint(
        os.path.join(folder, 'best-{epoch}'), 'judged', save_best_only=True, mode='min', **arguments
    )
    model.fit(
        ids, y, batch_size=4, shuffle=False, verbose=0, initial_epoch=first, epochs=epochs,
        callbacks=[Judged(), saver],
    )
    return saver


def names():
    return sorted(map(os.path.basename, glob.glob(os.path.join(folder, 'best-*'))))


def error_of(act):
    try:
        act()
    except (kp.ParallaxError, ValueError) as error:
        return type(error).__name__


found, model = {}, built()
fit(model, sharded=True, max_to_keep=1)
found['kept'] = names()
again = built()
found['epochs'] = strategy.resume(again, kp.latest_checkpoint(os.path.join(folder, 'best-{epoch}')))
fit(again, found['epochs'], 3, sharded=True)
found['after a worse epoch'] = names()
fit(again, 3, 4, sharded=True)
found['after a better epoch'] = names()

path = os.path.join(folder, 'best-4')
part = glob.glob(os.path.join(path, '*.weights.h5'))[0]
try:
    again.load_weights(part)
except ValueError as error:
    found['a part alone'] = str(error)
rows = glob.glob(os.path.join(path, '*-rank-*'))[0]
with open(rows, 'r+b') as file:
    file.seek(-8, 2)
    file.write(b'damaged!')
found['damaged'] = error_of(lambda: strategy.resume(again, path))
with strategy:
    of_keras_2 = keras.Sequential([
        keras.Input((2,), dtype='int32'),
        keras.layers.Embedding(11, 3, name='table'),
        keras.layers.Flatten(),
        keras.layers.Dense(1, name='out'),
    ])
    of_keras_2.compile('adagrad', 'mse')
of_keras_2.fit(ids[:, [0, 0]], y, verbose=0)
weights = os.path.join(os.path.dirname(sys.argv[2]), 'weights.h5')
of_keras_2.load_weights(weights)
with h5py.File(weights, 'r') as file:
    names = 'table/table/embeddings:0', 'out/out/kernel:0', 'out/out/bias:0'
    found['weights of Keras 2'] = [
        bool(np.array_equal(of_model, file[name][()]))
        for of_model, name in zip(of_keras_2.get_weights(), names)
    ]
found['the name of a file'] = error_of(
    lambda: model.fit(
        ids, y, verbose=0,
        callbacks=[kp.callbacks.ModelCheckpoint(os.path.join(folder, 'a.keras'), sharded=True)],
    )
)
print(json.dumps(found))
"""


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """What a job of one worker has found."""
    of_keras_2 = os.path.join(former_files.FOLDER, 'keras', 'parts-02')
    command = [sys.executable, '-c', CODE, str(tmp_path_factory.mktemp('parts')), of_keras_2]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def test_the_best_folder_is_kept_and_is_to_be_beaten_after_resuming(found):
    assert found['kept'] == ['best-2'] and found['epochs'] == 2
    assert found['after a worse epoch'] == ['best-2']
    assert found['after a better epoch'] == ['best-2', 'best-4']


def test_a_part_alone_is_refused(found):
    # Keras puts what a layer raises into an error of its own.
    assert 'strategy.resume' in found['a part alone']


def test_damaged_rows_are_refused(found):
    assert found['damaged'] == 'CheckpointError'


def test_the_weights_of_a_model_of_keras_2_can_be_loaded(found):
    assert found['weights of Keras 2'] == [True] * 3


def test_a_folder_that_is_named_like_a_file_is_refused(found):
    assert found['the name of a file'] == 'PlanError'
