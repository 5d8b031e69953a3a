# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs a notebook as Jupyter does, without Jupyter: the tests need none of its packages.

Usage: notebook.py FILE. It runs the cells of code in order and prints, as JSON, what each shows: a
list of pairs of a cell's last value as text and as a page, either `null`.
"""

import ast
import json
import os
import sys


def cells_of_code(path):
    """The code of each cell that has some, a list of strings."""
    with open(path, encoding='utf-8') as file:
        notebook = json.load(file)
    assert notebook['nbformat'] == 4
    return [''.join(cell['source']) for cell in notebook['cells'] if cell['cell_type'] == 'code']


def run(code, names):
    """Runs a cell; returns the value of the expression that it ends with, or `None`."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, '<cell>', 'exec'), names)
    return last and eval(compile(ast.Expression(last.value), '<cell>', 'eval'), names)


def shown(value):
    """What a notebook shows of a value: its text, and its page if it has one."""
    page = getattr(value, '_repr_html_', lambda: None)()
    return None if value is None else repr(value), page


def main(path):
    sys.path.insert(0, os.getcwd())  # As Jupyter has it.
    names = {'__name__': '__main__'}
    results = [shown(run(code, names)) for code in cells_of_code(path)]
    print(json.dumps(results))


if __name__ == '__main__':
    main(*sys.argv[1:])
