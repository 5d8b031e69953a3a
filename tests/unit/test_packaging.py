# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What pip makes of the project: a pure wheel, and from its sdist the same one."""

import email
import glob
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
from packaging.requirements import Requirement

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: An address that a builder may give.
HOME = 'https://example.org/keras-parallax'
SOURCES = (
    'CHANGELOG.md',
    'CITATION.cff',
    'LICENSE',
    'MANIFEST.in',
    'README.md',
    'keras_parallax',
    'keras_parallax_command.py',
    'pyproject.toml',
    'setup.py',
)


def call(*command, environ=None, **options):
    """Runs a command and returns what it prints.

    With the packages of this environment, and without those that a variable of the user's names.
    """
    environ = dict(os.environ, PYTHONPATH=sysconfig.get_paths()['purelib'], **environ or {})
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


def built(sources, folder, **environ):
    """The path of a wheel that is built from the sources into a folder."""
    pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '--no-index']
    call(*pip, '--wheel-dir', str(folder), str(sources), environ=environ)
    (path,) = glob.glob(os.path.join(str(folder), '*.whl'))
    return path


@pytest.fixture(scope='module')
def wheel(sources, tmp_path_factory):
    return built(sources, tmp_path_factory.mktemp('wheel'), KERAS_PARALLAX_REPOSITORY='')


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


def metadata(wheel):
    """What a wheel says of itself: an `email` message, whose payload is the long description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith('.dist-info/METADATA')]
        return email.message_from_string(archive.read(name).decode('utf-8'))


def targets(text):
    """Where the links and pictures of Markdown, and of HTML in it, lead to."""
    text = re.sub(r'^```.*?^```$', '', text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r'\]\(([^)]*)\)', text) + re.findall(r'\b(?:src|href)="([^"]*)"', text)


def lacks(target):
    """Whether an address in the repository of `HOME` names no file of the project."""
    path = re.sub(r'^%s/(blob|raw)/v[^/]*/|#.*$' % re.escape(HOME), '', target)
    return not os.path.exists(os.path.join(ROOT, path))


def test_without_an_address_an_index_page_has_no_relative_link(wheel):
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as file:
        relative = [target for target in targets(file.read()) if '://' not in target]
    assert relative
    page = metadata(wheel)
    shown = page.get_payload()
    assert not [target for target in targets(shown) if '://' not in target]
    assert not page.get_all('Project-URL') and '<img' not in shown


def test_with_an_address_links_and_pictures_lead_to_files_of_that_version(sources, tmp_path):
    page = metadata(built(sources, tmp_path, KERAS_PARALLAX_REPOSITORY=HOME + '/'))
    found = targets(page.get_payload())
    assert all('://' in target for target in found)
    ours = [target for target in found if target.startswith(HOME)]
    assert ours and not list(filter(lacks, ours))
    assert {target.split('/')[4] for target in ours if not target.endswith('.svg')} == {'blob'}
    assert {target.split('/')[4] for target in ours if target.endswith('.svg')} == {'raw'}
    assert {target.split('/')[5] for target in ours} == {'v' + page['Version']}
    urls = [url.partition(', ')[2] for url in page.get_all('Project-URL')]
    assert HOME in urls and all(url.startswith(HOME) for url in urls)


def test_the_package_the_wheel_and_the_citation_have_one_version(wheel):
    with open(os.path.join(ROOT, 'CITATION.cff'), encoding='utf-8') as file:
        (cited,) = re.findall(r'^version: (.*)$', file.read(), re.MULTILINE)
    with open(os.path.join(ROOT, 'CHANGELOG.md'), encoding='utf-8') as file:
        released = re.findall(r'^## \[(\d[^]]*)\]', file.read(), re.MULTILINE)
    assert metadata(wheel)['Version'] == cited == released[0]
    assert cited == runpy.run_path(os.path.join(ROOT, 'keras_parallax', 'version.py'))['VERSION']


def test_the_wheel_names_its_license_once(wheel):
    page = metadata(wheel)
    classifiers = [text for text in page.get_all('Classifier') if text.startswith('License')]
    if page['License-Expression']:
        assert page['License-Expression'] == 'Apache-2.0' and not classifiers
    else:
        assert page['License'] == 'Apache-2.0' and len(classifiers) == 1
    assert page['Author'] and page['Keywords']


def wanted(wheel, python, extra):
    """What pip is asked for when a wheel is installed with an extra: a list of requirements."""
    requirements = list(map(Requirement, metadata(wheel).get_all('Requires-Dist')))
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
