# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The license at the beginning of every source file."""

import importlib.util
import os

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'check_headers.py')
_spec = importlib.util.spec_from_file_location('check_headers', SCRIPT)
check_headers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_headers)
HEADER = check_headers.HEADER


@pytest.mark.parametrize(
    'source, headed',
    [
        ('"""A module."""\n', HEADER + '"""A module."""\n'),
        ('#!/bin/sh\nexit\n', '#!/bin/sh\n' + HEADER + 'exit\n'),
        ('# A comment.\n', HEADER + '# A comment.\n'),
    ],
)
def test_a_header_comes_first_but_for_the_interpreter_and_once(source, headed):
    assert check_headers.with_header(source) == headed
    assert check_headers.with_header(headed) == headed
