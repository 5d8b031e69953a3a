# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keras 3's own tests, which its wheel has, pass in a strategy's scope as they do outside of it."""

import os
import re
import subprocess
import sys

import frameworks
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

SOURCES = os.path.join(os.path.dirname(keras.__file__), 'src')
TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMBEDDING = 'layers/core/embedding_test.py'
REVERSIBLE = 'layers/core/reversible_embedding_test.py'
TRAINER = 'trainers/trainer_test.py'


@pytest.mark.parametrize(
    'backend, file, fewest',
    [
        ('tensorflow', EMBEDDING, 20),
        ('jax', EMBEDDING, 20),
        pytest.param('tensorflow', REVERSIBLE, 20, marks=pytest.mark.exhaustive),
        pytest.param('jax', REVERSIBLE, 20, marks=pytest.mark.exhaustive),
        ('tensorflow', TRAINER, 100),
        pytest.param('jax', TRAINER, 100, marks=pytest.mark.exhaustive),
    ],
)
def test_own_tests_of_keras_pass_in_a_scope(backend, file, fewest, tmp_path):
    if backend == 'jax':
        pytest.importorskip('jax')
    path = os.path.join(SOURCES, file)
    if not os.path.exists(path):
        pytest.skip('the wheel of Keras %s has no tests' % keras.__version__)
    output = run(backend, tmp_path, [path], ['-p', 'keras3_in_scope'])
    failed = sorted(set(re.findall(r'^(?:FAILED|ERROR) \S*?(::\S+)', output, re.M)))
    assert count(output, 'passed') >= fewest, output[-5000:]
    assert count(output, 'failed') + count(output, 'error') == len(failed), output[-5000:]
    if failed:
        # Some need packages that are not there, in plain Keras, too.
        plain = run(backend, tmp_path, [path + name for name in failed])
        assert count(plain, 'failed') + count(plain, 'error') == len(failed), output[-5000:]


def run(backend, folder, tests, options=()):
    """What pytest prints of some tests of Keras."""
    own = os.pathsep.join([TESTS, *filter(None, [os.environ.get('PYTHONPATH')])])
    process = subprocess.run(
        [
            *[sys.executable, '-m', 'pytest', '-q', '-rfE', '-p', 'no:cacheprovider'],
            *['-c', os.devnull, '--rootdir', str(folder), *options, *tests],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        cwd=str(folder),
        env=dict(os.environ, KERAS_BACKEND=backend, PYTHONPATH=own, TF_CPP_MIN_LOG_LEVEL='3'),
    )
    return process.stdout


def count(output, outcome):
    """How many tests have an outcome, by pytest's last line."""
    found = re.findall(r'(\d+) %ss?\b' % outcome, output.strip().splitlines()[-1])
    return int(found[0]) if found else 0
