# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which Debian packages a build of Horovod lacks."""

import os
import subprocess
import sys

import pytest

from keras_parallax.installing import system_packages

PROGRAMS = ['clang', 'clang++', 'cmake', 'g++', 'gcc', 'make', 'mpirun', 'mpicxx']
NEW, OLD = (3, 11), (3, 6)


@pytest.fixture
def machine(tmp_path):
    """A function that gives the environment of a machine with some programs."""

    def make(*without, **environ):
        for name in set(PROGRAMS) - set(without):
            program = tmp_path / name
            program.write_text('#!/bin/sh\nexit 0\n')
            program.chmod(0o755)
        return dict(environ, PATH=str(tmp_path))

    return make


@pytest.mark.parametrize(
    'python, without, environ, packages',
    [
        (NEW, [], {}, []),
        (NEW, ['clang', 'clang++', 'mpirun', 'mpicxx'], {}, []),
        (NEW, ['g++', 'gcc', 'cmake', 'make'], {}, ['cmake', 'g++', 'make']),
        (OLD, ['clang', 'clang++'], {}, ['clang']),
        (NEW, ['mpirun', 'mpicxx'], {'HOROVOD_WITH_MPI': '1'}, ['libopenmpi-dev', 'openmpi-bin']),
        (NEW, ['g++'], {'CC': 'clang', 'CXX': 'clang++'}, []),
        (NEW, ['cmake'], {'HOROVOD_CMAKE': '/bin/true'}, []),
        (NEW, [], {'CXX': 'g++-99'}, ['g++-99']),
    ],
)
def test_a_missing_program_is_found_by_its_package(machine, python, without, environ, packages):
    assert system_packages.missing(machine(*without, **environ), python) == packages


def test_a_compiler_without_a_library_of_c_plus_plus_asks_for_the_one_of_gcc(machine, tmp_path):
    environ = machine()
    (tmp_path / 'clang++').write_text('#!/bin/sh\nexit 1\n')
    assert system_packages.missing(environ, OLD) == ['g++']


def test_any_python_can_run_the_file_by_itself():
    output = subprocess.check_output(
        [sys.executable, '-S', '-E', system_packages.__file__],
        env={'PATH': os.environ['PATH'], 'CXX': 'no-such-compiler'},
    )
    assert 'no-such-compiler' in output.decode().split()
