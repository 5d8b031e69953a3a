# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 that are exported for serving, tables of all kinds among them."""

import json
import os
import subprocess
import sys

import frameworks
import pytest

pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

# In a process of its own, for in graph mode, which other tests need, Keras 3 makes no variables.
CODE = """
import json
import os
import sys
import numpy as np
import keras
import tensorflow as tf
import keras_parallax as kp

strategy, layers = kp.ParallaxStrategy(overrides={'everywhere': 'dense'}), keras.layers


class Doubled(layers.Layer):
    # Its table has no config of its own.
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Embedding(11, 3)

    def call(self, ids):
        return 2.0 * self.inner(ids)


def built():
    ids = keras.Input((2,), dtype='int32')
    twice = layers.Embedding(11, 3, name='twice')
    looked_up = [
        Doubled()(ids),
        twice(ids),
        twice(ids + 1),
        layers.Embedding(11, 3, name='everywhere')(ids),
        layers.Embedding(11, 3, embeddings_regularizer='l2', name='kept')(ids),
        layers.Embedding(11, 3, dtype='float16', name='half')(ids),
        layers.Embedding(11, 3, name='adapted')(ids),
        layers.Embedding(11, 3, name='frozen', trainable=False)(ids),
    ]
    flat = [layers.Flatten()(keras.ops.cast(rows, 'float32')) for rows in looked_up]
    model = keras.Model(ids, layers.Dense(1)(layers.Concatenate()(flat)))
    model.compile(keras.optimizers.Adagrad(0.1), 'mse')
    return model


def differences(model, name):
    path, ids = os.path.join(sys.argv[1], name), np.arange(20).reshape(10, 2) % 10
    model.export(path, verbose=False)
    loaded = tf.saved_model.load(path)
    served = loaded.serve(tf.constant(ids, tf.int32)).numpy()
    return float(np.abs(served - model.predict(ids, verbose=0)).max())


with strategy:
    model = built()
found = {'untrained': differences(model, 'untrained')}
model.get_layer('adapted').enable_lora(2)
model.compile(keras.optimizers.Adagrad(0.1), 'mse')
ids = np.arange(20).reshape(10, 2) % 10
model.fit(ids, np.linspace(-3, 3, 10), batch_size=5, verbose=0)
found['trained'] = differences(model, 'trained')
model.fit(ids, np.linspace(-3, 3, 10), batch_size=5, verbose=0)
found['trained further'] = differences(model, 'further')
model.get_layer('twice').quantize('int8')
found['quantized'] = differences(model, 'quantized')
with strategy:
    never_compiled = keras.Sequential([keras.Input((2,), dtype='int32'), layers.Embedding(11, 3)])
found['never compiled'] = differences(never_compiled, 'never')
print(json.dumps(found))
"""


@pytest.mark.parametrize('backend', ('tensorflow', 'jax'))
def test_an_exported_model_predicts_the_same_with_each_kind_of_table(backend, tmp_path):
    if backend == 'jax':
        pytest.importorskip('jax')
    environ = dict(os.environ, KERAS_BACKEND=backend)
    done = subprocess.run(
        [sys.executable, '-c', CODE, str(tmp_path)], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 5 and max(found.values()) < 1e-6, found


def test_the_room_of_a_table_on_the_disk_is_taken_before_its_rows_are_written(tmp_path):
    code = (
        'import sys\n'
        'from keras_parallax.keras3 import exporting\n'
        "kept = exporting._mapped(sys.argv[1], (1000, 256), sys.argv[2] == 'reserved')"
    )
    taken = {}
    for name in ('reserved', 'holes'):
        path = tmp_path / name
        subprocess.run([sys.executable, '-c', code, str(path), name], check=True)
        assert path.stat().st_size == 1000 * 256 * 4
        taken[name] = 512 * path.stat().st_blocks
    assert taken['holes'] < 1000 * 256 * 4 <= taken['reserved']
