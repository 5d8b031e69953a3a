# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One text for values that mean the same in different processes. Pure.

`repr` shows addresses, an order of sets and dicts that differs between processes, and so on.
"""

import enum
import functools
import hashlib
import inspect
import numbers
import pathlib
import re
import types
from types import CodeType, FunctionType, MethodType
from typing import Any, Callable, List, Tuple

import numpy as np

from keras_parallax.framework_types import Array

#: Deeper than this, values are told by their types.
#: What gives the text of a value within others.
_Rule = Callable[[Any, Tuple[int, ...]], str]
_DEPTH = 12


#: In a text that somebody made with `repr`.
_ADDRESS = re.compile(r' at 0x[0-9a-f]+')


def canonical(value: Any) -> str:
    """A string that describes a value so that two processes of one script say the same of it.

    - Functions and lambdas: their qualified names and a digest of their code, with the constants
      and defaults in it and the plain data of their closures.
    - Bound methods: the function, and the class of the object, whose state is not a parameter.
    - Objects with `get_config`: their classes and configurations. Instances that are called: their
      classes, the code of `__call__`, and their attributes, which are its parameters.
    - Other objects: their classes, for nothing is known of what their state means.
    - Floats: nine digits, more than a `float32` has.

    Example:
        ```python
        >>> canonical({'b': {3, 1, 2}, 'a': (1, 0.1)})
        "{'a': [1, 0.1], 'b': {1, 2, 3}}"
        >>> canonical(object())
        '<builtins.object>'
        ```
    """
    return _text(value, ())


def _text(value: Any, above: Tuple[int, ...]) -> str:
    """The text of a value within others, of which `above` has the ids."""
    if len(above) > _DEPTH or id(value) in above:
        return '<%s>' % _name_of(type(value))
    above += (id(value),)
    for types_of_rule, rule in _RULES:
        if isinstance(value, types_of_rule):
            return rule(value, above)
    if callable(getattr(value, 'get_config', None)):
        return '%s(%s)' % (_name_of(type(value)), _configuration(value, above))
    if hasattr(value, 'dtype') and hasattr(value, 'shape'):
        # A tensor or a variable.
        return '<%s %s %s>' % (_name_of(type(value)), value.dtype, value.shape)
    called = inspect.getattr_static(value, '__call__', None)
    if isinstance(called, types.FunctionType):
        attributes = _text(getattr(value, '__dict__', {}), above)
        return '%s(%s, %s)' % (_name_of(type(value)), _text(called, above), attributes)
    return '<%s>' % _name_of(type(value))


def configuration(thing: Any) -> str:
    """The canonical text of what an object's `get_config` returns.

    Training needs no `get_config`, so it may be one that fails: then that is the text.
    """
    return _configuration(thing, ())


def _configuration(value: Any, above: Tuple[int, ...]) -> str:
    try:
        config = value.get_config()
    except Exception as error:
        return '<get_config raises %s>' % type(error).__name__
    return _text(config, above)


def _name_of(thing: Any) -> str:
    """The qualified name of a class or a function."""
    name = getattr(thing, '__qualname__', None) or getattr(thing, '__name__', None)
    return '%s.%s' % (getattr(thing, '__module__', None), name)


def _number(value: Any, above: Tuple[int, ...]) -> str:
    if isinstance(value, (np.generic, float)) and not isinstance(value, np.complexfloating):
        value = value.item() if isinstance(value, np.generic) else value
    return '%.9g' % value if isinstance(value, float) else repr(value)


def _listed(brackets: str) -> _Rule:
    def rule(values: Any, above: Tuple[int, ...]) -> str:
        texts = [_text(value, above) for value in values]
        return brackets[0] + ', '.join(sorted(texts) if brackets == '{}' else texts) + brackets[1]

    return rule


def _dict(values: Any, above: Tuple[int, ...]) -> str:
    pairs = ['%s: %s' % (_text(key, above), _text(value, above)) for key, value in values.items()]
    return '{%s}' % ', '.join(sorted(pairs))


def _tuple(values: Any, above: Tuple[int, ...]) -> str:
    if not hasattr(values, '_asdict'):
        return _listed('[]')(values, above)
    return '%s(%s)' % (type(values).__name__, _dict(values._asdict(), above))


def _array(value: Array, above: Tuple[int, ...]) -> str:
    if value.dtype.hasobject:
        return _text(value.tolist(), above)
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return '<array %s %s %s>' % (value.dtype, list(value.shape), digest[:16])


def _partial(value: Any, above: Tuple[int, ...]) -> str:
    return 'partial(%s, %s, %s)' % tuple(
        _text(part, above) for part in (value.func, value.args, value.keywords)
    )


def _method(value: MethodType, above: Tuple[int, ...]) -> str:
    return '%s of <%s>' % (_text(value.__func__, above), _name_of(type(value.__self__)))


def _function(value: FunctionType, above: Tuple[int, ...]) -> str:
    cells = []
    for cell in value.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append(None)  # It has no value yet.
    # What a function has from around it may be anything; numbers and functions are parameters.
    plain = [cell if isinstance(cell, _PLAIN) else '<%s>' % _name_of(type(cell)) for cell in cells]
    parts = [_code(value.__code__, above)]
    parts += [_text(part, above) for part in (value.__defaults__, value.__kwdefaults__, plain)]
    digest = hashlib.sha256('\n'.join(parts).encode('utf-8')).hexdigest()
    return '<%s, code %s>' % (_name_of(value), digest[:16])


def _code(code: CodeType, above: Tuple[int, ...]) -> str:
    """Text of a code object, without the place that it was written at."""
    constants = [
        _code(part, above) if isinstance(part, types.CodeType) else _text(part, above)
        for part in code.co_consts
    ]
    return repr([code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants])


_RULES: List[Tuple[Any, _Rule]] = [
    (str, lambda value, above: _ADDRESS.sub('', repr(value))),
    ((type(None), bool, bytes, range), lambda value, above: repr(value)),
    (enum.Enum, lambda value, above: '%s.%s' % (_name_of(type(value)), value.name)),
    ((numbers.Number, np.generic), _number),
    (np.ndarray, _array),
    (dict, _dict),
    ((set, frozenset), _listed('{}')),
    (tuple, _tuple),
    (list, _listed('[]')),
    (pathlib.PurePath, lambda value, above: repr(str(value))),
    (type, lambda value, above: '<class %s>' % _name_of(value)),
    (functools.partial, _partial),
    (types.MethodType, _method),
    (types.FunctionType, _function),
    ((types.BuiltinFunctionType, np.ufunc), lambda value, above: '<%s>' % _name_of(value)),
]


_PLAIN = tuple(
    kind for kinds, _ in _RULES for kind in (kinds if isinstance(kinds, tuple) else (kinds,))
)
