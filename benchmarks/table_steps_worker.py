# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One worker of a job that trains both models of a case in turn, for `table_steps.py`.

Started by `horovodrun` with the JSON of what `table_steps.py` makes and the path that the names of
the job's files begin with: see `phases`.
"""

import json
import sys
import time

import horovod.tensorflow as hvd
from measuring import phases, schedule
from works import table_pairs

from keras_parallax.engine.job.collectives import Gatherer


def rounds_of(pair, draw, warmup, rounds, steps, gather):
    """Has both models take steps in turn.

    Args:
        pair: a `table_pairs.Pair`.
        draw: how ids are drawn.
        warmup: steps of each that are not measured.
        rounds: how often each has its turn.
        steps: steps of each in a round.
        gather: function from a value to the list of all workers' values.

    Returns:
        For each round the seconds of each step of both models: a list of pairs of lists.
    """
    found = []
    for number in range(1 + rounds):
        batches = [pair.batch(draw) for _ in range(steps if number else warmup)]
        seconds = [[], []]
        # Whatever comes second may be slower or faster for that alone.
        for which in (0, 1) if number % 2 else (1, 0):
            gather(None)
            for inputs in batches:
                start = time.perf_counter()
                pair.models[which].train_on_batch(inputs[which], pair.targets)
                seconds[which].append(time.perf_counter() - start)
        found.append(seconds)
    return found[1:]


def train(spec, path):
    """Trains at one link speed after another."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gather = Gatherer('benchmark') if size > 1 else lambda value: [value]
    case = table_pairs.CASES[spec['case']]
    pair = table_pairs.Pair(case, spec['rows'], rank, size)
    pair.fill()
    for phase in range(spec['phases']):
        gather(None)
        if rank == 0:
            phases.wait_for_links(path, phase)
        gather(None)
        warmup = schedule.SHORTEST_WARMUP if phase else schedule.SETTLING_STEPS
        seen = {
            draw: rounds_of(pair, draw, warmup, spec['rounds'], spec['steps'], gather)
            for draw in case.draws
        }
        phases.write(path, phase, rank, seen)
    # Nobody may leave while another still trains with its server.
    gather(None)


if __name__ == '__main__':
    train(json.loads(sys.argv[1]), sys.argv[2])
