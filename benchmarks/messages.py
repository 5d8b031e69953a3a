# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Messages and processor time of a step with many small tables: Wide & Deep, 52 of them.

    horovodrun -np 2 -H localhost:2 python benchmarks/messages.py --system hybrid
    horovodrun -np 2 -H localhost:2 python benchmarks/messages.py --system hvd-allgather

Rank 0 prints a line of JSON: the median of a step's time, processor time of a worker and step, and
(of ours) how many tensors the servers have sent each other in a step that TensorFlow traced.
"""

import collections
import json
import re
import statistics
import time

import click
import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from measuring import meter
from systems import catalog
from works import models

from keras_parallax.engine.job.collectives import Gatherer
from keras_parallax.engine.session.graph_scope import scope_of
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.engine.tables.pull import redirect_readers


def loopback():
    """Bytes that the processes of this machine have sent each other so far."""
    with open('/sys/class/net/lo/statistics/tx_bytes') as file:
        return int(file.read())


def traced(model, batch):
    """Runs a training step and returns what TensorFlow noted of it, a `StepStats`."""
    scope = scope_of(model.total_loss.graph)
    # TensorFlow 1.11 traces nothing of the functions that Keras makes for a server's session; so
    # the step is run by name, with what only those functions read put into the graph.
    for connection in step_of(model).runs.connections:
        redirect_readers(connection.replaced, connection.replacement)
    scope.sessions.open()
    feeds = model._feed_inputs + model._feed_targets + model._feed_sample_weights
    inputs, target = batch
    metadata = tf.RunMetadata()
    for _ in range(2):
        keras.backend.get_session().run(
            [model.total_loss, model.train_function.updates_op],
            dict(zip(feeds, inputs + [target, np.ones(len(target))])),
            options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
    return metadata.step_stats


def received(stats):
    """The tensors that came from another process, by what they are, most frequent first."""
    found = collections.Counter()
    for device in stats.dev_stats:
        for node in device.node_stats:
            if node.node_name == 'RecvTensor':
                found[re.sub(r'\d+', '#', node.timeline_label.split(']')[-1].strip())] += 1
    return found.most_common()


@click.command()
@click.option('--system', type=click.Choice(sorted(catalog.SYSTEMS)), required=True)
@click.option('--kind', default='wide_deep')
@click.option('--width', default=16)
@click.option('--steps', default=40)
@click.option('--verbose', is_flag=True)
def main(system, kind, width, steps, verbose):
    """Trains some steps and prints what they cost."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    made = []
    compiled = keras.models.Model.compile
    keras.models.Model.compile = lambda self, *args: (made.append(self), compiled(self, *args))[1]
    gather = Gatherer('benchmark') if size > 1 else lambda value: [value]
    work = models.click_model(kind, width, batch=256)
    step = catalog.SYSTEMS[system].build(work, catalog.Place(rank, size, gather), 1).step
    seconds, cpu, losses = [], 0, []
    batches = list(work.batches(rank, steps + 5))
    for number, batch in enumerate(batches):
        if number == 5:
            gather(None)
            cpu = meter.cpu_seconds()
            sent = loopback()
        began = time.perf_counter()
        losses.append(step(*batch))
        seconds.append(time.perf_counter() - began)
    used = gather(meter.cpu_seconds() - cpu)
    sent = loopback() - sent
    messages = []
    if system not in ('tf-ps',) + tuple(name for name in catalog.SYSTEMS if 'hvd' in name):
        messages = received(traced(made[0], batches[0]))
    if rank == 0:
        record = {
            'system': system,
            'workers': size,
            'step_ms': round(1e3 * statistics.median(seconds[5:]), 2),
            'cpu_ms': round(1e3 * statistics.mean(used) / steps, 2),
            'loopback_kb': round(sent / steps / 1e3, 1),
            'messages': sum(count for _, count in messages),
            'loss': losses[-1],
        }
        print(json.dumps(record), flush=True)
        if verbose:
            for what, count in messages:
                print('%5d %s' % (count, what), flush=True)
    gather(None)


if __name__ == '__main__':
    main()
