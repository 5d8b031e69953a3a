# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The script that keeps private names of the frameworks in `compat/`."""

import importlib.util
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'check_private_names.py')
_spec = importlib.util.spec_from_file_location('check_private_names', SCRIPT)
check_private_names = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_private_names)

CLASS = """
class Step:
    _limit = 3

    def __init__(self):
        self._plan = None

    def _end(self):
        pass
"""


@pytest.mark.parametrize(
    'use',
    [
        'session._config',
        'model.optimizer._updates[0]',
        "getattr(session, '_config', None)",
        "hasattr(fetch, '_as_graph_element')",
        "setattr(variable, '_keras_shape', ())",
        'os._other',
        'super()._end()',
        'name.__mangled',
    ],
)
def test_a_private_name_of_another_is_found(use):
    assert [line for line, _ in check_private_names.private_names(CLASS + use)] == [10]


@pytest.mark.parametrize(
    'use',
    [
        'self._whatever',
        'cls._whatever',
        'step._plan',
        'step._end()',
        'Step._limit',
        'type(step).__name__',
        "getattr(function, '__code__', None)",
        'request._replace(a=1)._asdict()',
        "hasattr(fetches, '_fields')",
        'graph._parallax_scope',
        'os._exit(1)',
        'sys._getframe(2)',
        'session.config',
        'getattr(session, name)',
    ],
)
def test_what_is_public_or_of_the_module_may_be_used(use):
    assert check_private_names.private_names(CLASS + use) == []


def test_the_script_looks_everywhere_but_in_compat_and_says_where(tmp_path):
    for folder in ('step', 'compat'):
        module = tmp_path / 'keras_parallax' / folder / 'module.py'
        module.parent.mkdir(parents=True)
        module.write_text('def act(graph):\n    return graph._lock\n')
    run = subprocess.run([sys.executable, SCRIPT], cwd=str(tmp_path), stdout=subprocess.PIPE)
    said = os.path.join('keras_parallax', 'step', 'module.py') + ':2: _lock is private'
    assert run.returncode == 1 and run.stdout.decode().startswith(said)
    assert run.stdout.count(b'\n') == 1
    (tmp_path / 'keras_parallax' / 'step' / 'module.py').write_text('')
    subprocess.check_call([sys.executable, SCRIPT], cwd=str(tmp_path))
