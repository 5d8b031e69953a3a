# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which versions are accepted, and what is said of others."""

import ast
import os
import platform

import horovod
import pytest
from frameworks import KERAS_PACKAGES, TF2, keras_module

from keras_parallax.compat import installed_frameworks, supported_versions

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))

of_python_36 = pytest.mark.skipif(TF2, reason='what is supported is told for the Python that runs')


@of_python_36
@pytest.mark.parametrize(
    'package, version',
    [
        ('TensorFlow', '1.11.0'),
        ('TensorFlow', '1.11.1'),
        ('Keras', '2.2.4'),
        ('Horovod', '0.19.5'),
        ('Horovod', '0.19.0'),
    ],
)
def test_a_supported_version_is_no_problem(package, version):
    assert supported_versions.version_problem(package, version) is None


@of_python_36
@pytest.mark.parametrize(
    'package, version',
    [
        ('TensorFlow', '1.10.1'),
        ('TensorFlow', '1.12.0'),
        ('TensorFlow', '1.1.0'),
        ('TensorFlow', '2.0.0'),
        ('TensorFlow', '11.11.0'),
        ('Keras', '2.2.5'),
        ('Keras', '2.3.1'),
        ('Horovod', '0.18.2'),
        ('Horovod', '0.20.0'),
        ('Horovod', '0.1.9'),
    ],
)
def test_any_other_version_is_told_with_the_needed_one_and_how_to_get_it(package, version):
    problem = supported_versions.version_problem(package, version)
    prefixes, remedy = supported_versions.SUPPORTED[package]
    assert package in problem and version + ' was found' in problem
    assert prefixes[0] in problem and remedy in problem


def test_what_is_installed_here_is_supported():
    keras = keras_module(KERAS_PACKAGES[0])
    for package, version in (
        ('TensorFlow', installed_frameworks.tensorflow.__version__),
        ('Keras', keras.__version__),
        ('Horovod', horovod.__version__),
    ):
        assert supported_versions.version_problem(package, version) is None


@pytest.mark.parametrize(
    'path',
    [
        'keras_parallax_command.py',
        'keras_parallax/__init__.py',
        'keras_parallax/errors.py',
        'keras_parallax/compat/__init__.py',
        'keras_parallax/compat/supported_versions.py',
        'keras_parallax/compat/remedies.py',
    ],
)
def test_python_2_can_read_what_names_the_pythons_that_are_needed(path):
    with open(os.path.join(ROOT, path)) as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        assert not isinstance(node, (ast.AnnAssign, ast.JoinedStr, ast.Nonlocal, ast.YieldFrom))
        assert getattr(node, 'annotation', None) is None and getattr(node, 'returns', None) is None
        assert not (isinstance(node, ast.Raise) and node.cause)
        parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else ()
        assert not any(isinstance(part, ast.Starred) for part in parts)
        assert not (isinstance(node, ast.arguments) and node.kwonlyargs)
        assert not (isinstance(node, ast.ImportFrom) and node.module == 'typing_extensions')


@pytest.mark.parametrize('version', ['2.7.18', '3.5.10', '3.8.18', '3.14.0', '3.60.0'])
def test_any_other_python_is_told_with_the_needed_ones(version):
    problem = supported_versions.python_problem(version)
    assert 'needs Python 3.6 for TensorFlow 1.6 and 1.11, 3.7 for TensorFlow 1.15, 3.9 ' in problem
    assert ', but this is Python %s ' % version in problem


@pytest.mark.parametrize(
    'version, names',
    [
        ('3.6.15', ['tf1.6', 'tf1.11']),
        ('3.7.16', ['tf1.15']),
        ('3.9.18', ['tf2.15']),
        ('3.11.2', ['tf2.15', 'tf2.21']),
        ('3.13.0', ['tf2.21']),
        ('3.8.18', []),
    ],
)
def test_a_python_has_the_stacks_that_are_made_for_it(version, names):
    assert [stack.name for stack in supported_versions.stacks_for(version)] == names


@pytest.mark.parametrize(
    'version, nearest', [('2.17.1', '2.15'), ('2.20.0', '2.21'), ('2.22.0', '2.21')]
)
def test_a_tensorflow_between_is_told_with_the_nearest_that_was_tested(version, nearest):
    told = supported_versions.untested(version)
    assert version in told and told.endswith('tested with is %s.' % nearest)


@pytest.mark.parametrize('version', ['1.6.0', '1.11.0', '1.15.5', '2.15.1', '2.21.0'])
def test_of_a_tested_tensorflow_nothing_is_told(version):
    assert supported_versions.untested(version) is None


def test_the_python_that_runs_the_tests_is_supported():
    assert supported_versions.python_problem(platform.python_version()) is None


def test_every_stack_that_is_built_is_one_that_is_accepted_with_the_same_pythons():
    path = os.path.join(ROOT, 'requirements', 'stacks.txt')
    with open(path) as lines:
        rows = [line.split('|') for line in lines if line.strip() and not line.startswith('#')]
    built = {row[0].strip(): row[1].split() for row in rows}
    assert sorted(built) == sorted(stack.name for stack in supported_versions.STACKS)
    for one in supported_versions.STACKS:
        first, last = one.pythons
        minors = range(first[1], last[1] + 1)
        assert sorted(built[one.name]) == sorted('%d.%d' % (first[0], minor) for minor in minors)
        assert os.path.exists(os.path.join(ROOT, 'requirements', 'lock-%s.txt' % one.name))
