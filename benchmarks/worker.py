# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One worker of a job: trains at one link speed after another, counts, and leaves what it saw.

Started by `horovodrun` (or as it is, for one process) with the JSON of what `measure.measure` makes
of a case and the path that the names of the job's files begin with: see `phases`.
"""

import collections
import itertools
import json
import os
import sys
import time

import horovod.tensorflow as hvd
import numpy as np
from measuring import meter, phases, schedule
from systems import catalog
from works import models

from keras_parallax.engine.job.collectives import Gatherer

#: More steps than a job takes until it has settled on an architecture.
MOST_TRIED = 150


def _settle(training, batches):
    """Trains until a job has chosen its architecture, which all workers do at once; the losses."""
    losses = []
    while not (training.plan().trials and training.plan().trials.is_over):
        if len(losses) == MOST_TRIED:
            raise SystemExit('No architecture is chosen after %d steps.' % MOST_TRIED)
        losses.append(training.step(*next(batches)))
    return losses


def of_own(losses):
    """The losses without those of steps that other workers have done and report."""
    return [loss for loss in losses if loss is not None]


def measure(spec, path):
    """Runs a job through its phases; see the module."""
    system = catalog.SYSTEMS[spec['system']]
    if system.rests_horovod:
        # Idle, it would take a part of a peer's processor: so it looks for work every 100 ms.
        os.environ['HOROVOD_CYCLE_TIME'] = '100'
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gather = Gatherer('benchmark') if size > 1 else lambda value: [value]
    work = models.WORKS[spec['work']](**spec['options'])
    place = catalog.Place(rank, size, gather)
    training = system.build(work, place, spec['threads'])
    warmups = [schedule.SETTLING_STEPS] + [spec['warmup']] * (spec['phases'] - 1)
    count = 1 + MOST_TRIED + sum(warmups) + spec['phases'] * spec['steps']
    batches, ahead = work.batches(rank, count), collections.deque()
    losses = [training.step(*next(batches))]
    job = {
        'rank': rank,
        'local_rank': hvd.local_rank(),
        'first_step_seconds': time.time() - spec['started'],
        'unit': work.unit,
        'units': work.units,
    }
    for phase, warmup in enumerate(warmups):
        # Made before any is measured, or it would count as the system's processor time.
        ahead.extend(itertools.islice(batches, warmup + spec['steps'] - len(ahead)))
        gather(None)
        if rank == 0:
            phases.wait_for_links(path, phase)
        gather(None)
        if phase == 0 and training.plan:
            losses += _settle(training, batches)
            job['settled_on'] = training.plan().as_data()['trials']
        measured = meter.Meter(gather)
        trained = phases.train(
            training.step, ahead.popleft, gather, warmup, spec['steps'], measured.begin
        )
        seen = measured.end(trained.steps)
        losses += trained.losses
        job.setdefault('start_peak_mib', measured.peak_before)
        seen.update(
            job,
            warmup=trained.warmup,
            steps=trained.steps,
            seconds=trained.seconds[trained.warmup :],
            losses=of_own(losses),
        )
        phases.write(path, phase, rank, seen)
    # Nobody may leave while another still trains with its server.
    gather(None)
    if not np.isfinite(of_own(losses)).all():
        raise SystemExit('Rank %d: the loss is not finite.' % rank)


if __name__ == '__main__':
    measure(json.loads(sys.argv[1]), sys.argv[2])
