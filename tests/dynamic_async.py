# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs of a `DynamicEmbedding` whose workers do not wait for each other, on a linear loss."""

import dynamic
import numpy as np

STEPS, SAMPLES, RATE, COUNT = 25, 6, 0.1, 150
IDS = np.random.RandomState(1).randint(-(2**62), 2**62, COUNT, dtype=np.int64)
#: By what a row is multiplied in the loss; no two of them are multiples of one number.
STRENGTHS = np.sqrt(np.arange(2.0, 2.0 + COUNT))
#: Arguments of the strategy, and of the layer.
RUNS = {
    'hybrid': ({}, {'capacity': 300}),
    'ps': ({'architecture': 'ps'}, {'capacity': 300}),
    'admitted': ({'architecture': 'ps'}, {'capacity': 300, 'admission': {'min_count': 2}}),
}


def numbers(step, rank):
    """The numbers of the ids in a worker's batch `[SAMPLES, LENGTH]`; ids come and go."""
    random = np.random.RandomState(100 * step + rank)
    shape = [SAMPLES, dynamic.LENGTH]
    return (5 * step + random.randint(0, 20, shape)) % COUNT


def uses():
    """How often all workers of two have used each id, `[COUNT]`."""
    batches = [numbers(step, rank) for step in range(STEPS) for rank in range(2)]
    return np.bincount(np.ravel(batches), minlength=COUNT)


def moves(found):
    """For the number of each id with a row, how many uses its row shows, `[WIDTH]`: a dict."""
    config = dynamic.INITIALIZERS['RandomUniform']
    shown = {}
    for id_, row in zip(found['ids'].tolist(), found['rows']):
        if id_ == dynamic.NO_ID:
            continue
        (number,) = np.flatnonzero(IDS == id_)
        (first,) = dynamic.first_rows([id_], dynamic.WIDTH, 'RandomUniform', **config)
        shown[number] = (first - row) / (RATE * STRENGTHS[number] / SAMPLES)
    return shown
