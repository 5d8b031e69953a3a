# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How Horovod is installed: from a wheel that is kept in the user's cache, or compiled anew."""

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from keras_parallax.errors import StackError
from keras_parallax.installing import horovod_build, horovod_check, system_packages

REQUIREMENT = 'horovod==0.28.1'
TENSORFLOW = ['2.21.0', ['--std=c++17']]


def test_what_a_user_has_set_for_horovod_holds():
    variables = horovod_build.build_variables(
        {'HOROVOD_WITH_MPI': '1', 'HOROVOD_WITHOUT_MPI': '0', 'CXXFLAGS': '-O1', 'EDITOR': 'ed'}
    )
    assert variables['HOROVOD_WITH_MPI'] == '1' and variables['HOROVOD_WITHOUT_MPI'] == '0'
    assert variables['CXXFLAGS'] == '-O1' and 'EDITOR' not in variables
    assert variables['HOROVOD_WITH_GLOO'] == '1'


class Environment:
    """An environment in which wheels are compiled and installed in no time."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.compiled, self.installed = folder, 0, None
        self.broken = set()
        monkeypatch.setenv('XDG_CACHE_HOME', str(folder / 'cache'))
        self.said = []
        monkeypatch.setattr(horovod_build, 'tensorflow_parts', lambda: TENSORFLOW)
        monkeypatch.setattr(horovod_build, 'compiler_parts', lambda *parts: [parts[0]])
        monkeypatch.setattr(horovod_build, 'compile_wheel', self.compile_wheel)
        monkeypatch.setattr(horovod_build, '_pip_install', lambda *arguments: None)
        monkeypatch.setattr(horovod_build, 'install', self.install)
        monkeypatch.setattr(horovod_check, 'load_problem', self.load_problem)
        monkeypatch.setattr(horovod_check, 'two_ranks_problem', lambda environ: None)

    def compile_wheel(self, requirement, variables, folder):
        self.compiled += 1
        os.makedirs(folder)
        path = os.path.join(folder, 'horovod-0.28.1-cp311-cp311-linux_x86_64.whl')
        with zipfile.ZipFile(path, 'w') as wheel:
            wheel.writestr('number', str(self.compiled))
        return path

    def install(self, wheel, requirement):
        with zipfile.ZipFile(wheel) as file:
            self.installed = int(file.read('number'))

    def load_problem(self, requirement, environ):
        works = self.installed is not None and self.installed not in self.broken
        return None if works else 'it does not load'

    def run(self, **arguments):
        """Installs Horovod as in another checkout."""
        self.installed = None
        horovod_build.install_horovod(self.said.append, requirement=REQUIREMENT, **arguments)
        return self.installed

    def kept(self):
        return [path for path in (self.folder / 'cache').glob('**/*') if path.is_file()]


@pytest.fixture
def environment(tmp_path, monkeypatch):
    return Environment(tmp_path, monkeypatch)


def test_a_second_checkout_takes_the_wheel_of_the_first(environment):
    assert [environment.run(), environment.run()] == [1, 1]
    assert environment.compiled == 1
    (wheel,) = environment.kept()
    assert wheel.suffix == '.whl' and wheel.parent.name.startswith('horovod-0.28.1-tensorflow-2.21')


def test_other_switches_ask_for_another_wheel(environment, monkeypatch):
    environment.run()
    monkeypatch.setenv('HOROVOD_GPU_OPERATIONS', 'NCCL')
    assert environment.run() == 2
    assert len(environment.kept()) == 2


@pytest.mark.parametrize('damage', ['cut', 'flip', 'empty'])
def test_a_damaged_wheel_is_compiled_anew_and_replaced(environment, damage):
    environment.run()
    (wheel,) = environment.kept()
    content = wheel.read_bytes()
    place = content.index(b'number') + len(b'number')
    wheel.write_bytes(
        {
            'cut': content[:-10],
            'flip': content[:place] + b'7' + content[place + 1 :],
            'empty': b'',
        }[damage]
    )
    assert environment.run() == 2
    assert any('is damaged' in sentence for sentence in environment.said)
    assert environment.run() == 2
    assert environment.kept() == [wheel]


def test_a_wheel_that_does_not_work_here_is_compiled_anew_and_replaced(environment):
    environment.run()
    environment.broken.add(1)
    assert environment.run() == 2
    assert any('does not work here' in sentence for sentence in environment.said)
    assert environment.run() == 2


def test_what_cannot_be_kept_is_installed_all_the_same(environment):
    (environment.folder / 'cache').write_text('a file where a folder should be')
    assert environment.run() == 1
    assert any('is not kept' in sentence for sentence in environment.said)


def test_a_failed_build_ends_with_the_end_of_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(horovod_build.sys, 'executable', '/bin/false')
    with pytest.raises(StackError, match='did not build.*build.log'):
        horovod_build.compile_wheel(REQUIREMENT, {'CXX': 'g++'}, str(tmp_path))


def test_a_wheel_of_pips_own_cache_is_not_taken_for_a_compiled_one(tmp_path, monkeypatch):
    source = tmp_path / 'horovod-0.28.1'
    source.mkdir()
    (source / 'setup.py').write_text(
        'import os\n'
        'from setuptools import setup\n'
        "with open('compiler.py', 'w') as file:\n"
        "    file.write(os.environ['CXX'])\n"
        "setup(name='horovod', version='0.28.1', py_modules=['compiler'])\n"
    )
    with tarfile.open(str(tmp_path / 'horovod-0.28.1.tar.gz'), 'w:gz') as archive:
        archive.add(str(source), source.name)
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(tmp_path))
    monkeypatch.setenv('PIP_CACHE_DIR', str(tmp_path / 'cache'))
    # As somebody's own `pip wheel` leaves it there.
    command = [sys.executable, '-m', 'pip', 'wheel', '--no-build-isolation', '--no-deps']
    command += ['--wheel-dir', str(tmp_path / 'other'), REQUIREMENT]
    subprocess.check_call(command, env=dict(os.environ, CXX='other'))
    wheel = horovod_build.compile_wheel(REQUIREMENT, {'CXX': 'mine'}, str(tmp_path / 'made'))
    with zipfile.ZipFile(wheel) as file:
        assert file.read('compiler.py') == b'mine'


def test_a_build_that_went_past_the_script_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(horovod_build.sys, 'executable', '/bin/true')
    with pytest.raises(StackError, match='not compiled by .*cxx_without_xla.sh'):
        horovod_build.compile_wheel(REQUIREMENT, {'CXX': horovod_build.CXX_SCRIPT}, str(tmp_path))


def test_a_compilation_is_spared_what_takes_time_unless_the_user_wants_it(environment, monkeypatch):
    given = []
    compile_wheel = environment.compile_wheel

    def note(requirement, variables, folder):
        given.append(variables)
        return compile_wheel(requirement, variables, folder)

    monkeypatch.setattr(horovod_build, 'compile_wheel', note)
    environment.run()
    monkeypatch.setenv('HOROVOD_CMAKE', '/bin/true')
    monkeypatch.setenv('CFLAGS', '-g3')
    environment.run()
    assert os.path.basename(given[0]['HOROVOD_CMAKE']) == 'cmake_without_waste.sh'
    assert given[0]['CFLAGS'] == '-g0'
    assert given[1]['HOROVOD_CMAKE'] == '/bin/true'
    assert given[1]['CFLAGS'] == '-g0 -g3'


@pytest.mark.parametrize(
    'target, built', [('tensorflow', {'tensorflow'}), ('gloo', {'gloo', 'all'})]
)
def test_only_what_tensorflow_loads_is_built_and_without_debug_information(tmp_path, target, built):
    (tmp_path / 'CMakeLists.txt').write_text(
        'cmake_minimum_required(VERSION 3.5)\n'
        'project(some CXX)\n'
        'add_library(%s SHARED %s.cc)\n'
        'add_library(all_else SHARED all.cc)\n' % (target, target)
    )
    for name in target, 'all':
        (tmp_path / (name + '.cc')).write_text('int there;\n')
    folder = tmp_path / 'build'
    folder.mkdir()
    # As Horovod calls it.
    configuration = 'RelWithDebInfo'
    for arguments in (
        [str(tmp_path), '-DCMAKE_BUILD_TYPE=' + configuration],
        ['--build', '.', '--config', configuration, '--', 'VERBOSE=1'],
    ):
        command = ['bash', horovod_build.CMAKE_SCRIPT] + arguments
        output = subprocess.check_output(command, cwd=str(folder))
    compiled = [line for line in output.decode().splitlines() if line.rstrip().endswith('.cc')]
    assert {os.path.basename(line.split()[-1])[: -len('.cc')] for line in compiled} == built
    assert all('-O2' in line.split() and '-g' not in line.split() for line in compiled)


def compile_without_xla(folder, name, text):
    """Runs the script on a file of Horovod's."""
    path = folder / 'horovod' / 'tensorflow' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return subprocess.run(
        ['bash', horovod_build.CXX_SCRIPT, '-c', str(path), '-o', 'made.o'],
        cwd=str(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def test_xla_operations_are_left_out_of_horovod_and_nothing_else(tmp_path):
    xla = '#include "there/is/no/such/header.h"\nHVD_REGISTER_XLA_OP("A", B);\n'
    done = compile_without_xla(tmp_path, 'xla_mpi_ops.cc', xla)
    assert done.returncode == 0, done.stderr
    assert horovod_build.LEFT_OUT in done.stderr
    assert (tmp_path / 'made.o').exists()
    assert compile_without_xla(tmp_path, 'mpi_ops.cc', xla).returncode != 0
    assert compile_without_xla(tmp_path, 'mpi_ops.cc', 'int there;\n').returncode == 0


def test_another_file_in_the_place_of_the_xla_operations_is_an_error(tmp_path):
    done = compile_without_xla(tmp_path, 'xla_mpi_ops.cc', 'int needed;\n')
    assert done.returncode == 1
    assert 'is not the file of Horovod 0.28.1' in done.stderr


def test_horovod_that_works_is_left_alone_unless_it_is_to_be_built(environment):
    environment.run()
    horovod_build.install_horovod(environment.said.append, requirement=REQUIREMENT)
    assert environment.compiled == 1
    assert environment.run(rebuild=True) == 2
    assert len(environment.kept()) == 1


def test_missing_system_packages_are_named_with_the_command_that_installs_them(
    environment, monkeypatch
):
    monkeypatch.setattr(system_packages, 'missing', lambda environ: ['cmake', 'g++'])
    with pytest.raises(StackError, match='apt-get install -y .* cmake g[+][+]$'):
        environment.run()
    assert environment.compiled == 0


def test_horovod_that_two_ranks_cannot_use_is_an_error_and_not_kept(environment, monkeypatch):
    monkeypatch.setattr(horovod_check, 'two_ranks_problem', lambda environ: 'a lost connection')
    with pytest.raises(StackError, match='a lost connection\nHorovod was built and installed'):
        environment.run()
    assert environment.kept() == []


def test_a_missing_tensorflow_is_told_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(horovod_build.sys, 'executable', '/bin/false')
    with pytest.raises(StackError, match='TensorFlow could not be imported .*pip install'):
        horovod_build.tensorflow_parts()


def test_with_mpi_horovod_0_19_is_not_told_anything_of_doing_without():
    assert horovod_build.build_variables({'HOROVOD_WITH_MPI': '1'})['HOROVOD_WITHOUT_MPI'] == ''
    assert horovod_build.build_variables({})['HOROVOD_WITHOUT_MPI'] == '1'
