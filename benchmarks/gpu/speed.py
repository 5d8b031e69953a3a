# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Measures the steps of one system in one turn, and the copies of a step.

Usage: speed.py WORK SYSTEM TURN, with the names of `parts.py`.
"""

import sys
import time

import numpy as np
from systems import catalog
from works import models
from works.stack import tf

from gpu import copies
from gpu.reporting import is_small, report

#: The names of results to those of `catalog.SYSTEMS`.
SYSTEMS = {
    'plain Keras': 'keras',
    'ours, one process': 'hybrid',
    "Horovod's allgather": 'hvd-allgather',
    'ours, hybrid': 'hybrid',
    'ours, allreduce': 'allreduce',
}
#: Seconds of measured steps after which a turn ends, and the most and least steps.
SECONDS, MOST, LEAST, WARM_UP = (2.0, 8, 3, 2) if is_small() else (6.0, 100, 5, 10)


def work_of(name):
    """The work of a name: 26 tables of 100,000 x 64, or 800,000 words of 512."""
    if name == 'deepfm':
        sizes = dict(width=4, batch=64, rows=500) if is_small() else dict(rows=100000)
        return models.click_model(**sizes)
    sizes = dict(vocabulary=800000, width=512, state=512, batch=128, length=20, noise=512)
    if is_small():
        sizes.update(vocabulary=2000, width=16, state=16, batch=16, noise=64)
    return models.language_model(**sizes)


def place():
    """This rank's place."""
    import horovod.tensorflow as hvd

    from keras_parallax.engine.job.collectives import Gatherer

    hvd.init()
    several = hvd.size() > 1
    gather = Gatherer('benchmark') if several else lambda value: [value]
    return catalog.Place(hvd.rank(), hvd.size(), gather)


def steps(training, batches, gather):
    """The seconds of each measured step, of the rank that took longest, and the losses."""
    losses = [training.step(*next(batches)) for _ in range(WARM_UP)]
    seconds, begin = [], time.time()
    while len(seconds) < MOST:
        batch, start = next(batches), time.perf_counter()
        losses.append(training.step(*batch))
        seconds.append(time.perf_counter() - start)
        # All ranks end at the same step: rank 0 says when, and only now and then.
        if len(seconds) % LEAST == 0 and gather(sum(seconds) > SECONDS)[0]:
            break
    end = time.time()
    return [max(of_ranks) for of_ranks in zip(*gather(seconds))], losses, (begin, end)


class _WithGraphs:
    """A session that tells the graphs of its devices, too."""

    def __init__(self, session):
        self._session, self.graph, self.close = session, session.graph, session.close

    def run(self, fetches, feeds, options, metadata):
        """As of `tf.Session`."""
        options.output_partition_graphs = True
        return self._session.run(fetches, feeds, options, metadata)


def traced(training, batches):
    """A step's `RunMetadata`, from a second traced step: the first one prepares the trace."""
    function = training.model.train_function
    # Ours is wrapped, to refuse what a script may give to it.
    function, metadata = getattr(function, '_function', function), tf.RunMetadata()
    function.run_options = tf.RunOptions(
        trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True
    )
    function.run_metadata = metadata
    function._session = None  # Has it make its callable anew, with these options.
    for _ in range(2):
        metadata.Clear()
        training.step(*next(batches))
    return metadata


def traced_at_server(training, batches):
    """As `traced`, of a step whose session is at a server, as of hybrid on several ranks."""
    from keras_parallax.engine.step.train_step import step_of
    from keras_parallax.observing.traced_runs import Tracer

    tracer = Tracer()
    step_of(training.model).observers.append(tracer)
    training.step(*next(batches))
    tracer._session = _WithGraphs(tracer._session)
    training.step(*next(batches))
    return tracer.traced[-1][-1]


def main(work_name, system, turn):
    """Trains, measures and reports."""
    work, own = work_of(work_name), place()
    training = catalog.SYSTEMS[SYSTEMS[system]].build(work, own, None)
    batches = work.batches(own.rank, WARM_UP + MOST + 2)
    seconds, losses, (begin, end) = steps(training, batches, own.gather)
    finite = bool(np.isfinite(losses).all())
    report('step time', finite, '' if finite else 'the loss is not finite', work=work_name,
           system=system, step_ms=1e3 * float(np.median(seconds)), steps=len(seconds),
           last_loss=losses[-1], begin=begin, end=end)  # fmt: skip
    if turn == '1' and training.model is not None:
        trace = traced_at_server if system == 'ours, hybrid' else traced
        metadata = trace(training, batches)
        operations = sum(len(device.node_stats) for device in metadata.step_stats.dev_stats)
        passed = operations > 0 and len(metadata.partition_graphs) > 0
        report('copies', passed, '' if passed else 'the step left no trace',
               operations=operations, graphs=len(metadata.partition_graphs),
            placed=copies.in_graphs(metadata),
               traced=copies.in_trace(metadata.step_stats))  # fmt: skip
    # No rank may leave while another still trains with its server.
    own.gather(None)


if __name__ == '__main__':
    main(*sys.argv[1:])
