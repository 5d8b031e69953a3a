# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Brings real code from the package registry into a folder outside the repository."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
from typing import NamedTuple

from frameworks import TF2

HERE = os.path.dirname(os.path.abspath(__file__))
#: What is installed, and what is unpacked.
_PACKAGES = os.path.join(HERE, 'packages_tensorflow_2.txt' if TF2 else 'packages.txt')
_ARCHIVES = None if TF2 else os.path.join(HERE, 'archives.txt')


class Sources(NamedTuple):
    """Where the code lies: packages to import, and the folder of Keras's tests."""

    packages: str
    keras_tests: str


def get():
    """Downloads what the lists of the installed stack name, once for each version of the lists.

    They lie in `~/.cache/keras-parallax-tests`, or where `KERAS_PARALLAX_OUTSIDE` says.
    """
    cache = os.environ.get('KERAS_PARALLAX_OUTSIDE') or os.path.expanduser(
        '~/.cache/keras-parallax-tests'
    )
    os.makedirs(cache, exist_ok=True)
    lists = filter(None, [_PACKAGES, _ARCHIVES])
    digest = hashlib.sha256(b''.join(open(path, 'rb').read() for path in lists)).hexdigest()[:16]
    folder = os.path.join(cache, digest)
    with open(os.path.join(cache, 'lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(folder):
            # What a broken off download has left is not taken for the whole.
            temporary = folder + '.new'
            subprocess.check_call(['rm', '-rf', temporary])
            os.mkdir(temporary)
            _download(temporary)
            os.rename(temporary, folder)
    packages, archives = (os.path.join(folder, name) for name in ('packages', 'archives'))
    return Sources(packages, os.path.join(archives, 'Keras-2.2.4', 'tests'))


def _download(folder):
    common = ['--quiet', '--no-deps', '--require-hashes', '--no-build-isolation']
    pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check']
    subprocess.check_call(
        pip + ['install'] + common + ['--target', os.path.join(folder, 'packages'), '-r', _PACKAGES]
    )
    if not _ARCHIVES:
        return
    downloads = os.path.join(folder, 'downloads')
    subprocess.check_call(
        pip + ['download'] + common + ['--no-binary', ':all:', '-d', downloads, '-r', _ARCHIVES]
    )
    for name in os.listdir(downloads):
        with tarfile.open(os.path.join(downloads, name)) as archive:
            archive.extractall(os.path.join(folder, 'archives'))
