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
                    parameter.default = constants.get(path, parameter.default)


def constants_of(source):
    """The constants that a module's source sets at its top level: a dict from names to literals."""
    found = {}
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts)
        for name, literal in pairs:
            if isinstance(name, ast.Name) and isinstance(literal, ast.Constant):
                found[name.id] = repr(literal.value)
    return found


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
