# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The text of a `SystemExit` that ends a process is noted, and nothing else is."""

import subprocess
import sys

import pytest

from keras_parallax.compat import exit_texts

# Without the package, whose import takes longer than all else.
CODE = (
    """
import atexit, importlib.util, sys, threading, warnings

spec = importlib.util.spec_from_file_location('exit_texts', %r)
exit_texts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exit_texts)
noted = []
exit_texts.install(noted.append)
atexit.register(lambda: print(noted))
"""
    % exit_texts.__file__
)


def noted_by(code):
    process = subprocess.run(
        [sys.executable, '-c', CODE + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    return process.stdout.splitlines()[-1], process


def test_the_text_of_an_exit_is_noted_and_shown():
    noted, process = noted_by("raise SystemExit('no data')")
    assert noted == "['no data']"
    assert process.stderr == 'no data\n' and process.returncode == 1


@pytest.mark.parametrize(
    'code',
    [
        'raise SystemExit(3)',
        'raise SystemExit',
        "raise ValueError('no data')",
        "sys.stderr.write('a line\\n')",
        "print('a line', file=sys.stderr); raise SystemExit(0)",
        "warnings.warn('a warning')",
        "threading.Thread(target=sys.exit, args=['no data']).start()",
        "try:\n    raise SystemExit('no data')\nexcept SystemExit:\n    pass",
    ],
)
def test_nothing_else_is_noted(code):
    assert noted_by(code)[0] == '[]'
