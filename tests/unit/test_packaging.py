"""What pip makes of the project: a pure wheel, and from its sdist the same one."""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
from packaging.requirements import Requirement

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = (
    'LICENSE',
    'MANIFEST.in',
    'README.md',
    'keras_parallax',
    'keras_parallax_command.py',
    'pyproject.toml',
    'setup.py',
)


def call(*command, **options):
    """Runs a command and returns what it prints.

    With the packages of this environment, and without those that a variable of the user's names.
    """
    environ = dict(os.environ, PYTHONPATH=sysconfig.get_paths()['purelib'])
    process = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        **options,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
    """A copy of what is packaged: a build leaves things beside its sources."""
    folder = tmp_path_factory.mktemp('sources')
    for name in SOURCES:
        path = os.path.join(ROOT, name)
        if os.path.isdir(path):
            ignored = shutil.ignore_patterns('__pycache__')
            shutil.copytree(path, str(folder / name), ignore=ignored)
        else:
            shutil.copy(path, str(folder / name))
    return folder


@pytest.fixture(scope='module')
def wheel(sources, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('wheel'))
    pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '--no-index']
    call(*pip, '--wheel-dir', folder, str(sources))
    (path,) = glob.glob(os.path.join(folder, '*.whl'))
    return path


@pytest.fixture(scope='module')
def sdist(sources, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('sdist'))
    code = 'import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])'
    call(sys.executable, '-c', code, folder, cwd=str(sources))
    (path,) = glob.glob(os.path.join(folder, '*.tar.gz'))
    return path


def modules(folder):
    """Paths of the files that are ours, Python and what it reads, relative to a folder."""
    paths = []
    for pattern in ('*.py', '*.html', '*.sh', 'py.typed'):
        paths += glob.glob(os.path.join(folder, 'keras_parallax', '**', pattern), recursive=True)
    paths += glob.glob(os.path.join(folder, 'keras_parallax_command.py'))
    return {os.path.relpath(path, folder) for path in paths}


def test_the_wheel_is_for_every_python_3_and_every_machine(wheel):
    assert re.match(r'keras_parallax-[0-9.]+-py3-none-any\.whl$', os.path.basename(wheel))


def test_type_checkers_are_told_that_the_package_has_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert 'keras_parallax/py.typed' in archive.namelist()


def test_the_sdist_has_what_a_build_reads(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert {'LICENSE', 'README.md', 'pyproject.toml', 'setup.py'} <= names
    assert modules(ROOT) <= names


@pytest.mark.parametrize('kind', ['wheel', 'sdist'])
def test_a_fresh_environment_gets_every_module_and_the_command(request, tmp_path, kind):
    fresh = str(tmp_path / 'fresh')
    call(sys.executable, '-m', 'venv', '--without-pip', fresh)
    python = os.path.join(fresh, 'bin', 'python')
    # Its own pip would have to be fetched or unpacked, so the one of here is lent to it.
    pip = [python, '-m', 'pip', 'install', '--no-deps', '--no-build-isolation', '--no-index']
    call(*pip, '--ignore-installed', request.getfixturevalue(kind))
    (packages,) = glob.glob(os.path.join(fresh, 'lib', 'python*', 'site-packages'))
    assert modules(packages) == modules(ROOT)

    # None of what it needs is there: it says so in a line.
    command = subprocess.run(
        [os.path.join(fresh, 'bin', 'keras-parallax'), 'doctor'],
        env={'PATH': os.environ['PATH']},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert command.returncode == 1
    assert re.match(r"(No module named '\w+'|keras-parallax needs .*)\n$", command.stderr)


def stacks():
    """Rows of the table of stacks: name, a Python of it, and its setuptools."""
    with open(os.path.join(ROOT, 'requirements', 'stacks.txt')) as file:
        rows = [line.split('|') for line in file if not line.startswith('#')]
    for name, pythons, tools in rows:
        for python in pythons.split():
            yield name.strip(), python, tools.split()[1]


def pins(stack, python):
    """What a lock file has installed: dict from package to version."""
    with open(os.path.join(ROOT, 'requirements', 'lock-%s.txt' % stack)) as file:
        requirements = [Requirement(line.strip()) for line in file if not line.startswith('#')]
    return {
        normal(requirement.name): str(requirement.specifier)[len('==') :]
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({'python_version': python})
    }


def normal(name):
    return re.sub('[-_.]+', '-', name).lower()


def wanted(wheel, python, extra):
    """What pip is asked for when a wheel is installed with an extra: a list of requirements."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith('.dist-info/METADATA')]
        lines = archive.read(name).decode().splitlines()
    prefix = 'Requires-Dist: '
    requirements = [Requirement(line[len(prefix) :]) for line in lines if line.startswith(prefix)]
    environment = {'python_version': python, 'extra': extra}
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


@pytest.mark.parametrize('stack, python, setuptools', list(stacks()))
@pytest.mark.parametrize('extra', ['of the stack', 'cpu', 'test', 'bench'])
def test_what_pip_is_asked_for_is_what_the_lock_file_has(wheel, stack, python, setuptools, extra):
    name = stack.replace('.', '-') if extra == 'of the stack' else extra
    installed = dict(pins(stack, python), setuptools=setuptools)
    requirements = wanted(wheel, python, name)
    if extra == 'cpu':
        # The first stack that goes with a Python.
        first = next(name for name, of_stack, _ in stacks() if of_stack == python)
        installed = dict(pins(first, python), setuptools=setuptools)
    frameworks = {'tensorflow', 'tensorflow-cpu'} & {normal(each.name) for each in requirements}
    assert len(frameworks) == (extra in ('of the stack', 'cpu'))
    for requirement in requirements:
        assert installed[normal(requirement.name)] in requirement.specifier, requirement
