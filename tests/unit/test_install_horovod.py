"""How Horovod is installed: from a wheel that is kept in the user's cache, or compiled anew."""

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'install_horovod.py')
_spec = importlib.util.spec_from_file_location('install_horovod', SCRIPT)
install_horovod = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(install_horovod)

REQUIREMENT = 'horovod==0.28.1'
PARTS = {
    'requirement': REQUIREMENT,
    'tensorflow': ['2.21.0', ['--std=c++17']],
    'abi': 'cpython-311-x86_64-linux-gnu',
    'compilers': [['gcc 12.2'], ['g++ 12.2', 'the text of a script']],
    'variables': {'HOROVOD_WITH_GLOO': '1'},
    'system': 'glibc 2.36',
}


@pytest.mark.parametrize(
    'part, value',
    [
        ('requirement', 'horovod==0.28.2'),
        ('tensorflow', ['2.21.1', ['--std=c++17']]),
        ('tensorflow', ['2.21.0', ['--std=c++20']]),
        ('abi', 'cpython-312-x86_64-linux-gnu'),
        ('compilers', [['gcc 13.1'], ['g++ 12.2', 'the text of a script']]),
        ('compilers', [['gcc 12.2'], ['g++ 12.2', 'another text']]),
        ('variables', {'HOROVOD_WITH_GLOO': '1', 'HOROVOD_GPU_OPERATIONS': 'NCCL'}),
        ('system', 'glibc 2.39'),
    ],
)
def test_a_wheels_folder_depends_on(part, value):
    name = install_horovod.folder_name(**PARTS)
    readable = 'horovod-0.28.1-tensorflow-2.21.0-cpython-311-x86_64-linux-gnu-'
    assert name.startswith(readable)
    assert install_horovod.folder_name(**dict(PARTS, **{part: value})) != name
    assert install_horovod.folder_name(**PARTS) == name


def test_what_a_user_has_set_for_horovod_holds():
    variables = install_horovod.build_variables(
        {'HOROVOD_WITH_MPI': '1', 'HOROVOD_WITHOUT_MPI': '0', 'CXXFLAGS': '-O1', 'EDITOR': 'ed'}
    )
    assert variables['HOROVOD_WITH_MPI'] == '1' and variables['HOROVOD_WITHOUT_MPI'] == '0'
    assert variables['CXXFLAGS'] == '-O1' and 'EDITOR' not in variables
    assert variables['HOROVOD_WITH_GLOO'] == '1'


def test_the_cache_is_where_the_user_has_caches():
    kept = install_horovod.cache_folder
    assert kept({'HOME': '/home/me'}) == '/home/me/.cache/keras-parallax/wheels'
    assert kept({'HOME': '/h', 'XDG_CACHE_HOME': '/c'}) == '/c/keras-parallax/wheels'
    assert kept({}) is None


class Environment:
    """An environment in which wheels are compiled and installed in no time."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.compiled, self.installed = folder, 0, None
        self.broken = set()
        monkeypatch.setenv('XDG_CACHE_HOME', str(folder / 'cache'))
        monkeypatch.setattr(install_horovod, 'tensorflow_parts', lambda: PARTS['tensorflow'])
        monkeypatch.setattr(install_horovod, 'compiler_parts', lambda compiler: [compiler])
        monkeypatch.setattr(install_horovod, 'compile_wheel', self.compile_wheel)
        monkeypatch.setattr(install_horovod, 'install', self.install)
        monkeypatch.setattr(install_horovod, 'works', self.works)
        monkeypatch.setattr(install_horovod, 'require', self.require)

    def compile_wheel(self, requirement, variables, folder):
        self.compiled += 1
        path = self.folder / 'horovod-0.28.1-cp311-cp311-linux_x86_64.whl'
        with zipfile.ZipFile(str(path), 'w') as wheel:
            wheel.writestr('number', str(self.compiled))
        return str(path)

    def install(self, wheel, requirement):
        with zipfile.ZipFile(wheel) as file:
            self.installed = int(file.read('number'))

    def works(self, requirement):
        return self.installed is not None and self.installed not in self.broken

    def require(self, requirement):
        assert self.works(requirement)

    def run(self):
        """Installs Horovod as in another checkout."""
        self.installed = None
        install_horovod.main(REQUIREMENT, 'gcc', 'g++')
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
def test_a_damaged_wheel_is_compiled_anew_and_replaced(environment, capsys, damage):
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
    assert 'is damaged' in capsys.readouterr().out
    assert environment.run() == 2
    assert environment.kept() == [wheel]


def test_a_wheel_that_does_not_work_here_is_compiled_anew_and_replaced(environment, capsys):
    environment.run()
    environment.broken.add(1)
    assert environment.run() == 2
    assert 'does not work here' in capsys.readouterr().out
    assert environment.run() == 2


def test_what_cannot_be_kept_is_installed_all_the_same(environment, capsys):
    (environment.folder / 'cache').write_text('a file where a folder should be')
    assert environment.run() == 1
    assert 'is not kept' in capsys.readouterr().out


def test_a_failed_build_ends_with_the_end_of_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(install_horovod.sys, 'executable', '/bin/false')
    with pytest.raises(install_horovod.BuildError, match='did not build.*build.log'):
        install_horovod.compile_wheel(REQUIREMENT, {'CXX': 'g++'}, str(tmp_path))


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
    wheel = install_horovod.compile_wheel(REQUIREMENT, {'CXX': 'mine'}, str(tmp_path / 'made'))
    with zipfile.ZipFile(wheel) as file:
        assert file.read('compiler.py') == b'mine'


def test_a_build_that_went_past_the_script_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(install_horovod.sys, 'executable', '/bin/true')
    with pytest.raises(install_horovod.BuildError, match='not compiled by .*cxx_without_xla.sh'):
        install_horovod.compile_wheel(
            REQUIREMENT, {'CXX': 'scripts/cxx_without_xla.sh'}, str(tmp_path)
        )


def test_a_compilation_is_spared_what_takes_time_unless_the_user_wants_it(environment, monkeypatch):
    given = []
    compile_wheel = environment.compile_wheel

    def note(requirement, variables, folder):
        given.append(variables)
        return compile_wheel(requirement, variables, folder)

    monkeypatch.setattr(install_horovod, 'compile_wheel', note)
    environment.run()
    monkeypatch.setenv('HOROVOD_CMAKE', '/opt/cmake')
    monkeypatch.setenv('CFLAGS', '-g3')
    environment.run()
    assert given[0]['HOROVOD_CMAKE'] == install_horovod.CMAKE
    assert given[0]['CFLAGS'] == '-g0'
    assert given[1]['HOROVOD_CMAKE'] == '/opt/cmake'
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
        output = subprocess.check_output([install_horovod.CMAKE] + arguments, cwd=str(folder))
    compiled = [line for line in output.decode().splitlines() if line.rstrip().endswith('.cc')]
    assert {os.path.basename(line.split()[-1])[: -len('.cc')] for line in compiled} == built
    assert all('-O2' in line.split() and '-g' not in line.split() for line in compiled)


def compile_without_xla(folder, name, text):
    """Runs the script on a file of Horovod's."""
    path = folder / 'horovod' / 'tensorflow' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return subprocess.run(
        [os.path.join(ROOT, 'scripts', 'cxx_without_xla.sh'), '-c', str(path), '-o', 'made.o'],
        cwd=str(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def test_xla_operations_are_left_out_of_horovod_and_nothing_else(tmp_path):
    xla = '#include "there/is/no/such/header.h"\nHVD_REGISTER_XLA_OP("A", B);\n'
    done = compile_without_xla(tmp_path, 'xla_mpi_ops.cc', xla)
    assert done.returncode == 0, done.stderr
    assert install_horovod.LEFT_OUT in done.stderr
    assert (tmp_path / 'made.o').exists()
    assert compile_without_xla(tmp_path, 'mpi_ops.cc', xla).returncode != 0
    assert compile_without_xla(tmp_path, 'mpi_ops.cc', 'int there;\n').returncode == 0


def test_another_file_in_the_place_of_the_xla_operations_is_an_error(tmp_path):
    done = compile_without_xla(tmp_path, 'xla_mpi_ops.cc', 'int needed;\n')
    assert done.returncode == 1
    assert 'is not the file of Horovod 0.28.1' in done.stderr
