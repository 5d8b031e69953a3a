# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether an advertisement is clicked, by DLRM, trained by several workers with Keras 3.

Run two workers on this machine:

    keras-parallax run -np 2 examples/keras3/recommender.py

``KERAS_BACKEND=jax keras-parallax run ...`` runs it on the JAX backend.

This is a plain Keras script except for the lines marked ``# kp:``. One table has a row for each
value of 26 categories. A batch uses few of its rows, so the table is sharded.
"""

import itertools
import os
import sys
import tempfile

import click
import keras
import numpy as np
from keras import layers, ops

import keras_parallax as kp  # kp: the plugin

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import clicks  # The lines of the logs: `examples/clicks.py`.


@keras.saving.register_keras_serializable('examples')
class DotProducts(layers.Layer):
    """The dot product of each pair of vectors: of [batch, n, dim], [batch, n * (n - 1) / 2]."""

    def call(self, vectors):
        count = vectors.shape[1]
        products = ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1)))
        pairs = [one * count + other for one, other in itertools.combinations(range(count), 2)]
        return ops.take(ops.reshape(products, (-1, count * count)), pairs, axis=1)


def build_model(rows, dim=16, hidden=(128, 64)):
    """Builds DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019), whose output is the probability of a click.

    Args:
        rows: Number of rows of the table.
        dim: Width of a row.
        hidden: Widths of the hidden layers.
    """
    numbers = keras.Input((clicks.NUMBERS,), name='numbers')
    categories = keras.Input((clicks.CATEGORIES,), dtype='int32', name='categories')
    vectors = layers.Embedding(rows, dim, name='vectors')(categories)

    features = layers.Dense(hidden[0], activation='relu')(numbers)
    features = layers.Dense(dim, activation='relu')(features)
    together = layers.Concatenate(axis=1)([layers.Reshape((1, dim))(features), vectors])
    features = layers.Concatenate()([features, DotProducts()(together)])
    for width in hidden:
        features = layers.Dense(width, activation='relu')(features)
    return keras.Model([numbers, categories], layers.Dense(1, activation='sigmoid')(features))


@click.command()
@click.option('--data', metavar='DIR', help="Folder with Criteo's files. Default: made lines.")
@click.option('--held-out-days', default=2, help='Number of days, the last ones, to judge by.')
@click.option('--max-train', default=100000, help='Upper limit for the lines to train on.')
@click.option('--max-held-out', default=20000, help='Upper limit for the lines to judge by.')
@click.option('--max-values', default=20000, help='Rows of a category.')
@click.option('--epochs', default=1, help='Passes over the lines.')
@click.option('--batch-size', default=256, help='Lines per batch on each worker.')
@click.option('--dim', default=16, help='Width of a row.')
@click.option('--learning-rate', default=0.02, help='Learning rate of Adagrad.')
@click.option('--export', metavar='DIR', help='Folder to make for the model. Default: temporary.')
@click.option('--seed', default=1, help='Seed of the start values.')
def main(
    data, held_out_days, max_train, max_held_out, max_values, epochs, batch_size, dim,
    learning_rate, export, seed,
):  # fmt: skip
    """Trains DLRM, judges it by held-out days, exports it, and scores three lines."""
    most, rows = (max_train, max_held_out), clicks.table_rows(max_values)
    if data is None:
        train, held_out = clicks.make_days(held_out_days + 5, held_out_days, most)
    else:
        train, held_out = clicks.read_days(data, held_out_days, most)
    numbers, categories, labels = clicks.encode(train, rows)
    judged = clicks.encode(held_out, rows)

    keras.utils.set_random_seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: shards the tables made here.
        model = build_model(sum(rows), dim)
        model.compile(
            # Adagrad of Keras starts with 0.1, which makes the first steps of a table tiny.
            keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=1e-4),
            'binary_crossentropy',
            metrics=[keras.metrics.AUC(name='auc')],  # kp: of the lines of all workers.
        )
    chief = strategy.is_chief  # kp: one worker prints.
    if chief:
        print(f'{len(labels):,} lines of {len(train)} days, {labels.mean():.1%} of them clicked.\n')

    shares = kp.data.shard(judged)  # kp: this worker's share of the held-out lines.
    model.fit(
        **kp.data.arrays([numbers, categories], labels),  # kp: this worker's share.
        validation_data=(list(shares[:2]), shares[2]),
        batch_size=batch_size,
        epochs=epochs,
        verbose=2 if chief else 0,
    )

    if chief:
        print()
        strategy.summary(model)  # kp: where each variable is, why, and what a step sends.
    with tempfile.TemporaryDirectory() as folder:
        path = export or os.path.join(folder, 'clicks')
        model.export(path, verbose=False)  # kp: rank 0 writes; what it writes needs no kp.
        if chief:
            score(path, *(part[:3] for part in judged))


def score(path, numbers, categories, labels):
    """Prints what an exported model says of lines, by TensorFlow alone."""
    import tensorflow as tf

    exported = tf.saved_model.load(path)
    likely = exported.serve([tf.constant(numbers), tf.constant(categories)])
    print('\nOf three held-out lines, plain TensorFlow says of the exported model:')
    for probability, label in zip(np.ravel(likely), np.ravel(labels)):
        print(f'  {probability:.2%} likely, and {"clicked" if label else "not clicked"}')


if __name__ == '__main__':
    main()
