# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The phases of a job, one for each link speed, and how it goes through them.

Workers and the measuring process see the same folder: in it rank 0 says that all are ready for a
phase, the measuring process says that links have their speed, and each worker leaves what it saw.
"""

import json
import os
import time
from typing import NamedTuple

from measuring import schedule


class Trained(NamedTuple):
    """What a worker saw of a phase: numbers of steps, and loss and seconds of each, warm-up too."""

    warmup: int
    steps: int
    losses: list
    seconds: list


def train(step, next_batch, gather, warmup, steps, begin):
    """Trains through a phase, on every worker at once.

    Args:
        step: function from a batch's inputs and target to its loss.
        next_batch: function that returns the next batch.
        gather: function from a value to the list of all workers' values.
        warmup, steps: the most steps before those that are measured, and of these.
        begin: called before the first step that is measured.

    Returns:
        A `Trained`.
    """
    losses, seconds = [], []
    while len(seconds) < warmup + steps:
        # Both numbers are settled before bytes are counted, by the worker whose step took longest.
        if len(seconds) == schedule.SHORTEST_WARMUP:
            warmup = schedule.warmup(warmup, max(gather(seconds[-1])))
        if len(seconds) == warmup:
            steps = schedule.steps(steps, max(gather(seconds[-1])))
            begin()
        inputs, target = next_batch()
        start = time.perf_counter()
        losses.append(step(inputs, target))
        seconds.append(time.perf_counter() - start)
    return Trained(warmup, steps, losses, seconds)


def wait_for_links(path, phase):
    """Of rank 0: says that all workers are ready for a phase, and waits until links have its speed.

    Args:
        path: what the names of all files of the job begin with.
        phase: its number, from 0.
    """
    _make('%s.ready%d' % (path, phase))
    while not os.path.exists('%s.shaped%d' % (path, phase)):
        time.sleep(0.1)


def is_ready(path, phase):
    """Whether all workers are ready for a phase; as `wait_for_links`."""
    return os.path.exists('%s.ready%d' % (path, phase))


def begin(path, phase):
    """Of the measuring process: lets the workers begin with a phase; as `wait_for_links`."""
    _make('%s.shaped%d' % (path, phase))


def write(path, phase, rank, seen):
    """Leaves what a worker saw in a phase, a dict, whole or not at all."""
    name = _name(path, phase, rank)
    with open(name + '.new', 'w') as file:
        json.dump(seen, file)
    os.replace(name + '.new', name)


def read(path, phase, ranks):
    """What all workers saw in a phase, a list by rank; `None` while one has not left it yet."""
    names = [_name(path, phase, rank) for rank in range(ranks)]
    if not all(map(os.path.exists, names)):
        return None
    found = []
    for name in names:
        with open(name) as file:
            found.append(json.load(file))
    return found


def _name(path, phase, rank):
    return '%s.phase%d.rank%d' % (path, phase, rank)


def _make(name):
    open(name, 'w').close()
