# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Start values that are made by rows are those that plain Keras makes of the same seed."""

import os
import subprocess
import sys

import frameworks
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

import numpy as np  # noqa: E402

#: Initializers, and whether rows of each can be made alone.
INITIALIZERS = {
    'uniform': ('"uniform"', True),
    'lopsided': ('I.RandomUniform(0.1, 0.7, seed=11)', True),
    'glorot_uniform': ('"glorot_uniform"', True),
    'glorot_normal': ('"glorot_normal"', True),
    'he_normal': ('"he_normal"', True),
    'lecun_uniform': ('"lecun_uniform"', True),
    'zeros': ('"zeros"', True),
    'constant': ('I.Constant(0.25)', True),
    'normal': ('I.RandomNormal(0.1, 0.3, seed=3)', True),
    'truncated': ('I.TruncatedNormal(seed=4)', True),
    'scaled': ('I.VarianceScaling(2.0, "fan_avg", "untruncated_normal", seed=2**31 + 5)', True),
    'generator': ('I.RandomUniform(-1, 2, seed=keras.random.SeedGenerator(5))', True),
    'orthogonal': ('I.Orthogonal(seed=3)', False),
    'function': ('lambda shape, dtype: 3 * keras.ops.ones(shape, dtype)', False),
}
SHAPE = (103, 7)

CODE = """
import json
import sys
import keras
import numpy as np
from keras import initializers as I
from keras_parallax.keras3.start_values import StartValues

folder = sys.argv[1]
for name, made in {%s}.items():
    initializer, twin = I.get(made()), I.get(made())
    twin.__dict__.update({key: of for key, of in vars(initializer).items() if key != 'seed'})
    if isinstance(getattr(initializer, 'seed', None), int):
        twin.seed = initializer.seed
    values = StartValues(initializer, %r, block_bytes=1000)
    values.prepare()
    by_rows = values._held is None
    # Another worker has another seed, and takes that of rank 0.
    others = StartValues(I.get(made()), %r)
    if values.draws is not None:
        others.take(json.loads(json.dumps(values.draws)))
    plain = keras.ops.convert_to_numpy(twin(%r, dtype='float32'))
    np.savez(
        '%%s/%%s.npz' %% (folder, name), plain=plain, by_rows=by_rows, parts=values[50:61],
        whole=np.concatenate([values[:40], values[40:]]),
        by_another=others[50:61], looked_up=values.at(np.array([102, 0, 5])),
    )
""" % (
    ', '.join('%r: lambda: %s' % (name, code) for name, (code, _) in INITIALIZERS.items()),
    SHAPE,
    SHAPE,
    SHAPE,
)


@pytest.fixture(scope='module', params=('tensorflow', 'jax'))
def folder(request, tmp_path_factory):
    """Where a process with a backend has written what it found."""
    if request.param == 'jax':
        pytest.importorskip('jax')
    made = tmp_path_factory.mktemp(request.param)
    process = subprocess.run(
        [sys.executable, '-c', CODE, str(made)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        env=dict(os.environ, KERAS_BACKEND=request.param, TF_CPP_MIN_LOG_LEVEL='3'),
    )
    assert process.returncode == 0, process.stdout
    return made


@pytest.mark.parametrize('name', INITIALIZERS)
def test_rows_are_those_of_plain_keras(folder, name):
    found = np.load(str(folder / ('%s.npz' % name)))
    plain = found['plain']
    assert plain.shape == SHAPE
    assert found['by_rows'] == INITIALIZERS[name][1]
    np.testing.assert_array_equal(found['whole'], plain)
    np.testing.assert_array_equal(found['parts'], plain[50:61])
    np.testing.assert_array_equal(found['looked_up'], plain[[102, 0, 5]])
    if INITIALIZERS[name][1]:
        np.testing.assert_array_equal(found['by_another'], plain[50:61])
