# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Installs what `wheels.py` has downloaded, without a network."""

import glob
import json
import os
import subprocess
import sys
import venv

#: The file of `wheels.py` that says for which Python the wheels are, and what Horovod has.
DESCRIPTION = 'wheels.json'


class WheelsError(Exception):
    """A folder of wheels that cannot be installed here."""


def read(folder: str) -> dict:
    """What `wheels.py` wrote about a folder.

    Raises:
        WheelsError: it is not there.
    """
    path = os.path.join(folder, DESCRIPTION)
    if not os.path.exists(path):
        raise WheelsError('%s is not there; make the folder with benchmarks/gpu/wheels.py.' % path)
    with open(path) as file:
        return json.load(file)


def described(folder: str) -> str:
    """What is in a folder, in a line."""
    content = read(folder)
    return 'Python %(python)s, TensorFlow %(tensorflow)s, Horovod with %(horovod)s' % content


def install(folder: str, env: str, limit: float) -> str:
    """Makes an environment and installs all wheels of a folder into it.

    Args:
        folder: as `wheels.py` left it.
        env: the environment's folder, which is made.
        limit: seconds that it may take.

    Returns:
        The path of the environment's Python.

    Raises:
        WheelsError: the wheels are for another Python, or pip fails.
    """
    wanted, own = read(folder)['python'], '%d.%d' % sys.version_info[:2]
    if own != wanted:
        raise WheelsError(
            'The wheels in %s are for Python %s, but this is Python %s: start this script with '
            'python%s, or make the folder with python%s.' % (folder, wanted, own, wanted, own)
        )
    # Without pip, which some distributions leave out of new environments; ours installs there.
    venv.create(env, with_pip=False, symlinks=True)
    python = os.path.join(env, 'bin', 'python')
    command = [sys.executable, '-m', 'pip', '--python', python, 'install', '-q', '--no-index']
    command += ['--no-deps', '--no-compile', '--disable-pip-version-check']
    command += sorted(glob.glob(os.path.join(folder, '*.whl')))
    outcome = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=limit,
    )
    if outcome.returncode:
        raise WheelsError('pip could not install %s: %s' % (folder, outcome.stdout[-2000:]))
    return python
