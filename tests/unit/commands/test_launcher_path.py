# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where `horovodrun` is, and what is said if that is not where a shell looks."""

import os
import sys

import pytest

from keras_parallax.commands import doctor_checks, launcher_path


@pytest.fixture
def program(tmp_path):
    """Function that makes a program of a name in a folder; its path."""

    def make(folder, name=launcher_path.NAME):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/sh\n')
        path.chmod(0o755)
        return str(path)

    return make


def test_the_launcher_of_this_environment_is_found_on_path_and_beside_python(program, monkeypatch):
    own = program('bin')
    monkeypatch.setattr(sys, 'executable', program('bin', 'python'))
    monkeypatch.setenv('PATH', os.path.dirname(own))
    assert (launcher_path.found(), launcher_path.beside()) == (own, own)
    assert launcher_path.problem(own, own) is None
    monkeypatch.setenv('PATH', '/nowhere')
    assert (launcher_path.found(), launcher_path.beside()) == (None, own)


def test_a_launcher_that_is_not_on_path_is_told_with_the_way_to_activate_it(program):
    own = program('bin')
    message, remedy = launcher_path.problem(None, own)
    assert 'not on PATH' in message and 'export PATH=%s' % os.path.dirname(own) in remedy
    activate = program('bin', 'activate')
    assert launcher_path.problem(None, own)[1].endswith('. ' + activate)


def test_a_launcher_of_another_environment_is_told_with_its_path(program):
    message, _ = launcher_path.problem(program('other'), program('bin'))
    assert program('other') in message and 'not of the environment' in message
    # Without one of its own, an environment takes the one of the system.
    assert launcher_path.problem(program('other'), None) is None


def test_where_there_is_no_launcher_the_environment_with_horovod_is_asked_for():
    _, remedy = launcher_path.problem(None, None)
    assert 'Horovod' in remedy


def test_the_doctor_warns_of_it():
    (fine,) = doctor_checks.check_launcher(None)
    (finding,) = doctor_checks.check_launcher(launcher_path.problem(None, None))
    assert fine.verdict == doctor_checks.OK and finding.verdict == doctor_checks.WARNING
    assert 'horovodrun' in finding.message and finding.remedy
