# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Downloads and builds all wheels that `check.py --wheels` installs, on a machine with a network.

    python3.11 benchmarks/gpu/wheels.py wheels
    python3.11 benchmarks/gpu/wheels.py wheels --cuda-home /usr/local/cuda-12.9

Run it with the Python version of the machine that will be checked. The folder gets TensorFlow and
JAX with CUDA 12 (4.1 GB), the other packages of `requirements/lock-tf2.21.txt`, and Horovod, which
is built here. Horovod is built with NCCL if `--cuda-home` names a CUDA 12 with `nvcc`: the wheels
of CUDA have headers and libraries, but not the compiler. Without NCCL, dense gradients of cards
are summed in host memory.
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from typing import Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
BENCHMARKS = os.path.dirname(HERE)
CHECKOUT = os.path.dirname(BENCHMARKS)
if not __package__:  # Started as a script.
    sys.path[0] = BENCHMARKS

from gpu.install import DESCRIPTION  # noqa: E402

LOCK = os.path.join(CHECKOUT, 'requirements', 'lock-tf2.21.txt')
#: What turns the packages of the lock file into those for cards.
EXTRAS = ('tensorflow[and-cuda]', 'jax[cuda12]')
#: What the environment of the machine needs besides: `requirements/stacks.txt`.
BUILD_TOOLS = ('setuptools==69.5.1', 'wheel==0.45.1')


def pinned(lines: List[str]) -> Dict[str, List[str]]:
    """The requirements of a lock file by package, without comments."""
    found: Dict[str, List[str]] = {}
    for line in lines:
        line = line.split('#')[0].strip()
        if line:
            found.setdefault(line.split('==')[0], []).append(line)
    return found


def requirements(lines: List[str]) -> List[str]:
    """What pip is asked to download: the lock file's packages, with those that cards need.

    Horovod is not among them, and the tools that build it are. The pins of CUDA's own packages are
    TensorFlow's and JAX's choice.
    """
    packages = pinned(lines)
    horovod = packages.pop('horovod')
    del horovod
    asked = [line for of_package in packages.values() for line in of_package]
    for extra in EXTRAS:
        name = extra.split('[')[0]
        asked += [line.replace(name, extra, 1) for line in packages[name]]
    return asked + list(BUILD_TOOLS)


def nvcc_of(cuda_home: Optional[str]) -> Optional[str]:
    """The path of the compiler of a CUDA installation, or `None`."""
    path = os.path.join(cuda_home, 'bin', 'nvcc') if cuda_home else None
    return path if path and os.access(path, os.X_OK) else None


def build_horovod(folder: str, python: str, cuda_home: Optional[str]) -> str:
    """Builds Horovod's wheel, below the folder; returns what it was built with."""
    # The folder takes the place of the cache, where a kept wheel would be used.
    environ = dict(os.environ, XDG_CACHE_HOME=folder)
    environ['PATH'] = os.path.dirname(python) + os.pathsep + environ['PATH']
    built_with = 'Gloo, without NCCL'
    if cuda_home:
        code = 'import nvidia.nccl as of; print(list(of.__path__)[0])'
        nccl = subprocess.check_output([python, '-c', code], universal_newlines=True).strip()
        environ.update(
            HOROVOD_GPU_OPERATIONS='NCCL',
            HOROVOD_CUDA_HOME=cuda_home,
            HOROVOD_NCCL_INCLUDE=os.path.join(nccl, 'include'),
            HOROVOD_NCCL_LIB=os.path.join(nccl, 'lib'),
            HOROVOD_NCCL_LINK='SHARED',
        )
        _name_library(os.path.join(nccl, 'lib'))
        built_with = 'Gloo and NCCL'
    command = os.path.join(CHECKOUT, 'keras_parallax_command.py')
    subprocess.check_call([python, command, 'install-horovod', '--rebuild'], env=environ)
    return built_with


def _name_library(folder: str) -> None:
    """Gives the library the name that a linker looks for: wheels have `libnccl.so.2` alone."""
    path = os.path.join(folder, 'libnccl.so')
    if not os.path.exists(path):
        os.symlink('libnccl.so.2', path)


def main() -> None:
    """Fills the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder', help='where the wheels go')
    parser.add_argument('--cuda-home', help='a CUDA 12 with bin/nvcc: builds Horovod with NCCL')
    given = parser.parse_args()
    if given.cuda_home and not nvcc_of(given.cuda_home):
        parser.error('%s/bin/nvcc is not there; --cuda-home must have it.' % given.cuda_home)
    folder = os.path.abspath(given.folder)
    os.makedirs(folder, exist_ok=True)
    with open(LOCK) as file:
        lines = file.read().splitlines()
    pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check']
    download = [*pip, 'download', '-q', '--only-binary', ':all:', '-d', folder]
    subprocess.check_call(download + requirements(lines))
    with tempfile.TemporaryDirectory() as temporary:
        env = os.path.join(temporary, 'env')
        venv.create(env, with_pip=True)
        python = os.path.join(env, 'bin', 'python')
        wheels = [path for path in glob.glob(folder + '/*.whl') if '/horovod-' not in path]
        install = [python, '-m', 'pip', 'install', '-q', '--no-index', '--no-deps', '--no-compile']
        subprocess.check_call(install + wheels)
        built = os.path.join(temporary, 'built')
        built_with = build_horovod(built, python, given.cuda_home)
        for path in glob.glob(built + '/**/horovod-*.whl', recursive=True):
            shutil.copy(path, folder)
    (tensorflow,) = pinned(lines)['tensorflow']
    content = {
        'python': '%d.%d' % sys.version_info[:2],
        'tensorflow': tensorflow.split('==')[1],
        'horovod': built_with,
    }
    with open(os.path.join(folder, DESCRIPTION), 'w') as file:
        json.dump(content, file, indent=1)
    size = sum(os.path.getsize(path) for path in glob.glob(folder + '/*.whl'))
    print('%s: %.1f GB of wheels, Horovod with %s' % (folder, size / 1e9, built_with))


if __name__ == '__main__':
    main()
