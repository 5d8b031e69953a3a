# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks that type checkers find a misspelled keyword of every public class and function.

Runs in .venv-tools, without TensorFlow. mypy needs Python 3.10; pyright needs Node.js.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: Modules of public names.
ROOMS = ('callbacks', 'data', 'layers', 'metrics', 'optimizers')

#: Horovod's own.
NOT_OURS = {'Compression'}

_MISSPELLED = 'no_such_keyword'


def public_names(package):
    """The public classes and functions of a package's folder, as `kp` shows them, sorted."""
    names = set(_all_of(package)) - {*ROOMS, *NOT_OURS}
    for room in ROOMS:
        names.update('%s.%s' % (room, name) for name in _all_of(os.path.join(package, room)))
    return sorted(names)


def _all_of(folder):
    """The `__all__` of a package, which is not imported."""
    with open(os.path.join(folder, '__init__.py')) as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', None) == '__all__':
            return ast.literal_eval(node.value)
    raise ValueError('%s has no __all__.' % folder)


def script_of(names):
    """A script that calls each public name, with a keyword that none of them has."""
    calls = ['kp.%s(%s=0)' % (name, _MISSPELLED) for name in names]
    return '\n'.join(['import keras_parallax as kp', *calls]) + '\n'


def lines_of_mypy(path, root):
    """The numbers of the lines in which mypy finds the keyword."""
    command = [sys.executable, '-m', 'mypy', '--config-file', os.path.join(ROOT, 'mypy.ini'), path]
    # mypy refuses a folder that Python itself looks in.
    environ = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    said = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        env=dict(environ, MYPYPATH=root),
        universal_newlines=True,
    )
    # The path may be that of an earlier run, whose answer mypy has kept.
    found = re.findall(
        r'^.*\b%s:(\d+): error: Unexpected keyword argument "%s"'
        % (re.escape(os.path.basename(path)), _MISSPELLED),
        said.stdout,
        re.MULTILINE,
    )
    return set(map(int, found))


def lines_of_pyright(path, root):
    """The numbers of the lines in which pyright finds the keyword."""
    with open(os.path.join(os.path.dirname(path), 'pyrightconfig.json'), 'w') as file:
        json.dump({'extraPaths': [root]}, file)
    command = [sys.executable, '-m', 'pyright', '--outputjson', '--project', os.path.dirname(path)]
    said = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True)
    return {
        problem['range']['start']['line'] + 1
        for problem in json.loads(said.stdout)['generalDiagnostics']
        if 'No parameter named "%s"' % _MISSPELLED in problem['message']
    }


def unnoticed(names, lines):
    """The names whose misspelled keyword is not found, given the lines in which one is."""
    return [name for number, name in enumerate(names, 2) if number not in lines]


def main(root=ROOT):
    """Prints which names each type checker overlooks; returns whether there are any."""
    names = public_names(os.path.join(root, 'keras_parallax'))
    checkers = {}
    if sys.version_info >= (3, 10):
        checkers['mypy'] = lines_of_mypy
    if shutil.which('node'):
        checkers['pyright'] = lines_of_pyright
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'calls.py')
        with open(path, 'w') as file:
            file.write(script_of(names))
        for checker, lines_of in checkers.items():
            for name in unnoticed(names, lines_of(path, root)):
                problems.append('%s overlooks a misspelled keyword of kp.%s' % (checker, name))
    for problem in problems:
        print(problem)
    if not checkers:
        print('Neither mypy nor pyright can run here: get Python 3.10 or Node.js.')
    return bool(problems)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
