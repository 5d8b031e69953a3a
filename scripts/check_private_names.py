#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks that private names of TensorFlow, Keras and Horovod are used in `compat/` alone.

`make lint` runs it. It reads sources without importing them, so that it does not know whose an
object is: a name that begins with an underscore, of anything but `self` and `cls`, is taken for a
framework's unless a class of the same module has it. What a subclass overrides is for
`test_private_names_are_overridden_in_compat_alone`, which imports the frameworks.
"""

import ast
import os
import sys

#: What may use them.
COMPAT = os.path.join('keras_parallax', 'compat')
#: Public, in spite of the underscore: those of a `NamedTuple`, and of the standard library.
PUBLIC = frozenset(['_asdict', '_fields', '_replace'])
OF_STANDARD_LIBRARY = frozenset(['os._exit', 'sys._getframe'])
#: Attributes of ours on objects of theirs, on which `patches.py` has a word.
_OURS = '_parallax'

_BY_NAME = frozenset(['delattr', 'getattr', 'hasattr', 'setattr'])


def private_names(source):
    """The uses of private names that are not of the module's own classes.

    Args:
        source: the source of a Python module.

    Returns:
        A list of pairs of line and name.
    """
    tree = ast.parse(source)
    own, uses = _members(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner, name = node.value, node.attr
        elif _is_by_name(node):
            owner, name = node.args[0], _constant(node.args[1])
        else:
            continue
        if _is_private(name) and not _is_allowed(owner, name, own):
            uses.append((node.lineno, name))
    return sorted(uses)


def _members(tree):
    """The private names that the classes of a module bind, in their bodies or on `self`."""
    names = set()
    for of_class in ast.walk(tree):
        if not isinstance(of_class, ast.ClassDef):
            continue
        for node in ast.walk(of_class):
            if isinstance(node, ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if _is_name(node.value, 'self', 'cls'):
                    names.add(node.attr)
    return names


def _is_by_name(node):
    return (
        isinstance(node, ast.Call)
        and _is_name(node.func, *_BY_NAME)
        and len(node.args) > 1
        and isinstance(_constant(node.args[1]), str)
    )


def _constant(node):
    # A `Str` before Python 3.8, a `Constant` since.
    return node.value if hasattr(node, 'value') else getattr(node, 's', None)


def _is_name(node, *names):
    return isinstance(node, ast.Name) and node.id in names


def _is_private(name):
    return name.startswith('_') and not (name.startswith('__') and name.endswith('__'))


def _is_allowed(owner, name, own):
    if isinstance(owner, ast.Call) and _is_name(owner.func, 'super'):
        return False
    return (
        name in PUBLIC
        or name in own
        or name.startswith(_OURS)
        or _is_name(owner, 'self', 'cls')
        or (isinstance(owner, ast.Name) and '%s.%s' % (owner.id, name) in OF_STANDARD_LIBRARY)
    )


def main(root='.'):
    """Prints the private names that are used outside `compat/`; the number of such uses."""
    count = 0
    for folder, _, files in sorted(os.walk(os.path.join(root, 'keras_parallax'))):
        if os.path.relpath(folder, root).startswith(COMPAT):
            continue
        for path in sorted(os.path.join(folder, file) for file in files if file.endswith('.py')):
            with open(path, encoding='utf-8') as file:
                uses = private_names(file.read())
            count += len(uses)
            for line, name in uses:
                path = os.path.relpath(path, root)
                print(
                    '%s:%d: %s is private; put it behind a function of compat/' % (path, line, name)
                )
    return count


if __name__ == '__main__':
    sys.exit(1 if main() else 0)
