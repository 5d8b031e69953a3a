# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Draws a training step as rank 0 saw it, from TensorFlow's own trace.

    horovodrun -np 2 -H localhost:2 python benchmarks/timeline.py docs/images/timeline.png

The model has two tables, an LSTM and a dense layer. Rank 0 traces one step after some others, sorts
the operations into the parts of a step and draws when each part ran.
"""

import collections
import re

import click
import keras
import matplotlib
import numpy as np
import tensorflow as tf

import keras_parallax as kp

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

ROWS, WIDTH, LENGTH, BATCH = (50000, 20000), (256, 128), 20, 128
WARM_UP_STEPS = 10

#: Part of a step to what the trace's label of an operation, or of a transfer, looks like. The first
#: that fits counts.
PARTS = collections.OrderedDict(
    [
        ('end: token of an owner', r'_updated_\d+_for_\d+_[Dd]equeue'),
        ('dense allreduce', r'= HorovodAllreduce\('),
        ('rows and gradients on their way', r'^RecvTensor .*GatherV2'),
        ('pull: gather on a shard', r'= GatherV2\(parallax/.*/embeddings/shard_'),
        ('push: into the queues', r'= QueueEnqueueV2\('),
        ('owner: take from the queues', r'= QueueDequeueV2\('),
        ('owner: update of a shard', r'= Scatter\w+\(parallax/'),
        ('backward', r'/gradients/'),
        ('forward', r'^(words|items|lstm|out|concatenate)\w*/'),
    ]
)
#: The parts from top to bottom.
ORDER = (
    'pull: gather on a shard',
    'rows and gradients on their way',
    'forward',
    'backward',
    'dense allreduce',
    'push: into the queues',
    'owner: take from the queues',
    'owner: update of a shard',
    'end: token of an owner',
)


def build():
    """The strategy and the compiled model."""
    with kp.ParallaxStrategy() as strategy:
        inputs = [keras.layers.Input((LENGTH,)) for _ in ROWS]
        tables = [
            keras.layers.Embedding(rows, width, name=name)
            for rows, width, name in zip(ROWS, WIDTH, ('words', 'items'))
        ]
        hidden = keras.layers.concatenate([table(ids) for table, ids in zip(tables, inputs)])
        out = keras.layers.Dense(1, name='out')(keras.layers.LSTM(128, name='lstm')(hidden))
        model = keras.models.Model(inputs, out)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(lr=0.1)), 'mse')
    return strategy, model


def trace(model, batch):
    """Runs a step, and returns what TensorFlow has noted of it, a `StepStats`."""
    feeds = model._feed_inputs + model._feed_targets + model._feed_sample_weights
    metadata = tf.RunMetadata()
    keras.backend.get_session().run(
        [model.total_loss, model.train_function.updates_op],
        dict(zip(feeds, batch)),
        options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
        run_metadata=metadata,
    )
    return metadata.step_stats


def spans(stats):
    """When each part of a step ran.

    Args:
        stats: a `StepStats`.

    Returns:
        A dict from names of parts to lists of pairs of begin and duration, in milliseconds from the
        beginning of the step.
    """
    found = collections.OrderedDict((part, []) for part in PARTS)
    nodes = [node for device in stats.dev_stats for node in device.node_stats]
    start = min(node.all_start_micros for node in nodes)
    for node in nodes:
        for part, pattern in PARTS.items():
            if re.search(pattern, '%s %s' % (node.node_name, node.timeline_label)):
                begin = (node.all_start_micros - start) / 1e3
                found[part].append((begin, max(0.01, node.all_end_rel_micros / 1e3)))
                break
    return found


def draw(found, path):
    """Draws the parts of a step, one below the other.

    Args:
        found: as `spans` returns it.
        path: the picture's file.
    """
    order = [part for part in ORDER if found[part]]
    end = max(begin + length for part in order for begin, length in found[part])
    figure, axes = plt.subplots(figsize=(9, 3.6))
    for place, part in enumerate(order):
        color = '#4878a8' if part in ('forward', 'backward') else '#d1702b'
        # Short ones are drawn wide enough to be seen.
        wide = [(begin, max(length, end / 300)) for begin, length in found[part]]
        axes.broken_barh(wide, (place - 0.4, 0.8), facecolors=color)
    axes.set_yticks(range(len(order)))
    axes.set_yticklabels(order)
    axes.invert_yaxis()
    axes.set_xlabel('milliseconds from the beginning of the step, on rank 0 of 2')
    axes.grid(axis='x', alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


@click.command()
@click.argument('path')
def main(path):
    """Traces a step of two workers and draws it into the file PATH."""
    strategy, model = build()
    random = np.random.RandomState(strategy.rank)
    batch = [random.zipf(1.3, (BATCH, LENGTH)) % rows for rows in ROWS] + [np.zeros((BATCH, 1))]
    for _ in range(WARM_UP_STEPS):
        model.train_on_batch(batch[:2], batch[2])
    # The first traced step prepares the trace.
    for _ in range(3):
        stats = trace(model, batch + [np.ones(BATCH)])
    if strategy.is_chief:
        found = spans(stats)
        draw(found, path)
        for part, times in found.items():
            print('%-34s %4d operations' % (part, len(times)))


if __name__ == '__main__':
    main()
