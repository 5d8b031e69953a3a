# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The imports of the benchmarks among each other go one way only."""

import ast
import glob
import os

HERE = os.path.dirname(os.path.abspath(__file__))
BENCHMARKS = os.path.dirname(HERE)
#: The layers, each of which imports only what comes after it; scripts are the first.
LAYERS = ('', 'gpu', 'report', 'measuring', 'systems', 'works', 'cluster')


def module_of(path):
    return os.path.splitext(os.path.relpath(path, BENCHMARKS))[0].replace(os.sep, '.')


def imported(path):
    """The dotted names that a file imports, inside of functions too."""
    with open(path) as file:
        nodes = list(ast.walk(ast.parse(file.read())))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from ('%s.%s' % (node.module, alias.name) for alias in node.names)


def import_graph():
    """Each module of the benchmarks to those that it imports: a dict of sets."""
    paths = glob.glob(os.path.join(BENCHMARKS, '**', '*.py'), recursive=True)
    files = {module_of(path): path for path in paths if not path.startswith(HERE)}
    return {module: set(imported(path)) & set(files) for module, path in files.items()}


def circles(graph):
    """What is left of a graph when modules that import nothing of what is left are taken out."""
    while True:
        left = {module: imports & set(graph) for module, imports in graph.items()}
        left = {module: imports for module, imports in left.items() if imports}
        if left == graph:
            return sorted(graph)
        graph = left


def test_a_circle_is_found():
    graph = {'script': {'a'}, 'a': {'b', 'leaf'}, 'b': {'a'}, 'leaf': set()}
    assert circles(graph) == ['a', 'b', 'script']
    assert circles(dict(graph, b={'leaf'})) == []


def test_benchmarks_import_each_other_in_no_circle():
    graph = import_graph()
    assert graph['run'] and graph['report.page']
    assert circles(graph) == []


def test_a_folder_imports_only_folders_below_it():
    def layer(module):
        return LAYERS.index(module.rpartition('.')[0])

    arrows = [(module, other) for module, imports in import_graph().items() for other in imports]
    upwards = [(module, other) for module, other in arrows if layer(module) > layer(other)]
    assert upwards == []
