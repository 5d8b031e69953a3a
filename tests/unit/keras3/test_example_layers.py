# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The sampled softmax of `examples/keras3/language_model.py` stands for the exact one."""

import json
import os
import subprocess
import sys

import frameworks
import pytest

pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

FOLDER = os.path.join(os.path.dirname(__file__), '..', '..', '..', 'examples', 'keras3')

# In a process of its own, for in graph mode, which other tests need, Keras 3 makes no variables.
CODE = """
import json
import keras
import numpy as np
from language_model import SampledSoftmax

WORDS, DIM = 50, 4
random = np.random.RandomState(0)
hidden = random.normal(0, 1, (3, 5, DIM)).astype('float32')
next_words = random.randint(0, WORDS, (3, 5)).astype('int32')
rows = random.normal(0, 0.5, (WORDS, DIM + 1)).astype('float32')

logits = hidden @ rows[:, :-1].T + rows[:, -1]
others = np.log(np.exp(logits).sum(-1))
true = others - np.take_along_axis(logits, next_words[..., None], -1)[..., 0]

def losses(sampled, training):
    layer = SampledSoftmax(WORDS, sampled, seed=1)
    layer.build((hidden.shape, next_words.shape))
    layer.rows.set_weights([rows])
    found = layer([hidden, next_words], training=training)
    return keras.ops.convert_to_numpy(found)

print(json.dumps({
    'exact': float(np.abs(losses(5, False) - true).max()),
    'sampled': float(np.abs(losses(100000, True) - true).max()),
}))
"""


@pytest.mark.parametrize('backend', ['tensorflow', 'jax'])
def test_a_sampled_loss_approaches_the_exact_one_with_the_number_of_noise_words(backend):
    if backend == 'jax':
        pytest.importorskip('jax')
    process = subprocess.run(
        [sys.executable, '-c', CODE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=FOLDER,
        universal_newlines=True,
        env=dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL='2'),
    )
    assert process.returncode == 0, process.stderr[-5000:]
    found = json.loads(process.stdout.splitlines()[-1])
    assert found['exact'] < 1e-5 and found['sampled'] < 0.05
