# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""No worker holds a whole table of a Keras 3 model, whatever is done with it."""

import contextlib
import json
import os
import shutil
import zipfile

import frameworks
import h5py
import launch
import numpy as np
import pytest

pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: Mebibytes of the table, half of which each worker has, and by how much a worker may grow.
TABLE, LIMIT = 768, 680
#: What TensorFlow's own pools reserve says nothing of what we hold.
ENVIRON = {'TF_ENABLE_ONEDNN_OPTS': '0'}
TABLE_IN_FILE = 'layers/embedding/vars/0'


def blocks_of(dataset):
    for first in range(0, len(dataset), 2**18):
        yield dataset[first : first + 2**18]


@pytest.mark.parametrize(
    'backend', ('tensorflow', pytest.param('jax', marks=pytest.mark.exhaustive))
)
def test_a_table_larger_than_the_memory_of_a_worker_is_trained_and_exported(backend, tmp_path):
    if backend == 'jax':
        pytest.importorskip('jax')
    worker = 'parallel/keras3_memory_worker.py'
    outcome = launch.run(2, worker, backend, tmp_path, TABLE, LIMIT, environ=ENVIRON)
    assert outcome.code == 0, outcome.output[-5000:]
    for rank in range(2):
        found = json.loads((tmp_path / ('%d.json' % rank)).read_text())
        assert found['limited'] and found['changed'] > 0.0, found
        assert found['loaded'] == found['resumed'] == 0.0, found
    plain = launch.run(0, worker, backend, tmp_path, TABLE)
    assert plain.code == 0, plain.output[-5000:]
    assert json.loads((tmp_path / 'plain.json').read_text()) < 1e-5
    with zipfile.ZipFile(tmp_path / 'model.keras') as archive:
        archive.extract('model.weights.h5', tmp_path)
    names = ('start.weights.h5', 'end.weights.h5', 'plain.weights.h5', 'model.weights.h5')
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(h5py.File(tmp_path / name, 'r')) for name in names]
        moved = 0
        for start, end, of_plain, in_model in zip(*(blocks_of(of[TABLE_IN_FILE]) for of in files)):
            np.testing.assert_allclose(end, of_plain, rtol=0, atol=1e-5)
            np.testing.assert_array_equal(end, in_model)
            moved += np.count_nonzero(np.any(start != end, axis=1))
        # As many rows as ids were looked up, few of them twice.
        assert 200 < moved <= 256
    for name in names:
        os.remove(tmp_path / name)
    for folder in ('parts', 'exported'):
        shutil.rmtree(tmp_path / folder)
