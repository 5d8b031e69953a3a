# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Quantities as people write them: sizes, times, bandwidths."""

import re
from typing import Any, List, Sequence

from keras_parallax.errors import PlanError

_BANDWIDTH = re.compile(
    r'\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(bit|bps|bytes?|b)(?:/s)?\s*', re.IGNORECASE
)

_SIZE = re.compile(r'\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b|bytes?)\s*', re.IGNORECASE)

#: Of more numbers than these, or ranges of them, only how many is given.
_MOST_LISTED = 8

_PREFIXES = {'': 1, 'k': 10**3, 'm': 10**6, 'g': 10**9, 't': 10**12}


def parse_bandwidth(text: Any) -> float:
    """Reads a bandwidth such as `'100Gbit'`, `'200 Mbit/s'` or `'1.25GB/s'`.

    Args:
        text: a string; prefixes are powers of 1000.

    Returns:
        Bytes per second, a float.

    Raises:
        PlanError: the text is no bandwidth; a `b` alone is refused because it may mean both.

    Example:
        ```python
        >>> parse_bandwidth('10Gbit')
        1250000000.0
        ```
    """
    match = _BANDWIDTH.fullmatch(text) if isinstance(text, str) else None
    if not match or match.group(3) == 'b' or not float(match.group(1)):
        raise PlanError(
            'bandwidth must be a number of bits or bytes per second with its unit, such as '
            "'10Gbit' or '1.25GB', but %r was given." % (text,)
        )
    bits = 1 if match.group(3).lower() in ('bit', 'bps') else 8
    return float(match.group(1)) * _PREFIXES[match.group(2).lower()] * bits / 8


def parse_size(text: Any) -> float:
    """Reads a number of bytes such as `'64GiB'` or `'16 GB'`.

    Args:
        text: a string; prefixes are powers of 1000, and with an `i` of 1024.

    Returns:
        Bytes, a float.

    Raises:
        PlanError: the text is no size.

    Example:
        ```python
        >>> parse_size('64GiB'), parse_size('1.5 kB')
        (68719476736.0, 1500.0)
        ```
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if not match or not float(match.group(1)) or (match.group(3) and not match.group(2)):
        raise PlanError(
            "A size must be a number of bytes with its unit, such as '64GiB' or '16GB', but %r was "
            'given.' % (text,)
        )
    prefix = match.group(2).lower()
    base = 1024 ** ' kmgt'.index(prefix) if match.group(3) else _PREFIXES[prefix]
    return float(match.group(1)) * base


def bandwidth_in_words(rate: float) -> str:
    """A bandwidth of so many bytes per second, in bits: `'10 Gbit/s'`."""
    return _scaled(rate * 8, 1000, (' bit/s', ' kbit/s', ' Mbit/s', ' Gbit/s', ' Tbit/s'), '%.3g%s')


def size_in_words(count: float) -> str:
    """A number of bytes in units of 1024: `'1.5 GiB'`."""
    if round(count, 1) < 1024:
        return '%d B' % round(count)
    return _scaled(count / 1024.0, 1024, (' KiB', ' MiB', ' GiB', ' TiB', ' PiB'), '%.1f%s')


def seconds_in_words(seconds: float) -> str:
    """A time: `'1.5 ms'`."""
    return _scaled(seconds * 1e6, 1000, (' us', ' ms', ' s'), '%.3g%s')


def shortened(text: str, length: int) -> str:
    """A text of at most so many characters, without its middle if it is longer.

    Example:
        ```python
        >>> shortened('a_long_name/embeddings', 13)
        'a_lon...dings'
        ```
    """
    if len(text) <= length:
        return text
    kept = length - 3
    return '%s...%s' % (text[: kept // 2], text[len(text) - (kept - kept // 2) :])


def counted(number: int, noun: str) -> str:
    """A number of things: `'1 shard'`, `'2 shards'`."""
    return '%d %s%s' % (number, noun, '' if number == 1 else 's')


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Things with numbers: `'server 0'`, `'servers 0-4, 7'`, `'24000 servers'` if they are many.

    Args:
        noun: what has the numbers.
        numbers: a list of them, in order.
    """
    runs: List[List[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: List[str] = []
    for run in runs:
        parts.extend(['%d-%d' % (run[0], run[-1])] if len(run) > 2 else map(str, run))
    if len(parts) > _MOST_LISTED:
        return counted(len(numbers), noun)
    return '%s%s %s' % (noun, '' if len(numbers) == 1 else 's', ', '.join(parts))


def _scaled(number: float, base: int, units: Sequence[str], form: str) -> str:
    for unit in units[:-1]:
        # What rounds to the next unit is given in it.
        if round(number, 1) < base:
            return form % (number, unit)
        number /= float(base)
    return form % (number, units[-1])
