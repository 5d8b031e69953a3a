"""Which versions are accepted, and what is said of others."""

import platform

import pytest

from keras_parallax.compat import stack, versions


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
    assert versions.version_problem(package, version) is None


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
    problem = versions.version_problem(package, version)
    prefixes, remedy = versions.SUPPORTED[package]
    assert package in problem and version + ' was found' in problem
    assert prefixes[0] in problem and remedy in problem


def test_what_is_installed_here_is_supported():
    import keras

    for package, version in (
        ('TensorFlow', stack.tf.__version__),
        ('Keras', keras.__version__),
        ('Horovod', stack.horovod.__version__),
    ):
        assert versions.version_problem(package, version) is None


@pytest.mark.parametrize('version', ['2.7.18', '3.5.10', '3.7.16', '3.10.13', '3.60.0'])
def test_any_other_python_is_told_with_the_needed_one(version):
    assert 'needs Python 3.6, but this is Python %s ' % version in versions.python_problem(version)


def test_the_python_that_runs_the_tests_is_supported():
    assert versions.python_problem(platform.python_version()) is None
