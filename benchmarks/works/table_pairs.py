# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pairs of models that look the same rows up in two ways, and what both train on."""

import math
from typing import Callable, NamedTuple, Optional

import keras
import keras.backend as K
import numpy as np

import keras_parallax as kp

BATCH = 4096
#: Ids of a sample: one for each field, or those of a bag.
FIELDS, BAG = 26, 20
#: Share of a batch's ids that are new, where some are. Each comes in two batches, one after the
#: other.
NEW = 0.01
#: By name: how ids below `count` are drawn.
DRAWS = {
    'evenly': lambda random, count, shape: random.randint(0, count, shape),
    'by Zipf 1.2': lambda random, count, shape: (random.zipf(1.2, shape) - 1) % count,
}


class Case(NamedTuple):
    """Two ways to look up, and ids.

    Attributes:
        title: what it is called in reports.
        lookups: function `(rows, width)` that returns the usual way and the one that is judged,
            functions from ids `[batch, length]` to a tensor of two dimensions.
        length: ids of a sample.
        width: of a row.
        draws: some of `DRAWS`.
        hosts: the numbers of hosts on which it is measured.
        limited: whether also over slow links.
        rounds: how many times as many rounds as of others are measured, where both ways are alike.
        bound: what a step by the second way may take at most, in steps by the first; or `None`.
        raw: whether the second way takes ids that nobody has numbered, which get rows in training.
        known: the share of the rows that have an id before anything is measured.
        has_new: whether every batch has some new ids.
        admitted_after: how many batches must have an id until it has a row.
    """

    title: str
    lookups: Callable
    length: int
    width: int = 16
    draws: tuple = tuple(DRAWS)
    hosts: tuple = (1, 2, 4)
    limited: bool = True
    rounds: int = 1
    bound: Optional[float] = None
    raw: bool = True
    known: float = 1.0
    has_new: bool = False
    admitted_after: int = 1


def _dynamic(**policies):
    def lookups(rows, width):
        dynamic = kp.layers.DynamicEmbedding(width, rows, name='dynamic', **policies)
        tables = keras.layers.Embedding(rows, width), dynamic
        return [lambda ids, table=table: keras.layers.Flatten()(table(ids)) for table in tables]

    return lookups


def _bags(rows, width):
    table = keras.layers.Embedding(rows, width)
    total = keras.layers.Lambda(lambda vectors: K.sum(vectors, 1))
    return lambda ids: total(table(ids)), kp.layers.EmbeddingBag(rows, width, combiner='sum')


CASES = {
    'dynamic': Case('`DynamicEmbedding`, all ids have rows', _dynamic(), FIELDS, bound=1.5),
    'dynamic-new': Case(
        '`DynamicEmbedding`, ids arrive', _dynamic(), FIELDS, draws=('evenly',), known=0.5,
        has_new=True,
    ),
    'dynamic-policies': Case(
        '`DynamicEmbedding`, ids are admitted and evicted',
        _dynamic(admission=kp.Admission(min_count=2), eviction=kp.Eviction('lru')), FIELDS,
        draws=('evenly',), has_new=True, admitted_after=2,
    ),
    'bag': Case(
        '`EmbeddingBag`', _bags, BAG, hosts=(1, 2), limited=False, rounds=4, bound=1.0,
        raw=False,
    ),
    'bag-64': Case(
        '`EmbeddingBag`', _bags, BAG, width=64, hosts=(1, 2), limited=False, rounds=4,
        bound=1.0, raw=False,
    ),
}  # fmt: skip


def raw_ids(numbers):
    """Ids of 64 bits for numbers from 0 on, another for each."""
    return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)


def known_count(case, rows, size):
    """How many ids of a case have rows before anything is measured, on so many workers."""
    # Each shard gives away its own rows, so that the first is full before all are.
    room = rows - 4 * math.sqrt(rows * size) if case.raw else rows
    return int(room * case.known)


def new_numbers(count, rank, size, step):
    """`count` numbers from 0 on of a worker's ids, of which half were new in the step before."""
    half = count // 2
    return np.arange(step * half, (step + 2) * half) * size + rank


def shares(count, batch, rank, size):
    """All numbers below `count`, `batch` at a time: those of a worker, as often on every worker."""
    own = np.arange(rank, count, size)
    steps = -(-count // (size * batch))
    return np.resize(own, [steps, batch])


class Pair:
    """The two models of a case in this process.

    Args:
        case: a `Case`.
        rows: how many both tables have.
        rank: this process's rank.
        size: the number of workers.

    Attributes:
        models: the usual one, and the one that is judged.
    """

    def __init__(self, case, rows, rank, size):
        self._case, self._rows, self._rank, self._size = case, rows, rank, size
        self._dtype = 'int64' if case.raw else 'int32'
        self._known = known_count(case, rows, size)
        self._random, self._step = np.random.RandomState(rank), 0
        #: What both models learn, of each sample.
        self.targets = np.zeros([BATCH, 1], np.float32)
        with kp.ParallaxStrategy():
            lookups = case.lookups(rows, case.width)
            self.models = [self._compiled(lookup) for lookup in lookups]

    def fill(self):
        """Gives rows to the ids that are to have some before anything is measured."""
        if not self._case.raw:
            return
        batch = BATCH * self._case.length
        for numbers in shares(self._known, batch, self._rank, self._size):
            for _ in range(self._case.admitted_after):
                self.models[1].train_on_batch(self._inputs(numbers)[1], self.targets)

    def batch(self, draw):
        """The next batch's inputs of both models, arrays of ids.

        Args:
            draw: a name in `DRAWS`.
        """
        size = BATCH * self._case.length
        numbers = DRAWS[draw](self._random, self._known, size)
        if self._case.has_new:
            new = new_numbers(int(NEW * size), self._rank, self._size, self._step)
            numbers[: len(new)] = self._known + new
        self._step += 1
        return self._inputs(numbers)

    def _compiled(self, lookup):
        ids = keras.layers.Input((self._case.length,), dtype=self._dtype)
        model = keras.models.Model(ids, keras.layers.Dense(1)(lookup(ids)))
        model.compile('adagrad', 'mse')
        return model

    def _inputs(self, numbers):
        numbers = numbers.reshape([BATCH, self._case.length])
        usual = (numbers % self._rows).astype(self._dtype)
        return usual, raw_ids(numbers) if self._case.raw else usual
