# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The benchmarks' models, in Keras, and their batches.

A model takes the layer classes of its tables as arguments, because TensorFlow's parameter servers
want partitioned variables where Keras makes whole ones. All else is the same for every system.
"""

import functools
from typing import Any, Callable, NamedTuple

import numpy as np

from works import data
from works.stack import K, keras, tf


def start_values(seed):
    """The initializer of every table: the same values for the same seed and shape."""
    return keras.initializers.RandomUniform(-0.05, 0.05, seed=seed)


class Table(keras.layers.Layer):
    """A table of weights that is looked up by ids in `[0, rows)`: Keras's own `Embedding`."""

    def __new__(cls, rows, width, seed, name):
        return keras.layers.Embedding(
            rows, width, embeddings_initializer=start_values(seed), name=name
        )


def noise_of(labels, count, vocabulary, seed):
    """Noise words for labels `[n, 1]`: other ones at each step, the same ones for a seed."""
    return tf.nn.log_uniform_candidate_sampler(
        labels, 1, count, unique=True, range_max=vocabulary, seed=seed
    )


class SampledSoftmax(keras.layers.Layer):
    """Sampled softmax loss of each word: of `[hidden, next_words]`, `[batch, steps]`.

    Args:
        vocabulary: number of words.
        noise: number of noise words a batch, drawn without repeats.
        seed: of the table's start values.
        noise_seed: of the noise words; another on each worker, the same in every system.
        **kwargs: as for any Keras layer.
    """

    #: Which row is in which part, where weights are in parts.
    partition_strategy = 'mod'

    def __init__(self, vocabulary, noise, seed, noise_seed, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary, self.noise = vocabulary, noise
        self.seed, self.noise_seed = seed, noise_seed

    def build(self, input_shape):
        self.kernel, self.bias = self.tables(input_shape[0][-1])
        super().build(input_shape)

    def tables(self, width):
        """The weights: `[vocabulary, width]` and `[vocabulary]`, or lists of their parts."""
        return (
            self.add_weight(
                name='kernel',
                shape=(self.vocabulary, width),
                initializer=start_values(self.seed),
            ),
            self.add_weight(name='bias', shape=(self.vocabulary,), initializer='zeros'),
        )

    def draw(self, labels):
        """The noise words for labels `[n, 1]`, as TensorFlow's samplers return them."""
        return noise_of(labels, self.noise, self.vocabulary, self.noise_seed)

    def call(self, inputs):
        hidden, words = inputs
        labels = tf.cast(tf.reshape(words, [-1, 1]), tf.int64)
        losses = tf.nn.sampled_softmax_loss(
            self.kernel,
            self.bias,
            labels,
            tf.reshape(hidden, [-1, K.int_shape(hidden)[-1]]),
            num_sampled=self.noise,
            num_classes=self.vocabulary,
            sampled_values=self.draw(labels),
            partition_strategy=self.partition_strategy,
        )
        return tf.reshape(losses, tf.shape(words))

    def compute_output_shape(self, input_shape):
        return input_shape[1]


class Work(NamedTuple):
    """Something to train.

    Attributes:
        name: in `WORKS`.
        build: function `(table, softmax, rank) -> (model, loss)` of the two layer classes; `loss`
            is a function of targets and outputs, as Keras takes it.
        batches: function `(rank, count) -> iterator` of pairs of a list of inputs and a target.
        optimizer: `'adagrad'` or `'sgd'`.
        rate: its learning rate.
        lookups: function `(rank, count) -> iterator` of a step's lookups, a list of pairs of a
            table's name and the ids that the worker's batch looks up in it.
        tables: dict from names of tables to their pair of rows and width.
        unit: what is counted, for instance `'words'`.
        units: how many of them in a worker's batch.
        options: what it was made with, plain data.
    """

    name: str
    build: Callable[..., Any]
    batches: Callable[..., Any]
    lookups: Callable[..., Any]
    tables: dict
    optimizer: str
    rate: float
    unit: str
    units: int
    options: dict


def mean_output(targets, outputs):
    """The mean of what a model returns, for a model that returns losses."""
    return K.mean(outputs, axis=-1)


def language_model(
    vocabulary=100000, width=256, state=168, batch=128, length=20, noise=512, words='zipf'
):
    """Embedding, LSTM, projection, sampled softmax.

    `words` is `'zipf'`, `'corpus'` (the demo's text), `'held out'` (what it has held out) or
    `'distinct'` (no word twice in a batch).
    By default the dense weights are as small beside a host's sparse gradients, before those are
    deduplicated, as in Parallax's LM on six cards a machine: 1 to 4.4.
    """

    def build(table, softmax, rank):
        inputs = [keras.layers.Input((length,), dtype='int32') for _ in range(2)]
        hidden = table(vocabulary, width, seed=11, name='words')(inputs[0])
        # One large matrix product a step suits a CPU better than four small ones.
        hidden = keras.layers.LSTM(
            state,
            return_sequences=True,
            implementation=2,
            kernel_initializer=keras.initializers.glorot_uniform(12),
            recurrent_initializer=keras.initializers.glorot_uniform(13),
        )(hidden)
        hidden = keras.layers.Dense(
            width, kernel_initializer=keras.initializers.glorot_uniform(14)
        )(hidden)
        losses = softmax(vocabulary, noise, seed=15, noise_seed=100 + rank, name='softmax')(
            [hidden, inputs[1]]
        )
        return keras.models.Model(inputs, losses), mean_output

    def batches(rank, count):
        random = np.random.RandomState(1000 + rank)
        draw = {
            'zipf': data.generated_words,
            'corpus': data.corpus_words,
            'held out': functools.partial(data.corpus_words, held_out=True),
        }
        window = draw[words](vocabulary) if words in draw else distinct_words(vocabulary)
        for _ in range(count):
            ids = window(random, batch, length + 1)
            yield [ids[:, :-1], ids[:, 1:]], np.zeros((batch, length), np.float32)

    def lookups(rank, count):
        with tf.Graph().as_default(), tf.Session() as session:
            labels = tf.placeholder(tf.int64, [None, 1])
            noise_words = noise_of(labels, noise, vocabulary, 100 + rank)[0]
            for (ids, following), _ in batches(rank, count):
                drawn = session.run(noise_words, {labels: following.reshape([-1, 1])})
                read = np.concatenate([following.ravel(), drawn])
                yield [('words', ids), ('kernel', read), ('bias', read)]

    tables = {'words': (vocabulary, width), 'kernel': (vocabulary, width), 'bias': (vocabulary, 1)}
    options = dict(
        vocabulary=vocabulary, width=width, state=state, batch=batch, length=length, noise=noise,
        words=words,
    )  # fmt: skip
    return Work(
        'lm', build, batches, lookups, tables, 'adagrad', 0.01, 'words', batch * length, options
    )


def distinct_words(vocabulary):
    """A function `(random, batch, length) -> ids` that has no word twice in a batch's inputs.

    With Parallax's batch of 128 and 15,360 words, a length of 120 touches the whole table.
    """

    def draw(random, batch, length):
        ids = random.choice(vocabulary, (batch, length - 1), replace=False).astype(np.int32)
        return np.concatenate([ids, ids[:, :1]], 1)

    return draw


def alpha_model(length=30):
    """The model of Parallax's sweep over α: 15,360 words, LSTM of 128, sentences of any length."""
    work = language_model(15360, 128, 128, 128, length, 512, 'distinct')
    return work._replace(name='alpha', options=dict(length=length))


def click_model(kind='deepfm', width=64, batch=4096, path=None, rows=None):
    """Wide & Deep or DeepFM on Criteo's columns: 26 tables of `width`, and 26 of width 1.

    Widths, batch, optimizer and rate are those of OpenEmbedding's published benchmark, which takes
    Adagrad with the default rate of `tf.keras`. `path` is a file in Criteo's layout; by default
    every worker generates samples of its own. `rows` is the number of rows of every table; by
    default each has as many as its column's values ask for.
    """
    if kind not in ('deepfm', 'wide_deep'):
        raise ValueError("kind must be 'deepfm' or 'wide_deep', but %r was given." % (kind,))
    options = dict(kind=kind, width=width, batch=batch, path=path)
    if rows is not None:
        options['rows'] = rows
    rows = [rows] * data.CATEGORIES if rows else data.column_rows()

    def build(table, softmax, rank):
        integers = keras.layers.Input((data.INTEGERS,))
        categories = keras.layers.Input((data.CATEGORIES,), dtype='int32')
        columns = [
            keras.layers.Lambda(lambda ids, c=column: ids[:, c : c + 1])(categories)
            for column in range(data.CATEGORIES)
        ]
        vectors = [
            table(count, width, seed=100 + number, name='deep_%d' % number)(column)
            for number, (count, column) in enumerate(zip(rows, columns))
        ]
        weights = [
            table(count, 1, seed=200 + number, name='wide_%d' % number)(column)
            for number, (count, column) in enumerate(zip(rows, columns))
        ]

        def dense(units, seed, activation=None):
            return keras.layers.Dense(
                units,
                activation=activation,
                kernel_initializer=keras.initializers.glorot_uniform(seed),
            )

        together = keras.layers.concatenate(vectors, axis=1)  # [batch, columns, width]
        hidden = keras.layers.concatenate([keras.layers.Flatten()(together), integers])
        hidden = dense(256, 21, 'relu')(hidden)
        hidden = dense(128, 22, 'relu')(hidden)
        first_order = keras.layers.Flatten()(keras.layers.add(weights))
        terms = [dense(1, 23)(hidden), first_order, dense(1, 24)(integers)]
        if kind == 'deepfm':
            terms.append(keras.layers.Lambda(factorization_machine)(together))
        output = keras.layers.Activation('sigmoid')(keras.layers.add(terms))
        return keras.models.Model([integers, categories], output), (
            keras.losses.binary_crossentropy
        )

    def batches(rank, count):
        if not path:
            made = data.generated_batches(count, batch, 2000 + rank, rows)
            for labels, integers, categories in made:
                yield [integers, categories], labels
            return
        random = np.random.RandomState(2000 + rank)
        labels, integers, categories = data.read_criteo(path, rows)
        for _ in range(count):
            chosen = random.randint(0, len(labels), batch)
            yield [integers[chosen], categories[chosen]], labels[chosen]

    def lookups(rank, count):
        for (_, categories), _ in batches(rank, count):
            ids = list(enumerate(categories.T))
            yield [('deep_%d' % n, column) for n, column in ids] + [
                ('wide_%d' % n, column) for n, column in ids
            ]

    tables = {'deep_%d' % number: (count, width) for number, count in enumerate(rows)}
    tables.update({'wide_%d' % number: (count, 1) for number, count in enumerate(rows)})
    return Work('ctr', build, batches, lookups, tables, 'adagrad', 0.001, 'samples', batch, options)


def factorization_machine(vectors):
    """The second-order term of `[batch, columns, width]` vectors, `[batch, 1]`."""
    square_of_sum = K.square(K.sum(vectors, 1))
    sum_of_squares = K.sum(K.square(vectors), 1)
    return 0.5 * K.sum(square_of_sum - sum_of_squares, 1, keepdims=True)


def residual_model(batch=16, side=32, classes=10, blocks=1, filters=16):
    """A small ResNet (He et al. 2016, as for CIFAR): three stages of `blocks` blocks."""
    seeds = iter(range(300, 400))

    def convolution(count, size, stride=1):
        return keras.layers.Conv2D(
            count,
            size,
            strides=stride,
            padding='same',
            use_bias=False,
            kernel_initializer=keras.initializers.he_normal(next(seeds)),
        )

    def build(table, softmax, rank):
        K.set_learning_phase(1)
        image = keras.layers.Input((side, side, 3))
        x = convolution(filters, 3)(image)
        for stage in range(3):
            for block in range(blocks):
                count, stride = filters * 2**stage, 2 if stage and not block else 1
                short = convolution(count, 1, stride)(x) if stride > 1 else x
                y = keras.layers.BatchNormalization()(convolution(count, 3, stride)(x))
                y = convolution(count, 3)(keras.layers.Activation('relu')(y))
                x = keras.layers.add([short, keras.layers.BatchNormalization()(y)])
                x = keras.layers.Activation('relu')(x)
        x = keras.layers.GlobalAveragePooling2D()(x)
        output = keras.layers.Dense(
            classes,
            activation='softmax',
            kernel_initializer=keras.initializers.glorot_uniform(next(seeds)),
        )(x)
        return keras.models.Model(image, output), keras.losses.categorical_crossentropy

    def batches(rank, count):
        patterns = np.random.RandomState(7).normal(size=(classes, side, side, 3))
        random = np.random.RandomState(3000 + rank)
        for _ in range(count):
            labels = random.randint(0, classes, batch)
            images = 0.3 * patterns[labels] + random.normal(size=(batch, side, side, 3))
            yield [images.astype(np.float32)], np.eye(classes, dtype=np.float32)[labels]

    def lookups(rank, count):
        return ([] for _ in range(count))

    options = dict(batch=batch, side=side, classes=classes, blocks=blocks, filters=filters)
    return Work('dense', build, batches, lookups, {}, 'sgd', 0.05, 'images', batch, options)


#: Name of a work to the function that makes it.
WORKS = {
    'lm': language_model,
    'alpha': alpha_model,
    'ctr': click_model,
    'dense': residual_model,
}
