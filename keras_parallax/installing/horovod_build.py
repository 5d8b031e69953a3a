# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Installs Horovod in the environment whose Python runs this: from a kept wheel, or compiled.

A kept wheel lies in a folder whose name says all that it depends on. It is used if it is whole and
if the Horovod that is installed from it can be loaded; otherwise Horovod is compiled again.
"""

import glob
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping

from keras_parallax.compat.supported_versions import SUPPORTED
from keras_parallax.errors import StackError
from keras_parallax.installing import horovod_check, system_packages, wheel_cache

#: The release for a Python: the newest one that still accepts a TensorFlow older than 1.15, or the
#: newest one.
REQUIREMENT = 'horovod==0.19.5' if sys.version_info < (3, 7) else 'horovod==0.28.1'

#: TensorFlow and Gloo and nothing else, unless the environment says so. Gloo asks for a CMake of
#: 2.8, which CMake 4 refuses without the last.
SWITCHES = {
    'HOROVOD_WITH_TENSORFLOW': '1',
    'HOROVOD_WITHOUT_PYTORCH': '1',
    'HOROVOD_WITHOUT_MXNET': '1',
    'HOROVOD_WITH_GLOO': '1',
    'HOROVOD_WITHOUT_MPI': '1',
    'CMAKE_POLICY_VERSION_MINIMUM': '3.5',
}

#: What else of the environment a compilation looks at.
FLAGS = ('CFLAGS', 'CPPFLAGS', 'CXXFLAGS', 'LDFLAGS', 'CPATH', 'CPLUS_INCLUDE_PATH')

#: What Horovod's setup.py imports and its metadata asks for. Without them it would fetch releases
#: that are too new for Python 3.6.
NEEDED = ['cloudpickle', 'psutil', 'pyyaml', 'six' if sys.version_info < (3, 7) else 'packaging']

#: With which Horovod builds; 0.28.1 does not with setuptools from 70 on. They go into a folder of
#: the build, because the environment may need others, or none.
BUILDERS = ['wheel'] if sys.version_info < (3, 7) else ['setuptools<70', 'wheel']

HERE = os.path.dirname(os.path.abspath(__file__))

#: It builds no more of Horovod 0.28.1 than is loaded. Its path is no part of a wheel's name.
CMAKE_SCRIPT = os.path.join(HERE, 'cmake_without_waste.sh')
CXX_SCRIPT = os.path.join(HERE, 'cxx_without_xla.sh')

#: What `cxx_without_xla.sh` prints when it has left the operations out.
LEFT_OUT = 'XLA operations are left out'

Say = Callable[[str], None]


def tensorflow_parts() -> List[Any]:
    """TensorFlow's version and the flags that its ABI asks for: a list of both.

    Raises:
        StackError: TensorFlow cannot be imported.
    """
    code = (
        'import json, tensorflow as tf\n'
        'flags = tf.sysconfig.get_compile_flags() + tf.sysconfig.get_link_flags()\n'
        # Where its headers and libraries are does not matter.
        "flags = [flag for flag in flags if flag[:2] not in ('-I', '-L')]\n"
        'print(json.dumps([tf.__version__, flags]))'
    )
    process = subprocess.run(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    if process.returncode:
        said = process.stderr.decode('utf-8', 'replace').strip().splitlines() or ['no reason given']
        raise StackError(
            'Horovod is compiled for the TensorFlow of the environment, but TensorFlow could not '
            'be imported (%s). Install it first: %s' % (said[-1], SUPPORTED['TensorFlow'][1])
        )
    return json.loads(process.stdout.decode().splitlines()[-1])


def without_xla(version: str) -> bool:
    """Whether the wheels of a TensorFlow lack headers that Horovod's XLA operations include.

    Args:
        version: TensorFlow's, a string.

    Example:
        ```python
        >>> [without_xla(version) for version in ('2.15.1', '2.21.0')]
        [False, True]
        ```
    """
    return tuple(int(number) for number in version.split('.')[:2]) >= (2, 19)


def compiler_parts(compiler: str, script: str = '') -> List[str]:
    """What a compiler says of itself, and the text of the script that calls it, if there is one."""
    said = subprocess.check_output(shlex.split(compiler) + ['--version']).decode().splitlines()[0]
    if not script:
        return [said]
    with open(script) as file:
        return [said, file.read()]


def build_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables, without compilers, that a compilation is given and looks at: a dict.

    Args:
        environ: the environment so far, a mapping. It overrides `SWITCHES`.
    """
    variables = dict(SWITCHES)
    if environ.get('HOROVOD_WITH_MPI'):
        # Horovod 0.19.5 leaves MPI out whatever the variable says, if it says anything.
        variables['HOROVOD_WITHOUT_MPI'] = ''
    for name, value in environ.items():
        if name.startswith('HOROVOD_') or name in FLAGS:
            variables[name] = value
    return variables


def compile_wheel(requirement: str, variables: Dict[str, str], folder: str) -> str:
    """Compiles Horovod.

    Args:
        requirement: for instance `'horovod==0.28.1'`.
        variables: what the environment is to have besides.
        folder: where the wheel and the log go.

    Returns:
        The wheel's path.

    Raises:
        StackError: the build failed.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'build.log')
    # Not from pip's cache, where a wheel may come from other switches or another TensorFlow, and
    # where pip 23.1 and later look in spite of --no-binary
    # (tests/unit/installing/test_horovod_build.py). With the MAKEFLAGS of a calling Makefile, one
    # file at a time would be compiled.
    command = [sys.executable, '-m', 'pip', 'wheel', '--no-build-isolation', '--no-deps']
    command += ['--no-cache-dir', '--no-binary', 'horovod', '--wheel-dir', folder]
    command += ['-v', requirement]
    environ = dict(os.environ, MAKEFLAGS='-j%d' % (os.cpu_count() or 1), **variables)
    with open(path, 'w') as log:
        code = subprocess.call(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
    with open(path, errors='replace') as log:
        lines = log.read().splitlines()
    if code != 0:
        tail = '\n'.join(lines[-40:])
        raise StackError('%s\nHorovod did not build; the lines above end %s.' % (tail, path))
    if 'without_xla' in variables['CXX'] and not any(LEFT_OUT in line for line in lines):
        raise StackError('Horovod was not compiled by %s: see %s.' % (variables['CXX'], path))
    return glob.glob(os.path.join(folder, 'horovod-*.whl'))[0]


def _pip_install(*arguments: str) -> None:
    command = [sys.executable, '-m', 'pip', 'install', '-qq', '--disable-pip-version-check']
    process = subprocess.run(
        command + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if process.returncode:
        said = process.stdout.decode('utf-8', 'replace').strip()
        raise StackError('%s\npip could not install %s.' % (said, ' '.join(arguments)))


def install(wheel: str, requirement: str) -> None:
    """Installs a wheel, found by its name, so that `pip freeze` gives a pin and not a path.

    Raises:
        StackError: pip failed.
    """
    arguments = ['--no-deps', '--force-reinstall', '--no-cache-dir', '--only-binary', 'horovod']
    _pip_install(*arguments, '--no-index', '--find-links', os.path.dirname(wheel), requirement)


def _script(path: str, folder: str) -> str:
    """A copy of a script that may be executed: an installed file may not."""
    copy = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(path, copy)
    os.chmod(copy, 0o755)
    return copy


def _build(requirement: str, variables: Dict[str, str], cc: str, cxx: str, script: str) -> str:
    """Compiles Horovod in a folder that stays only if it fails; returns the wheel's path."""
    folder = tempfile.mkdtemp(prefix='keras-parallax-horovod-')
    builders = os.path.join(folder, 'builders')
    _pip_install('--no-deps', '--target', builders, *BUILDERS)
    variables = dict(variables, CC=cc, CXX=cxx)
    if script:
        variables.update(CXX=_script(script, folder), KERAS_PARALLAX_CXX=cxx)
    path = filter(None, [builders, os.environ.get('PYTHONPATH')])
    variables['PYTHONPATH'] = os.pathsep.join(path)
    variables.setdefault('HOROVOD_CMAKE', _script(CMAKE_SCRIPT, folder))
    # Debug information takes a sixth of the time that Horovod 0.19.5 takes. A later flag holds.
    variables['CFLAGS'] = ' '.join(['-g0', variables.get('CFLAGS', '')]).strip()
    return compile_wheel(requirement, variables, os.path.join(folder, 'wheel'))


def install_horovod(say: Say, rebuild: bool = False, requirement: str = REQUIREMENT) -> None:
    """Sees to it that Horovod is installed and works with the TensorFlow of this environment.

    Args:
        say: function that takes a sentence for the user.
        rebuild: whether to compile Horovod although it works or a wheel is kept.
        requirement: the release.

    Raises:
        StackError: TensorFlow or system packages are missing, Horovod does not build, or what was
            built does not work.
    """
    environ = os.environ
    if not rebuild and horovod_check.load_problem(requirement, environ) is None:
        say('%s is installed and works with the TensorFlow that is here.' % requirement)
        return
    tensorflow = tensorflow_parts()
    lacking = system_packages.missing(environ)
    if lacking:
        raise StackError(
            'Horovod is compiled here, for which system packages are missing. On Debian and '
            'Ubuntu: %s' % system_packages.apt_command(lacking, os.geteuid() == 0)
        )
    _pip_install(*NEEDED)
    cc, cxx = system_packages.compilers(environ)
    script = CXX_SCRIPT if without_xla(tensorflow[0]) else ''
    variables = build_variables(environ)
    compilers = [compiler_parts(cc), compiler_parts(cxx, script)]
    name = wheel_cache.folder_name(
        requirement,
        tensorflow,
        sysconfig.get_config_var('SOABI'),
        compilers,
        variables,
        ' '.join(platform.libc_ver()),
    )
    cache = wheel_cache.cache_folder(environ)
    kept = wheel_cache.kept_wheel(os.path.join(cache, name), say) if cache else None
    if kept and not rebuild:
        say('Horovod, compiled before: %s' % kept)
        install(kept, requirement)
        if horovod_check.load_problem(requirement, environ) is None:
            return
        say('The kept wheel does not work here.')

    say('Horovod for TensorFlow %s, compiled by %s (minutes)' % (tensorflow[0], compilers[1][0]))
    began = time.monotonic()
    wheel = _build(requirement, variables, cc, cxx, script)
    install(wheel, requirement)
    problem = horovod_check.load_problem(requirement, environ)
    problem = problem or horovod_check.two_ranks_problem(environ)
    if problem:
        raise StackError('%s\nHorovod was built and installed, but does not work.' % problem)
    say('Two processes have trained with it; %.0f s in all.' % (time.monotonic() - began))
    unkept = wheel_cache.keep(wheel, os.path.join(cache, name)) if cache else 'there is no HOME'
    if unkept:
        say('The wheel is not kept for other environments: %s.' % unkept)
    shutil.rmtree(os.path.dirname(os.path.dirname(wheel)))
