# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which files a callback's path can have named: `'model-{epoch:02d}.h5'` and the like. Pure."""

import difflib
import glob
import os
import re
import string
from typing import Any, Collection, Dict, List, Mapping, Set

#: What `str.format` makes of a number without a precision, before the fill.
_NUMBER = r'[-+ ]?(?i:\d[\d,_]*(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)%?'

#: Stands for a format that is not looked into.
_ANY_FORMAT = '{}'

_SPEC = re.compile(
    r'(?:(?P<fill>.)?(?P<align>[<>=^]))?(?P<sign>[-+ ])?#?(?P<zero>0)?(?P<width>\d+)?[,_]?'
    r'(?:\.(?P<precision>\d+))?(?P<type>[a-zA-Z%])?$'
)


def wildcard(pattern: str) -> str:
    """The pattern of `glob` that stands for every value of the fields of a path.

    Args:
        pattern: a path with fields as `str.format` fills them.

    Example:
        ```python
        >>> wildcard('model-{epoch:02d}-[a].h5')
        'model-*-[[]a].h5'
        ```
    """
    return ''.join(
        glob.escape(text) + ('' if field is None else '*')
        for text, field, _, _ in string.Formatter().parse(pattern)
    )


def fields(pattern: str) -> Set[str]:
    """The names of the fields of a path, a set.

    Args:
        pattern: a path with fields as `str.format` fills them.

    Example:
        ```python
        >>> sorted(fields('model-{epoch:02d}-{batch}.h5'))
        ['batch', 'epoch']
        ```
    """
    return {field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None}


def check(pattern: str, known: Collection[str]) -> None:
    """Refuses a path whose fields nobody fills.

    Args:
        pattern: a path with fields as `str.format` fills them.
        known: names of fields of which one may be misspelled; others may be names of metrics.

    Raises:
        ValueError: braces do not match, or a field has no name, or one that is nearly a known one.

    Example:
        ```python
        >>> check('model-{epoch:02d}-{val_loss:.2f}.h5', ['epoch'])
        >>> try:
        ...     check('model-{epohc}.h5', ['epoch'])
        ... except ValueError as error:
        ...     print(error)
        The path 'model-{epohc}.h5' has the field epohc; write {epoch}.
        ```
    """
    try:
        found = fields(pattern)
    except ValueError as error:
        raise ValueError(
            'The path %r cannot be filled with an epoch: %s. Write a brace that is no field twice.'
            % (pattern, error)
        ) from error
    for field in sorted(found):
        name = _name_of(field)
        if not name or name.isdigit():
            raise ValueError(
                'The path %r has a field without a name; write {epoch}, or a brace that is no '
                'field twice.' % pattern
            )
        near = difflib.get_close_matches(name, known, 1, 0.75) if name not in known else ()
        if near:
            raise ValueError('The path %r has the field %s; write {%s}.' % (pattern, name, near[0]))


def missing(pattern: str, values: Mapping[str, Any]) -> List[str]:
    """The names of fields of a pattern that have no value, a list."""
    return sorted({name for name in map(_name_of, fields(pattern)) if name not in values})


def _name_of(field: str) -> str:
    """The name in a field, which may ask for a part of the value."""
    return re.split(r'[.\[]', field)[0]


def can_name(pattern: str, path: str) -> bool:
    """Whether filling the fields of a pattern with numbers can have given a path.

    Args:
        pattern: a path with fields as `str.format` fills them: `epoch` and metrics.
        path: the path.

    Example:
        ```python
        >>> paths = ['model-07.h5', 'model-best.h5', 'model-7.h5', 'model-123.h5']
        >>> [path for path in paths if can_name('model-{epoch:02d}.h5', path)]
        ['model-07.h5', 'model-123.h5']
        ```
    """
    expression, fields = '', []
    values: Dict[str, int] = {}
    for text, field, spec, conversion in string.Formatter().parse(os.path.normpath(pattern)):
        expression += re.escape(text)
        if field is not None:
            spec = _ANY_FORMAT if conversion or '{' in (spec or '') else spec or ''
            expression += '(%s)' % _expression(spec)
            fields.append((field, spec))
    match = re.match(expression + '$', os.path.normpath(path))
    if match is None:
        return False
    for (field, spec), value in zip(fields, match.groups()):
        if field == 'epoch' and spec != _ANY_FORMAT and not _is_epoch(spec, value, values):
            return False
    return True


def changing_part(pattern: str, path: str) -> str:
    """The end of a path from the first folder or name that has a field of the pattern on.

    It stays the same when the folder is moved, or is named from another one.

    Args:
        pattern: a path with fields as `str.format` fills them.
        path: the path, or the pattern itself.

    Example:
        ```python
        >>> changing_part('/runs/{epoch}/model.h5', '/runs/7/model.h5')
        '7/model.h5'
        >>> changing_part('/runs/model.h5', '/runs/model.h5')
        'model.h5'
        ```
    """
    parts = os.path.normpath(pattern).split(os.sep)
    fixed = [_has_fields(part) for part in parts].index(True) if _has_fields(pattern) else -1
    return os.sep.join(os.path.normpath(path).split(os.sep)[fixed:])


def _has_fields(text: str) -> bool:
    return bool(fields(text))


def _expression(spec: str) -> str:
    """The regular expression of the numbers in a format."""
    parts = _SPEC.match(spec)
    if parts is None:
        return r' *%s *' % _NUMBER
    precision, kind = parts.group('precision'), parts.group('type') or ''
    if precision is not None and kind in tuple('fF%eE'):
        digits = r'\.\d{%s}' % precision if int(precision) else r'\.?'
        exponent = r'[eE][-+]\d+' if kind in 'eE' else ''
        number = r'[-+ ]?(?:\d[\d,_]*%s%s|(?i:inf|nan))%s' % (
            digits, exponent, '%' if kind == '%' else ''
        )  # fmt: skip
    elif kind == 'd':
        number = r'[-+ ]?\d[\d,_]*'
    else:
        number = _NUMBER
    fill = re.escape(parts.group('fill') or ' ')
    return '(?:%s)*(?:%s)(?:%s)*' % (fill, number, fill) if parts.group('width') else number


def _is_epoch(spec: str, value: str, values: Dict[str, int]) -> bool:
    """Whether text is the number of an epoch in a format, and the same wherever it stands."""
    digits = re.search(r'\d[\d,_]*', value)
    if digits is None:
        return False
    epoch = int(re.sub('[,_]', '', digits.group()))
    try:
        as_formatted = format(epoch, spec)
    except ValueError:
        return False
    return as_formatted == value and values.setdefault('epoch', epoch) == epoch
