# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Ids and samples for the benchmarks: Zipf words, the demo's corpus, Criteo's columns.

Everything is made from a seed, so that every system trains on the same batches.
"""

import os
import sys

import numpy as np

INTEGERS, CATEGORIES = 13, 26

#: Distinct values in each categorical column of Criteo's Kaggle data, from its usual summary.
CRITEO_VALUES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
#: What columns are hashed to here, so that a worker's copy fits the machine: 1,015,569 rows.
LARGEST_COLUMN = 125000

#: So many are generated together, because it takes a second and a half to begin with. They do for
#: the first step and one link speed.
BATCHES_AT_ONCE = 40


def column_rows(largest=LARGEST_COLUMN):
    """Rows of each categorical column's table: one for the missing value, then the hashes."""
    return [1 + min(values, largest) for values in CRITEO_VALUES]


class Zipf:
    """Draws ids in `[0, rows)`; id k has a probability proportional to (k + 1) ** -exponent."""

    def __init__(self, rows, exponent):
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
        self._bounds = np.cumsum(weights) / weights.sum()

    def __call__(self, random, shape):
        return self.at(random.uniform(size=shape))

    def at(self, uniform):
        """The ids at the given quantiles."""
        found = np.searchsorted(self._bounds, uniform)
        return np.minimum(found, len(self._bounds) - 1).astype(np.int32)


def generated_words(vocabulary, exponent=1.0):
    """A function `(random, batch, length) -> ids` that draws words independently."""
    draw = Zipf(vocabulary, exponent)
    return lambda random, batch, length: draw(random, (batch, length))


def corpus_words(vocabulary, max_tokens=400000, held_out=False):
    """A function `(random, batch, length) -> ids` that cuts windows from the demo's corpus.

    They are of text that is trained on, or of what the corpus has `held_out`.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, '..', '..', 'examples'))
    import corpus

    text = corpus.read(vocabulary_size=vocabulary, max_tokens=max_tokens)
    words = text.held_out if held_out else text.train

    def windows(random, batch, length):
        starts = random.randint(0, len(words) - length, batch)
        return words[starts[:, None] + np.arange(length)]

    return windows


def criteo_streams(seed):
    """The random numbers of `criteo_like`: a stream for each kind, filled line by line."""
    return [np.random.RandomState([seed, stream]) for stream in range(4)]


def criteo_like(lines, streams, exponent=1.0):
    """Generates lines in the layout of Criteo's data, with its cardinalities and a like skew.

    The label depends on some of the fields, so that there is something to learn. Lines are the same
    however many there are and in however many calls they are made, so that systems that take fewer
    steps see the same batches.

    How often an id repeats in a batch decides what deduplication is worth, so the exponent is not
    free. The first 48 lines of the Kaggle data, which OpenEmbedding's repository has as an example,
    hold 623 distinct values. A power law fitted to each of their columns has 26,300 in 4,096 lines,
    4.1 ids for each, most of them in the few columns of millions of values; one exponent of 1.0 for
    all columns has 26,800, an exponent of 1.1 has 20,500.

    Args:
        lines: how many.
        streams: as `criteo_streams` makes them, or a call before left them.
        exponent: of the power law that the values of each column follow.

    Returns:
        Labels `[n]` of 0 and 1, integers `[n, 13]`, categories `[n, 26]` as 32-bit hashes, and
        `[n, 39]` booleans: whether the integer or category is missing.
    """
    numbers, ranks, clicks, gaps = streams
    integers = np.floor(numbers.lognormal(1.5, 1.5, (lines, INTEGERS))).astype(np.int64)
    quantiles = ranks.uniform(size=(lines, CATEGORIES))
    columns = zip(CRITEO_VALUES, quantiles.T)
    values = np.stack([Zipf(count, exponent).at(column) for count, column in columns], 1)
    values = values.astype(np.int64)
    score = 0.3 * np.log1p(integers[:, 0]) - 1.2
    for column in (2, 3, 9, 13):
        score += np.where(values[:, column] % 3 == 0, 0.8, -0.4)
    labels = clicks.uniform(size=lines) < 1 / (1 + np.exp(-score))
    # As a hash of the value would look: any 32 bits, the same for the same value of a column.
    hashes = ((values + 1) * 2654435761 + np.arange(CATEGORIES) * 40503) & 0xFFFFFFFF
    absent = gaps.uniform(size=(lines, INTEGERS + CATEGORIES)) < 0.1
    return labels.astype(np.int64), integers, hashes, absent


def write_criteo(path, labels, integers, hashes, absent):
    """Writes what `criteo_like` returns as Criteo's TSV.

    A line is the label, 13 integers and 26 categories of 8 hexadecimal digits, all separated by
    tabs; a field that is missing is empty.
    """
    with open(path, 'w') as file:
        for line in range(len(labels)):
            fields = ['%d' % number for number in integers[line]]
            fields += ['%08x' % number for number in hashes[line]]
            kept = ['' if gone else field for field, gone in zip(fields, absent[line])]
            file.write('\t'.join(['%d' % labels[line]] + kept) + '\n')


def generated_criteo(lines, streams, rows=None):
    """What `read_criteo` returns for a file of `criteo_like`, without the file: it takes a minute.

    Args:
        lines, streams: as for `criteo_like`.
        rows: as for `read_criteo`.
    """
    labels, integers, hashes, absent = criteo_like(lines, streams)
    dense = np.where(absent[:, :INTEGERS], 0, integers).astype(np.float32)
    hashed = 1 + hashes % (np.array(rows or column_rows()) - 1)
    categories = np.where(absent[:, INTEGERS:], 0, hashed).astype(np.int32)
    return labels.astype(np.float32)[:, None], np.log1p(dense), categories


def generated_batches(count, batch, seed, rows=None):
    """Batches of generated samples, a part of them in memory: 160 bytes a line.

    Args:
        count: how many.
        batch: lines of each.
        seed: as for `criteo_streams`.
        rows: as for `read_criteo`.

    Yields:
        What `read_criteo` returns, of a batch.
    """
    streams = criteo_streams(seed)
    for begin in range(0, count, BATCHES_AT_ONCE):
        lines = batch * min(BATCHES_AT_ONCE, count - begin)
        made = generated_criteo(lines, streams, rows)
        for first in range(0, lines, batch):
            yield tuple(part[first : first + batch] for part in made)


def read_criteo(path, rows=None):
    """Reads Criteo's TSV: `train.txt` of its Kaggle challenge, or a day of the Terabyte log.

    Args:
        path: the file.
        rows: rows of each categorical column's table; `column_rows()` by default.

    Returns:
        Labels `[n, 1]` float32, integers `[n, 13]` float32 as log(1 + x) with 0 for missing and
        negative ones, and categories `[n, 26]` int32: 0 for missing, otherwise the hash.

    Raises:
        ValueError: a line is not in the layout.
    """
    rows = rows or column_rows()
    labels, integers, categories = [], [], []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip('\n').split('\t')
            if len(fields) != 1 + INTEGERS + CATEGORIES:
                raise ValueError(
                    'Line %d of %s has %d fields separated by tabs, but Criteo lines have %d: '
                    'a label, %d integers and %d categories.'
                    % (number, path, len(fields), 1 + INTEGERS + CATEGORIES, INTEGERS, CATEGORIES)
                )
            try:
                labels.append(float(fields[0]))
                integers.append([float(field or 0) for field in fields[1 : 1 + INTEGERS]])
                categories.append(
                    [
                        1 + int(field, 16) % (count - 1) if field else 0
                        for field, count in zip(fields[1 + INTEGERS :], rows)
                    ]
                )
            except ValueError as error:
                raise ValueError('Line %d of %s: %s.' % (number, path, error)) from None
    dense = np.log1p(np.maximum(np.array(integers, np.float32), 0))
    return (
        np.array(labels, np.float32)[:, None],
        dense.reshape([-1, INTEGERS]),
        np.array(categories, np.int32).reshape([-1, CATEGORIES]),
    )
