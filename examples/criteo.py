# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether an advertisement is clicked, by DeepFM or DLRM, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/criteo.py

This is a plain Keras script but for the lines marked ``# kp:``. A table has a row for
each value of 26 categories, of which a batch has few: it is sparse. All else is dense.
Nobody numbers the values: a table gives each a row when it is met, and takes it away
when there are too many. With ``--static`` they are numbered beforehand.
"""

import functools
import itertools
import os
import tempfile

import click
import clicks
import numpy as np
from graphs import keras, tf

import keras_parallax as kp  # kp: the plugin


class FactorizationMachine(keras.layers.Layer):
    """The sum of the dot products of all pairs of vectors: of [batch, n, dim], [batch, 1]."""

    def call(self, vectors):
        square_of_sum = tf.square(tf.reduce_sum(vectors, 1))
        sum_of_squares = tf.reduce_sum(tf.square(vectors), 1)
        return tf.reduce_sum(square_of_sum - sum_of_squares, 1, True) / 2

    def compute_output_shape(self, input_shape):
        return input_shape[0], 1


class DotProducts(keras.layers.Layer):
    """The dot product of each pair of vectors: of [batch, n, dim], [batch, n * (n - 1) / 2]."""

    def call(self, vectors):
        count = vectors.shape.as_list()[1]
        products = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
        pairs = [first * count + second for first, second in _pairs(count)]
        return tf.gather(products, pairs, axis=1)

    def compute_output_shape(self, input_shape):
        return input_shape[0], len(_pairs(input_shape[1]))


def _pairs(count):
    return list(itertools.combinations(range(count), 2))


def static_table(rows):
    """Returns a function that makes a table of so many numbered values: of width and name."""
    return lambda dim, name: keras.layers.Embedding(rows, dim, name=name)


def dynamic_table(capacity, min_count):
    """Returns a function that makes a table of values that nobody has numbered.

    Args:
        capacity: How many of them have a row at a time.
        min_count: How many batches must have had a value.
    """
    admission = kp.Admission(min_count) if min_count > 1 else None  # kp: seldom ones share a row.
    return lambda dim, name: kp.layers.DynamicEmbedding(  # kp: finds rows by ids of 64 bits.
        dim, capacity, admission=admission, eviction=kp.Eviction('lru'), name=name
    )


def build_model(name, make_table, dim=16, hidden=(128, 64)):
    """Builds a model that says how likely a click is.

    Args:
        name: ``'deepfm'`` (Guo et al., "DeepFM: A Factorization-Machine based Neural Network for
            CTR Prediction", 2017) or ``'dlrm'`` (Naumov et al., "Deep Learning Recommendation
            Model for Personalization and Recommendation Systems", 2019).
        make_table: Makes a table of the values of all categories.
        dim: Width of a value's vector.
        hidden: Widths of the hidden layers.
    """
    layers = keras.layers
    numbers = layers.Input((clicks.NUMBERS,), name='numbers')
    categories = layers.Input((clicks.CATEGORIES,), dtype='int64', name='categories')
    vectors = make_table(dim, 'vectors')(categories)

    def through(*widths):
        return lambda features: functools.reduce(
            lambda found, width: layers.Dense(width, activation='relu')(found), widths, features
        )

    if name == 'deepfm':
        features = layers.concatenate([layers.Flatten()(vectors), numbers])
        weights = layers.Flatten()(make_table(1, 'weights')(categories))
        terms = [
            layers.Dense(1)(through(*hidden)(features)),
            layers.Dense(1)(layers.concatenate([weights, numbers])),
            FactorizationMachine()(vectors),
        ]
    else:
        of_numbers = through(hidden[0], dim)(numbers)
        as_vector = layers.Reshape((1, dim))(of_numbers)
        together = DotProducts()(layers.concatenate([as_vector, vectors], axis=1))
        terms = [layers.Dense(1)(through(*hidden)(layers.concatenate([of_numbers, together])))]
    total = layers.add(terms) if len(terms) > 1 else terms[0]
    return keras.models.Model(
        [numbers, categories], layers.Activation('sigmoid', name='click')(total)
    )


def score(path, numbers, categories):
    """Returns what an exported model says of lines, by TensorFlow alone.

    Args:
        path: Folder of the SavedModel.
        numbers: As `clicks.encode` returns them.
        categories: The same.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        signature = tf.saved_model.loader.load(session, tags, path).signature_def[
            tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        ]
        fed = {
            signature.inputs[name].name: values
            for name, values in (('numbers', numbers), ('categories', categories))
        }
        (output,) = signature.outputs.values()
        return session.run(output.name, fed)[:, 0]


def describe(auc, entropy):
    """Returns how good predictions are, as text."""
    return f'AUC {auc:.4f}, normalized entropy {entropy:.4f}'


def describe_epoch(logs):
    """Returns how the model does on held-out days, as text."""
    return 'held-out ' + describe(logs['val_auc'], logs['val_normalized_entropy'])


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help="Folder with Criteo's files, day_0, day_1 ... (also .gz) or train.txt. "
    'Default: lines that are made here.',
)
@_option('--model', 'name', type=click.Choice(['deepfm', 'dlrm']), default='deepfm', help='Which.')
@_option('--held-out-days', type=_COUNT, default=2, help='How many days to judge by, the last.')
@_option('--max-train', type=_COUNT, default=100000, help='Upper limit for lines to train on.')
@_option('--max-held-out', type=_COUNT, default=20000, help='The same of those to judge by.')
@_option(
    '--dynamic/--static',
    default=True,
    help='Find rows by ids of 64 bits, or number the values.',
)
@_option('--capacity', type=_COUNT, default=200000, help='Rows, if they are found by ids.')
@_option('--min-count', type=_COUNT, default=1, help='So many batches an id needs to get a row.')
@_option('--max-values', type=_COUNT, default=20000, help='Rows of a category, if numbered.')
@_option('--epochs', type=_COUNT, default=1, help='Passes over the lines.')
@_option('--batch-size', type=_COUNT, default=256, help='Lines per batch on each worker.')
@_option('--dim', type=_COUNT, default=16, help="Width of a value's vector.")
@_option('--learning-rate', type=float, default=0.2, help="Adagrad's.")
@_option('--export', metavar='DIR', help='Folder to make for the model. Default: a temporary one.')
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data,
    name,
    held_out_days,
    max_train,
    max_held_out,
    dynamic,
    capacity,
    min_count,
    max_values,
    epochs,
    batch_size,
    dim,
    learning_rate,
    export,
    seed,
):
    """Trains a model of clicks, judges it by held-out days, exports it, and scores lines."""
    most, rows = (max_train, max_held_out), None if dynamic else clicks.table_rows(max_values)
    try:
        if data is None:
            train, held_out = clicks.make_days(held_out_days + 5, held_out_days, most)
        else:
            train, held_out = clicks.read_days(data, held_out_days, most)
        numbers, categories, labels = clicks.encode(train, rows)
        judged = [clicks.encode([day], rows) for day in held_out]
    except clicks.ClicksError as error:
        raise click.ClickException(str(error)) from None

    np.random.seed(seed)
    tf.set_random_seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: places the variables made here.
        table = dynamic_table(capacity, min_count) if dynamic else static_table(sum(rows))
        model = build_model(name, table, dim)
        model.compile(
            # Keras's own begins with sums of 0: the first step of a weight is as long as the rate,
            # however small its gradient.
            tf.train.AdagradOptimizer(learning_rate),
            'binary_crossentropy',
            # kp: of the lines of all workers; the mean of two workers' areas is none.
            metrics=[kp.metrics.AUC(), kp.metrics.NormalizedEntropy()],
        )
    if strategy.is_chief:  # kp: one worker speaks for all.
        print(
            f'{len(labels):,} lines of {len(train)} days, {labels.mean():.1%} of them clicked; ',
            end='',
        )
        print(f'{sum(len(day[2]) for day in judged):,} of {len(judged)} held-out days.')
        found = f'{capacity:,} rows of ids' if dynamic else f'{sum(rows):,} rows'
        print(f'{name}: {found} of {clicks.CATEGORIES} categories.\n')

    shares = [kp.data.shard(day) for day in judged]  # kp: this worker judges by its share.
    validated = [np.concatenate(parts) for parts in zip(*shares)]
    model.fit(
        **kp.data.arrays([numbers, categories], labels),  # kp: this worker's share.
        validation_data=(validated[:2], validated[2]),
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=[
            kp.callbacks.PlanReport(),  # kp: where each variable is, and what a step saves.
            kp.callbacks.ProgressBar('lines', describe=describe_epoch),  # kp: one for all.
        ],
    )

    for day, share in zip(held_out, shares):
        # kp: every worker calls it, and gets the values of the whole day.
        found = model.evaluate(list(share[:2]), share[2], batch_size=batch_size, verbose=0)
        if strategy.is_chief:
            print(f'{day.name}: {describe(*found[1:])}')

    if dynamic and strategy.is_chief:
        counts = model.get_layer('vectors').row_counts()  # kp: of all workers.
        print('{rows_used:,} ids have rows, {rows_evicted:,} have lost theirs.'.format(**counts))
    if strategy.is_chief:  # kp: reads rows of other workers, which wait at their end.
        with tempfile.TemporaryDirectory() as folder:
            path = export or os.path.join(folder, 'clicks')
            kp.export_saved_model(model, path)
            scores = score(path, *(part[:3] for part in judged[0][:2]))
        print(
            f'\nOf three lines of {held_out[0].name}, plain TensorFlow says of the exported model:'
        )
        for likely, label in zip(scores, judged[0][2]):
            print(f'  {likely:.2%} likely, and {"clicked" if label else "not clicked"}')


if __name__ == '__main__':
    main()
