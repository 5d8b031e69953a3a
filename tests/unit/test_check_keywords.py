# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The script that has type checkers find a misspelled keyword of every public name."""

import importlib.util
import os
import subprocess

import pytest

import keras_parallax as kp

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'check_keywords.py')
_spec = importlib.util.spec_from_file_location('check_keywords', SCRIPT)
check_keywords = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_keywords)

#: `make lint` builds it.
TOOLS = os.path.join(ROOT, '.venv-tools', 'bin', 'python')
with_tools = pytest.mark.skipif(not os.path.exists(TOOLS), reason='make lint builds the tools')


def test_every_public_name_is_asked():
    names = check_keywords.public_names(os.path.join(ROOT, 'keras_parallax'))
    own = set(kp.__all__) - set(check_keywords.ROOMS) - check_keywords.NOT_OURS
    own.update('%s.%s' % (room, name) for room in check_keywords.ROOMS for name in all_of(room))
    assert names == sorted(own)
    assert len(check_keywords.script_of(names).splitlines()) == 1 + len(names)


def all_of(room):
    return getattr(kp, room).__all__


def test_what_has_no_error_in_its_line_is_told():
    assert check_keywords.unnoticed(['A', 'B', 'C'], {2, 4}) == ['B']


def asked(root):
    return subprocess.run(
        [TOOLS, SCRIPT, str(root)], stdout=subprocess.PIPE, universal_newlines=True
    )


@with_tools
def test_a_type_checker_finds_a_misspelled_keyword_of_every_public_name():
    process = asked(ROOT)
    assert (process.returncode, process.stdout) == (0, '')


@with_tools
def test_a_class_that_takes_any_keyword_is_told(tmp_path):
    package = tmp_path / 'keras_parallax'
    for room in check_keywords.ROOMS:
        (package / room).mkdir(parents=True)
        (package / room / '__init__.py').write_text('__all__ = []\n')
    (package / '__init__.py').write_text(
        "__all__ = ['Loose', 'Strict']\n"
        'class Loose:\n    def __init__(self, **kwargs) -> None: pass\n'
        'class Strict:\n    def __init__(self, size: int = 0) -> None: pass\n'
    )
    process = asked(tmp_path)
    assert process.returncode == 1
    told = process.stdout.splitlines()
    assert told and all(line.endswith('kp.Loose') for line in told)
