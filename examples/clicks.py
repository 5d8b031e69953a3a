# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lines of Criteo's click logs for `criteo.py`: read from files, or made here.

A line is a label, 13 numbers and 26 categories of 8 hexadecimal digits, with tabs
between; a field that is missing is empty. Criteo's two data sets come as a file for
each day, ``day_0`` to ``day_23``, or as ``train.txt``, with seven days in a row.

Everything here is deterministic: workers that read the same files, or make as many
lines, get the same ones without talking to each other.
"""

import functools
import gzip
import itertools
import os
import re
from typing import List, NamedTuple

import numpy as np

NUMBERS, CATEGORIES = 13, 26
#: Distinct values in each column of categories, in ``train.txt``.
VALUES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
#: So many days are in ``train.txt``, about as many lines each.
_DAYS = 7


class ClicksError(ValueError):
    """The files are missing, or not in the layout."""


class Day(NamedTuple):
    """Lines of one day.

    Attributes:
        name: What the day is called.
        lines: A list of text, as in the file.
    """

    name: str
    lines: List[str]


def read_days(folder, held_out, most):
    """Returns the days to train on, and those to judge by, each a list of `Day`s.

    Args:
        folder: The folder with the files.
        held_out: How many days to judge by, the last ones.
        most: Upper limits for the lines of both; the first lines of each day are taken.

    Raises:
        ClicksError: The files are not there, or too few.
    """
    found = {
        int(match.group(1)): name
        for name, match in ((name, re.match(r'day_(\d+)(\.gz)?$', name)) for name in _names(folder))
        if match
    }
    parts = [(name, 0, None) for _, name in sorted(found.items())]
    if not parts:
        path = os.path.join(folder, 'train.txt')
        if not os.path.exists(path):
            raise ClicksError(f'{folder} has neither files day_0, day_1 ... nor train.txt.')
        ends = [os.path.getsize(path) * day // _DAYS for day in range(_DAYS + 1)]
        parts = [('train.txt', begin, end) for begin, end in zip(ends, ends[1:])]
    if len(parts) <= held_out:
        raise ClicksError(f'{folder} has {len(parts)} days, of which {held_out} are to judge by.')
    cut = len(parts) - held_out
    limits = [-(-limit // days) for limit, days in zip(most, (cut, held_out))]
    days = [
        Day(
            name if end is None else f'day {number + 1} of {name}',
            _lines(os.path.join(folder, name), begin, end, limits[number >= cut]),
        )
        for number, (name, begin, end) in enumerate(parts)
    ]
    return days[:cut], days[cut:]


def _names(folder):
    try:
        return os.listdir(folder)
    except OSError as error:
        raise ClicksError(f'{folder}: {error.strerror}.') from None


def _lines(path, begin, end, limit):
    """The first lines that begin in a part of a file, given in bytes."""
    with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as file:
        if begin:
            # A line that begins earlier is of the day before.
            file.seek(begin - 1)
            file.readline()
        lines = []
        while len(lines) < limit and (end is None or file.tell() < end):
            line = file.readline()
            if not line:
                break
            lines.append(line.decode('ascii', 'replace').rstrip('\n'))
        return lines


def make_days(days, held_out, most, seed=0):
    """Makes what `read_days` returns: clicks that depend on some fields, with frequent values.

    Args:
        days: How many days, those to judge by among them.
        held_out: As for `read_days`.
        most: How many lines to make.
        seed: Of the random numbers.
    """
    random = np.random.RandomState(seed)
    # What a number, a value of a category, and two of them together add to the odds.
    effects = random.normal(0, 0.35, (CATEGORIES, 997))
    counts = [most[0] // (days - held_out)] * (days - held_out) + [most[1] // held_out] * held_out
    made = [
        Day(f'day {day + 1}', _made(random, count, effects)) for day, count in enumerate(counts)
    ]
    return made[:-held_out], made[-held_out:]


def _made(random, count, effects):
    numbers = np.floor(random.lognormal(1.5, 1.5, (count, NUMBERS))).astype(np.int64)
    # Value k comes up about as often as one of k + 1 times.
    values = np.array(VALUES, float) ** random.uniform(size=(count, CATEGORIES))
    values = values.astype(np.int64)
    of_values = effects[np.arange(CATEGORIES), values % effects.shape[1]]
    score = of_values.sum(1) + 2 * of_values[:, 2] * of_values[:, 3] - 1.5
    score += 0.3 * (np.log1p(numbers[:, 0]) - 1.5)
    labels = random.uniform(size=count) < 1 / (1 + np.exp(-score))
    # As a hash of the value would look: any 32 bits, the same for the same value of a column.
    hashes = (values * 2654435761 + np.arange(CATEGORIES) * 40503) & 0xFFFFFFFF
    missing = random.uniform(size=(count, NUMBERS + CATEGORIES)) < 0.05
    lines = []
    for label, *fields, gaps in zip(labels, numbers, hashes, missing):
        texts = itertools.chain(map(str, fields[0]), ('%08x' % value for value in fields[1]))
        texts = ('' if gap else text for gap, text in zip(gaps, texts))
        lines.append('\t'.join(itertools.chain([str(int(label))], texts)))
    return lines


def table_rows(limit):
    """Returns the rows of each column of categories: one for missing ones, and the values.

    Args:
        limit: Upper limit for the values; of more, some share a row.
    """
    return [1 + min(count, limit) for count in VALUES]


def encode(days, rows=None):
    """Returns lines as the model takes them.

    Numbers are log(1 + x) of themselves, 0 if missing or negative. A category has the row of its
    hash modulo the rows of its column, which come after those of the columns before. If no rows
    are given, it is an id of 64 bits, of column and hash; of a column's missing ones, a negative
    one.

    Args:
        days: A list of `Day`s.
        rows: As `table_rows` returns them.

    Returns:
        Numbers [lines, 13], categories [lines, 26] and labels [lines, 1].

    Raises:
        ClicksError: A line is not in the layout.
    """
    lines = sum(len(day.lines) for day in days)
    numbers, labels = np.zeros((lines, NUMBERS), 'float32'), np.zeros((lines, 1), 'float32')
    categories = np.zeros((lines, CATEGORIES), 'int32' if rows else 'int64')
    encode_category = _id
    if rows:
        encode_category = functools.partial(_row, firsts=np.cumsum([0] + rows[:-1]), rows=rows)
    number = 0
    for day in days:
        for at, line in enumerate(day.lines, 1):
            fields = line.split('\t')
            try:
                if len(fields) != 1 + NUMBERS + CATEGORIES:
                    raise ValueError(f'it has {len(fields)} fields, not 40')
                if fields[0] not in ('0', '1'):
                    raise ValueError(f'its label is {fields[0]!r}')
                labels[number] = float(fields[0])
                numbers[number] = [float(field or 0) for field in fields[1 : 1 + NUMBERS]]
                categories[number] = [
                    encode_category(*pair) for pair in enumerate(fields[1 + NUMBERS :])
                ]
            except ValueError as error:
                raise ClicksError(
                    f'Line {at} of {day.name} is not one of Criteo: {error}.'
                ) from None
            number += 1
    return np.log1p(np.maximum(numbers, 0)), categories, labels


def _row(column, field, firsts, rows):
    return firsts[column] + (1 + int(field, 16) % (rows[column] - 1) if field else 0)


def _id(column, field):
    return column * 2**32 + int(field, 16) if field else -1 - column
