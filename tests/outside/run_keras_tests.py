"""Runs tests of Keras's own in a strategy's scope, on each rank alike.

Usage: run_keras_tests.py FOLDER RESULTS TEST...

FOLDER is that of Keras's tests, and the results of a rank go to `RESULTS/RANK.xml`.
"""

import os
import sys
import tempfile

import pytest

folder, results, *tests = sys.argv[1:]
rank = os.environ.get('HOROVOD_RANK', '0')
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.dirname(here)]
# Tests leave files in the folder they run in, and look for them there.
os.chdir(tempfile.mkdtemp(dir=results))
sys.exit(
    pytest.main(
        [os.path.join(folder, test) for test in tests]
        # Not captured: why a rank ended would be lost with it.
        + ['-q', '-s', '-c', os.devnull, '--rootdir', folder, '-W', 'ignore']
        + ['-p', 'no:cacheprovider']
        + ['-p', 'parallax_scope', '--basetemp', os.path.join(results, 'files' + rank)]
        + ['--junitxml', os.path.join(results, rank + '.xml')]
    )
)
