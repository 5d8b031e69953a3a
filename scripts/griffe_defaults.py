# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Shows what default arguments are, where the source names a constant; `mkdocs.yml` names it."""

import ast

import griffe


class Defaults(griffe.Extension):
    """Puts the values of constants in place of their names, in the signatures of a package."""

    def on_package(self, *, pkg, **kwargs):
        constants = {
            module.canonical_path + '.' + name: value
            for module in _modules(pkg)
            for name, value in constants_of(module.filepath.read_text(encoding='utf-8')).items()
        }
        for module in _modules(pkg):
            for function in _functions(module):
                for parameter in function.parameters:
                    path = _path(parameter.default)
                    # A module's own names, where it sets two at once, are not known to griffe.
                    for found in (path, '%s.%s' % (module.canonical_path, path)):
                        parameter.default = constants.get(found, parameter.default)


def constants_of(source):
    """The constants at the top level of a module: a dict from names to literals."""
    found = {}
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts)
        for name, literal in pairs:
            if isinstance(name, ast.Name) and _is_literal(literal):
                found[name.id] = ast.unparse(literal)
    return found


def _is_literal(value):
    """Whether an expression is made of constants alone, such as `64 * 2**20`."""
    parts = (ast.Constant, ast.BinOp, ast.operator)
    return all(isinstance(node, parts) for node in ast.walk(value))


def _path(default):
    """Where the name is defined that is a default argument, or `None`."""
    try:
        return getattr(default, 'canonical_path', None)
    except griffe.AliasResolutionError:  # Of another package, which is not read.
        return None


def _modules(module):
    """A module and all below it."""
    yield module
    for member in module.members.values():
        if not member.is_alias and member.is_module:
            yield from _modules(member)


def _functions(of):
    """The functions of a module or class, and of its classes."""
    for member in of.members.values():
        if member.is_alias:
            continue
        if member.is_function:
            yield member
        elif member.is_class:
            yield from _functions(member)
