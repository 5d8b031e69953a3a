# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Compares what a script trained as the workers of a job with what it trained plainly."""

import json
import os

import numpy as np

#: Greatest difference of a loss, relative to it, and of a weight, relative to the largest.
TOLERANCE = 1e-3


def results(folder, name, mode, ranks):
    """What the workers of a run saved, a list of `np.load`s.

    Raises:
        AssertionError: a worker has failed or saved nothing.
    """
    loaded = []
    for rank in range(ranks):
        path = os.path.join(folder, '%s.%s%d-%d' % (name, mode, ranks, rank))
        if os.path.exists(path + '.error'):
            with open(path + '.error') as file:
                raise AssertionError(file.read())
        assert os.path.exists(path + '.npz'), 'rank %d of %s did not end' % (rank, name)
        loaded.append(np.load(path + '.npz'))
    return loaded


def difference(folder, name, ranks, mode='parallax'):
    """How far the workers of a job, or another run, are from plain Keras.

    Returns:
        The greatest relative difference of a loss, that of a weight, and the reasons for which
        several workers need not give the numbers of one process, a list.
    """
    plain = results(folder, name, 'plain', 1)[0]
    job = results(folder, name, mode, ranks)
    losses = np.mean([rank['losses'] for rank in job], 0)
    assert len(losses) == len(plain['losses']) and np.isfinite(losses).all(), losses
    of_losses = np.max(np.abs(losses / plain['losses'] - 1)) if len(losses) else 0
    of_weights = 0
    names = [key for key in plain.files if key.startswith('model')]
    assert names and names == [key for key in job[0].files if key.startswith('model')]
    for key in names:
        largest = np.abs(plain[key]).max() if plain[key].size else 0
        if largest:
            of_weights = max(of_weights, np.abs(job[0][key] - plain[key]).max() / largest)
    reasons = [reason for run in (plain, job[0]) for reason in json.loads(str(run['reasons']))]
    return of_losses, of_weights, sorted(set(reasons))


def tables(folder, name, ranks):
    """Where the tables of a job's models were, a dict; empty but for Keras 3."""
    return json.loads(str(results(folder, name, 'parallax', ranks)[0]['tables']))
