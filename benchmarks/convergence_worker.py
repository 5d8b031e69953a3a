# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One worker of a job that trains for `convergence.py`, which judges the weights that it leaves.

Started by `horovodrun` with the JSON of what `convergence.py` makes and the path that the names of
the job's files begin with: see `phases`. Rank 0 leaves the weights every so many steps, in
PATH.STEPS.npz; while it reads them, the clock stands still.
"""

import json
import sys
import time

import horovod.tensorflow as hvd
import numpy as np
from measuring import phases
from systems import catalog
from works import models

from keras_parallax.engine.job.collectives import Gatherer


def train(spec, path):
    """Trains `spec['steps']` steps, of which the first comes before links have their speed."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gather = Gatherer('benchmark')
    work = models.WORKS[spec['work']](**spec['options'])._replace(rate=spec['rate'])
    training = catalog.SYSTEMS[spec['system']].build(
        work, catalog.Place(rank, size, gather), spec['threads']
    )
    seconds = []
    for number, (inputs, target) in enumerate(work.batches(rank, spec['steps'])):
        start = time.perf_counter()
        training.step(inputs, target)
        seconds.append(time.perf_counter() - start)
        if not number:
            gather(None)
            if rank == 0:
                phases.wait_for_links(path, 0)
        # Step by step the workers go on together in any system, so this holds up none of them.
        gather(None)
        if rank == 0 and (number + 1) % spec['every'] == 0:
            np.savez('%s.%d.npz' % (path, number + 1), *training.weights())
        gather(None)
    phases.write(path, 0, rank, {'seconds': seconds})
    # Nobody may leave while another still trains with its server.
    gather(None)


if __name__ == '__main__':
    train(json.loads(sys.argv[1]), sys.argv[2])
