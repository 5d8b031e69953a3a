# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which programs a build of Horovod needs, and which of Debian's packages have them.

It imports only the standard library, so that a Python without any packages can run the file:

    python3 keras_parallax/installing/system_packages.py

prints the missing packages in one line.
"""

import os
import shlex
import shutil
import subprocess
import sys
from typing import Any, List, Mapping, Sequence


def compilers(environ: Mapping[str, str], python: Sequence[Any] = sys.version_info) -> List[str]:
    """The C and the C++ compiler of a build: a list of two commands.

    Horovod 0.19.5, for Python 3.6, rejects g++ 5 and newer for TensorFlow 1.11 unless `CXX` names a
    compiler. Then g++ 12 stops in Gloo, at the flexible array that newer kernel headers have in
    `ethtool_link_settings`. clang compiles both.

    Args:
        environ: the environment, a mapping. `CC` and `CXX` name other compilers.
        python: the version of the Python.

    Example:
        ```python
        >>> compilers({'CXX': 'g++-13'}, python=(3, 11))
        ['gcc', 'g++-13']
        ```
    """
    cc, cxx = ('clang', 'clang++') if tuple(python[:2]) < (3, 7) else ('gcc', 'g++')
    return [environ.get('CC') or cc, environ.get('CXX') or cxx]


def missing(environ: Mapping[str, str], python: Sequence[Any] = sys.version_info) -> List[str]:
    """The Debian packages that a build needs and this machine lacks: a list of names.

    Args:
        environ: the environment, a mapping. `HOROVOD_WITH_MPI` asks for Open MPI.
        python: the version of the Python.
    """
    cc, cxx = compilers(environ, python)
    programs = [('make', 'make'), ('cmake', environ.get('HOROVOD_CMAKE') or 'cmake')]
    if environ.get('HOROVOD_WITH_MPI'):
        programs += [('openmpi-bin', 'mpirun'), ('libopenmpi-dev', 'mpicxx')]
    packages = [package for package, program in programs if not _found(program, environ)]
    for command in (cc, cxx):
        program = os.path.basename(shlex.split(command)[0])
        if not _found(shlex.split(command)[0], environ):
            packages.append({'gcc': 'g++', 'clang++': 'clang'}.get(program, program))
    # clang has no C++ library of its own; g++ brings libstdc++ with its headers. So compile.
    if _found(shlex.split(cxx)[0], environ) and not _compiles(cxx, environ):
        packages.append('g++')
    return sorted(set(packages))


def _found(program: str, environ: Mapping[str, str]) -> bool:
    return shutil.which(program, path=environ.get('PATH', os.defpath)) is not None


def _compiles(cxx: str, environ: Mapping[str, str]) -> bool:
    process = subprocess.run(
        shlex.split(cxx) + ['-x', 'c++', '-fsyntax-only', '-'],
        input=b'#include <string>\n',
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
    )
    return process.returncode == 0


def apt_command(packages: List[str], is_root: bool) -> str:
    """The command that installs packages on Debian and Ubuntu, a string.

    Args:
        packages: their names, a list.
        is_root: whether the user is root, and needs no `sudo`.

    Example:
        ```python
        >>> apt_command(['make'], is_root=True)
        'apt-get update && apt-get install -y --no-install-recommends make'
        ```
    """
    sudo = '' if is_root else 'sudo '
    install = 'apt-get install -y --no-install-recommends ' + ' '.join(packages)
    return '%sapt-get update && %s%s' % (sudo, sudo, install)


if __name__ == '__main__':
    print(' '.join(missing(os.environ)))
