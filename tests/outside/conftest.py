# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the tests of others' code share: the code, made data, and how a script is run."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import launch  # noqa: E402
import made_data  # noqa: E402
import sources  # noqa: E402
from frameworks import TF2  # noqa: E402


@pytest.fixture(scope='session')
def code():
    """The `sources.Sources`, downloaded if they are not there."""
    return sources.get()


@pytest.fixture(scope='session')
def environ(code):
    """The environment in which the code is found."""
    path = [code.packages] + os.environ.get('PYTHONPATH', '').split(os.pathsep)
    found = {'PYTHONPATH': os.pathsep.join(filter(None, path))}
    if TF2:
        # What scripts import as `tensorflow.keras` is Keras 3 otherwise.
        found['TF_USE_LEGACY_KERAS'] = '1'
    return found


@pytest.fixture(scope='session')
def home(tmp_path_factory):
    """A home folder with made data where Keras looks for it."""
    folder = str(tmp_path_factory.mktemp('home'))
    made_data.write(folder)
    return folder


@pytest.fixture(scope='session')
def run_scripts(environ, home):
    """A function `(mode, ranks, folder, lines, limit) -> Outcome` that runs `run_scripts.py`."""

    def run(mode, ranks, folder, lines, limit=launch.LIMIT_SECONDS):
        of_run = {'HOME': home, 'KERAS_PARALLAX_CACHE': str(folder), 'WITH_GRAPPLER': '1'}
        return launch.run(
            ranks,
            'outside/run_scripts.py',
            mode,
            folder,
            *lines,
            environ=dict(environ, **of_run),
            limit=limit,
        )

    return run


@pytest.fixture(scope='session')
def run_keras3_scripts(home):
    """The same for `run_keras3_scripts.py`, with the name of a backend before the mode."""

    def run(backend, mode, ranks, folder, lines, limit=launch.LIMIT_SECONDS):
        # Scripts number the members of sets.
        of_run = {'HOME': home, 'KERAS_BACKEND': backend, 'PYTHONHASHSEED': '0'}
        of_run['KERAS_PARALLAX_CACHE'] = str(folder)
        arguments = [mode, folder] + lines
        path = 'outside/run_keras3_scripts.py'
        return launch.run(ranks, path, *arguments, environ=of_run, limit=limit)

    return run
