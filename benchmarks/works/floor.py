# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step has to send at least: the yardstick for the bytes that were counted."""

import numpy as np

from works import models
from works.stack import tf

FLOAT = 4


def dense_bytes(work):
    """Bytes of the weights that are no tables."""
    with tf.Graph().as_default():
        model, _ = work.build(models.Table, models.SampledSoftmax, 0)
        everything = sum(int(np.prod(weight.shape.as_list())) for weight in model.trainable_weights)
    return FLOAT * (everything - sum(rows * width for rows, width in work.tables.values()))


def floor(work, hosts, workers_per_host, steps, skip=0):
    """What a host sends in a step, at least, on the mean over hosts and steps.

    Each row that a host's batch names is pulled once and its gradient pushed once, unless its shard
    is on that host; dense gradients go through a ring allreduce. Row numbers, requests and headers
    are not counted.

    Args:
        work: a `Work`.
        hosts: number of hosts.
        workers_per_host: number of workers on each; row r is in shard r % workers.
        steps: number of steps to count.
        skip: steps before those, whose batches do not count.

    Returns:
        A dict: `floor_bytes`; `alpha`, the share of the tables' bytes that one worker's batch
        touches; `repeats`, how many ids a worker's batch has for each row it touches.
    """
    size = hosts * workers_per_host
    sources = [work.lookups(rank, skip + steps) for rank in range(size)]
    sent = touched = looked_up = 0
    whole = sum(rows * width for rows, width in work.tables.values())
    for number in range(skip + steps):
        found = [dict(next(source)) for source in sources]
        if number < skip:
            continue
        for name, (_, width) in work.tables.items():
            for host in range(hosts):
                first = host * workers_per_host
                mine = range(first, first + workers_per_host)
                rows = np.unique(np.concatenate([found[rank][name].ravel() for rank in mine]))
                away = np.count_nonzero(rows % size // workers_per_host != host)
                sent += 2 * away * width * FLOAT
            touched += len(np.unique(found[0][name])) * width
            looked_up += found[0][name].size * width
    ring = 2 * dense_bytes(work) * (hosts - 1) / hosts
    return {
        'floor_bytes': sent / hosts / steps + ring,
        'alpha': touched / steps / whole if whole else None,
        'repeats': looked_up / touched if touched else None,
    }
