# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Settings for every test; what `make test` leaves to `make test-all`; what shares a process."""

import functools
import os
import re
import tempfile

import exhaustive
import pytest
import stacks
from hypothesis import settings

# A busy machine is slow: how long an example takes says nothing of whether it is right.
settings.register_profile('no deadline', deadline=None)
settings.load_profile('no deadline')

# Where scripts that tests start find `frameworks` and other modules that tests share.
_here = os.path.dirname(os.path.abspath(__file__))
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [_here, os.environ.get('PYTHONPATH')]))

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Names of parameters for each of whose values a file's tests start a job of their own.
JOB_PARAMETERS = ('package', 'jobs', 'ranks', 'way')
#: Tests that kill a process and read how it was killed. Not beside the test in which the kernel
#: kills one for want of memory, which it counts for the whole machine.
KILLS = re.compile(r'killed|unit/engine/failures/test_watchdog')


def file_of(item):
    """A test's file, from the project's folder."""
    return os.path.relpath(str(item.fspath), ROOT)


def group_of(item):
    """Names what runs one after the other in one process of `pytest -n`: it shares a job."""
    file = file_of(item)
    if file.startswith('tests/cluster/') or KILLS.search(item.nodeid):
        return 'cluster'  # Hosts of two tests would have the processor of one machine.
    given = getattr(item, 'callspec', None)
    values = [str(given.params[name]) for name in JOB_PARAMETERS if given and name in given.params]
    return ' '.join([file] + values)


def pytest_addoption(parser):
    parser.addoption(
        '--every',
        action='store_true',
        help='also run tests that cover what others do (tests/README.md)',
    )


def pytest_ignore_collect(collection_path):
    """Leaves out files that the installed stack does not run."""
    file = os.path.relpath(str(collection_path), ROOT)
    return True if file.endswith('.py') and not stacks.is_run(file) else None


def pytest_report_header():
    return None if stacks.is_run('') else 'another stack: only what tests/stacks.py lists'


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption('every'):
        covered = _covered(items)
        config.hook.pytest_deselected(items=[item for item in items if item in covered])
        items[:] = [item for item in items if item not in covered]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
        reason = stacks.reason_against('%s::%s' % (file_of(item), item.name))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        if exhaustive.is_exhaustive(file_of(item), item.name):
            item.add_marker(pytest.mark.exhaustive)


def _covered(items):
    """The tests among some that show what others do."""
    of_files = {}
    for item in items:
        of_files.setdefault(file_of(item), []).append(item.name)
    left_out = {file: exhaustive.left_out(file, names) for file, names in of_files.items()}
    return {
        item
        for item in items
        if item.get_closest_marker('covered')
        or exhaustive.is_covered(file_of(item), item.name)
        or item.name in left_out[file_of(item)]
    }


@pytest.fixture(scope='session', autouse=True)
def folder_for_temporary_files(tmp_path_factory):
    """Gives each process of `pytest -n` one of its own: tests look for what is left over there."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        os.environ['TMPDIR'] = tempfile.tempdir = str(tmp_path_factory.mktemp('tmp'))


@pytest.fixture(scope='module')
def once():
    """Calls a function once for each set of arguments of a module's tests.

    A fixture with parameters of which tests name some by `indirect` may be made several times:
    pytest orders tests by the place of a parameter in its list.
    """
    return functools.lru_cache(maxsize=None)(lambda function, *arguments: function(*arguments))
