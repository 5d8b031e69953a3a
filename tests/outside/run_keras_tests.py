# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs tests of Keras's own in a strategy's scope, on each worker alike.

Usage: run_keras_tests.py FOLDER RESULTS TEST...

FOLDER is that of Keras's tests, and the results of a worker go to `RESULTS/RANK.xml`.
"""

import os
import sys
import tempfile

import pytest

#: It wants a thread of Keras's not to have begun with another epoch 0.1 s after the last batch,
#: which it has where workers with much else to do tell each other how the epoch went (keras 2.2.4).
RACES = ['keras/engine/test_training.py::test_model_methods']
#: Of eight tests of TensorBoard, which take a third of the time, those that train briefly are run.
SLOW = [
    'keras/test_callbacks.py::test_TensorBoard' + name
    for name in (
        '[batch]',
        '[epoch]',
        '[9]',
        '_histogram_freq_must_have_validation_data',
        '_multi_input_output',
        '_convnet',
    )
]

folder, results, *tests = sys.argv[1:]
rank = os.environ.get('HOROVOD_RANK', '0')
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.dirname(here)]
# Tests leave files in the folder they run in, and look for them there.
os.chdir(tempfile.mkdtemp(dir=results))
sys.exit(
    pytest.main(
        [os.path.join(folder, test) for test in tests]
        # Not captured: why a worker ended would be lost with it.
        + ['-q', '-s', '-c', os.devnull, '--rootdir', folder, '-W', 'ignore']
        + ['-p', 'no:cacheprovider']
        + ['--deselect=' + test for test in RACES * ('HOROVOD_RANK' in os.environ) + SLOW]
        + ['-p', 'parallax_scope', '--basetemp', os.path.join(results, 'files' + rank)]
        + ['--junitxml', os.path.join(results, rank + '.xml')]
    )
)
