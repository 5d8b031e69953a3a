# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which stack `scripts/choose_stack.sh` takes, by the Pythons that it finds."""

import os
import shutil
import subprocess

import pytest

SCRIPTS = os.path.join(os.path.dirname(__file__), '..', '..', 'scripts')

#: All that the script runs besides Pythons.
TOOLS = ('bash', 'dirname', 'grep', 'paste', 'sed', 'sort')


class Machine:
    """A machine that has the Pythons that a test puts there, and no other."""

    def __init__(self, folder):
        self.bin, self.pyenv = folder / 'bin', folder / 'pyenv'
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def add(self, version, answer=None):
        """Puts a Python on PATH, which answers to being asked what it lacks."""
        path = self.bin / ('python' + version)
        path.write_text('#!%s\necho %s\n' % (self.bin / 'bash', answer or 'whole %s' % path))
        path.chmod(0o755)

    def choose(self, stack='', **environ):
        """What the script prints: its five lines."""
        return self.run(stack, subprocess.DEVNULL, **environ).stdout.splitlines()

    def run(self, stack, stderr=subprocess.PIPE, **environ):
        return subprocess.run(
            [os.path.join(SCRIPTS, 'choose_stack.sh')],
            env=dict(environ, PATH=str(self.bin), PYENV_ROOT=str(self.pyenv), STACK=stack),
            stdout=subprocess.PIPE,
            stderr=stderr,
            universal_newlines=True,
        )


@pytest.fixture
def machine(tmp_path):
    # The script's first line finds its bash by `env`.
    machine = Machine(tmp_path)
    (machine.bin / 'env').symlink_to(shutil.which('env'))
    return machine


def test_the_reference_is_taken_where_there_is_a_python_3_6(machine):
    for version in ('3.6', '3.9', '3.11'):
        machine.add(version)
    name, environment, python, packages, why = machine.choose()
    assert (name, environment, packages) == ('tf1.11', '.venv', '')
    assert python == str(machine.bin / 'python3.6')
    assert why == 'because there is a Python 3.6 (%s)' % python


def test_a_python_of_pyenv_is_found(machine):
    folder = machine.pyenv / 'versions' / '3.6.15' / 'bin'
    folder.mkdir(parents=True)
    machine.add('3.6')
    shutil.move(str(machine.bin / 'python3.6'), str(folder / 'python'))
    assert machine.choose()[0] == 'tf1.11'


@pytest.mark.parametrize(
    'versions, stack, python',
    [
        (['3.9', '3.11'], 'tf2.21', '3.11'),
        (['3.10'], 'tf2.21', '3.10'),
        (['3.10', '3.13'], 'tf2.21', '3.13'),
        (['3.9'], 'tf2.15', '3.9'),
        (['3.7'], 'tf1.15', '3.7'),
        (['3.7', '3.9'], 'tf2.15', '3.9'),
    ],
)
def test_else_the_newest_stack_is_taken_that_there_is_a_python_for(
    machine, versions, stack, python
):
    for version in versions:
        machine.add(version)
    name, environment, path, _, why = machine.choose()
    assert (name, environment) == (stack, '.venv-' + stack)
    assert path == str(machine.bin / ('python' + python))
    assert why.startswith('because there is no Python 3.6')
    assert why.endswith('but a Python %s (%s)' % (python, path))


def test_a_stack_is_taken_by_its_name(machine):
    for version in ('3.6', '3.11'):
        machine.add(version)
    name, environment, _, _, why = machine.choose('tf2.15')
    assert (name, environment) == ('tf2.15', '.venv-tf2.15')
    assert why.startswith('as STACK says, with Python 3.11')


def test_of_two_stacks_of_a_python_the_first_is_taken_unless_it_is_named(machine):
    machine.add('3.6')
    assert machine.choose()[:2] == ['tf1.11', '.venv']
    assert machine.choose('tf1.6')[:2] == ['tf1.6', '.venv-tf1.6']


def test_an_environment_with_mpi_stands_beside_the_one_without(machine):
    for version in ('3.6', '3.11'):
        machine.add(version)
    assert machine.choose(MPI='1')[:2] == ['tf1.11', '.venv-mpi']
    assert machine.choose('tf2.21', MPI='1')[:2] == ['tf2.21', '.venv-tf2.21-mpi']


def test_what_debians_python_lacks_is_named(machine):
    machine.add('3.11', 'bare /usr/bin/python3.11')
    name, _, python, packages, _ = machine.choose()
    assert (name, python, packages) == ('tf2.21', '/usr/bin/python3.11', 'python3.11-venv')


def test_a_whole_python_goes_before_one_that_lacks_something(machine):
    machine.add('3.11', 'bare /usr/bin/python3.11')
    machine.add('3.12')
    assert machine.choose()[2:4] == [str(machine.bin / 'python3.12'), '']


def test_a_python_that_no_package_mends_is_not_taken(machine):
    machine.add('3.11', 'bare /opt/python3.11')
    machine.add('3.9')
    assert machine.choose()[0] == 'tf2.15'


def test_a_shim_that_runs_no_python_is_not_taken(machine):
    machine.add('3.6', '; exit 127')
    machine.add('3.11')
    assert machine.choose()[0] == 'tf2.21'


def test_without_a_python_a_sentence_says_how_to_get_one(machine):
    answer = machine.run('')
    assert answer.returncode == 1
    assert "'apt-get install python3 python3-venv' or 'pyenv install 3.6'" in answer.stderr
    answer = machine.run('tf2.15')
    assert answer.returncode == 1
    assert 'No Python was found for tf2.15 (looked for 3.9, 3.10, 3.11)' in answer.stderr
    assert 'apt-get' not in answer.stderr


def test_an_unknown_stack_is_told_with_those_that_there_are(machine):
    machine.add('3.11')
    answer = machine.run('tf9')
    assert answer.returncode == 1
    with open(os.path.join(os.path.dirname(SCRIPTS), 'requirements', 'stacks.txt')) as file:
        names = [line.split()[0] for line in file if not line.startswith('#')]
    assert answer.stderr.startswith('There is no stack tf9; there are: %s.' % ' '.join(names))
