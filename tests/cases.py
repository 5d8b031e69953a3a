# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models, optimizers and batches on which ours is compared with plain Keras.

A case is built by the plain reference in one process and by every worker of a parallel job alike:
both import this module, so a case is a function of the Keras package (`keras` or `tf.keras`) only.
"""

import contextlib
import functools
import importlib
import os
from typing import Any, Callable, Dict, NamedTuple

import numpy as np
import own_optimizers
import rested_rows
import tensorflow
from frameworks import TF1_15, TF2, keras_module, tf  # noqa: F401 - for others
from rested_rows import name_of, of_ours

ROWS, WIDTH, LENGTH = 23, 4, 5


class Case(NamedTuple):
    """One comparison.

    Attributes:
        model: function `keras -> model`, not compiled.
        optimizer: function `keras -> optimizer`.
        batch: function `(random_state, size) -> (x, y)` or `(x, y, sample_weight)`.
        loss: as `model.compile` takes it.
        compiled: further arguments of `model.compile`, pairs of a name and a value.
        wrap: further arguments of `ParallaxOptimizer`; a compression by its name, because cases
            are also built where Horovod is not installed; `tables` as `optimizer`.
        strategy: arguments of `ParallaxStrategy`.
        tolerance: greatest difference of a weight, relative to the largest entry it had at the
            start or has at the end, and of a loss, relative to itself.
        samples: number of samples of a joined batch, which workers share equally; 0: one for each.
        moves: architectures that the step follows in turn, each for two steps, after two by that
            of the strategy.
    """

    model: Callable[[Any], Any]
    optimizer: Callable[[Any], Any] = lambda keras: keras.optimizers.Adagrad(lr=0.1)
    batch: Callable[..., Any] = None
    loss: Any = 'mse'
    compiled: tuple = ()
    wrap: Dict[str, Any] = {}
    strategy: Dict[str, Any] = {}
    tolerance: float = 1e-5
    samples: int = 12
    moves: tuple = ()

    @property
    def accumulated(self):
        """In how many batches a worker has its part of a joined batch."""
        return self.wrap.get('accumulate_steps', 1)

    @property
    def steps(self):
        """The number of steps to compare; a plan that changes does so after every tenth."""
        if self.moves:
            return 2 + 2 * len(self.moves)
        changes = any("'%s'" % word in str(self.strategy) for word in ('auto', 'search'))
        return 20 if changes else 10


def skewed_ids(random, shape, rows=ROWS):
    """Ids with many repeats, within a sample and between samples, small ones frequent."""
    return (random.zipf(1.4, shape) - 1) % rows


def ids_and_targets(random, size):
    """Ids `[size, LENGTH]` and a number for each sample."""
    return skewed_ids(random, (size, LENGTH)), random.uniform(-1, 1, (size, 1))


def not_always_finite(random, size):
    """The same, but the first sample of some batches, which is rank 0's, has no finite gradient."""
    ids, targets = ids_and_targets(random, size)
    if random.uniform() < 0.3:
        targets[0] = np.inf
    return ids, targets


def embed_and_sum(**arguments):
    """A model of one embedding and one dense layer."""

    def model(keras):
        made = {
            name: value(keras) if callable(value) else value for name, value in arguments.items()
        }
        return keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH, name='table', **made),
                keras.layers.Flatten(),
                keras.layers.Dense(3, activation='tanh', name='hidden'),
                keras.layers.Dense(1, name='out'),
            ]
        )

    return model


@contextlib.contextmanager
def half_precision(keras):
    """While open, layers are made that compute in half precision, as Keras 2.15 has them do."""
    layers = importlib.import_module(keras.__name__ + '.api._v1.keras.layers')
    layers.enable_v2_dtype_behavior()
    keras.mixed_precision.set_global_policy('mixed_float16')
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(None)
        layers.disable_v2_dtype_behavior()


def half_computed(keras):
    """A model that computes in half precision, but for its last layer."""
    with half_precision(keras):
        return keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH, name='table'),
                keras.layers.Flatten(),
                keras.layers.Dense(3, activation='tanh', name='hidden', kernel_regularizer='l2'),
                keras.layers.Dense(1, name='out', dtype='float32'),
            ]
        )


def activity_regularized(keras):
    """Penalties on outputs, which Keras sums over the batch or divides by its size."""
    penalty = keras.regularizers.l2
    return keras.models.Sequential(
        [
            keras.layers.Embedding(
                ROWS, WIDTH, input_length=LENGTH, activity_regularizer=penalty(0.01), name='table'
            ),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activity_regularizer=penalty(0.02), name='hidden'),
            keras.layers.Dense(1, name='out'),
        ]
    )


def summed_terms(keras):
    """Two outputs, penalties of the script's own, and terms that the model adds.

    Some of them are sums over the batch, some means, and one does not depend on the batch.
    """
    ids = keras.layers.Input((LENGTH,))
    table = keras.layers.Embedding(
        ROWS, WIDTH, name='table', embeddings_regularizer=keras.regularizers.l2(0.01)
    )
    flat = keras.layers.Flatten()(table(ids))
    hidden = keras.layers.Dense(3, name='hidden', activity_regularizer=sum_of_squares)(flat)
    outs = [keras.layers.Dense(1, name=name)(hidden) for name in ('first', 'second')]
    model = keras.models.Model(ids, outs)
    inputs = {} if TF2 or not keras.__name__.startswith('tensorflow') else {'inputs': [ids]}
    model.add_loss(0.03 * tf.reduce_sum(tf.square(flat)), **inputs)
    model.add_loss(0.5 * tf.reduce_mean(tf.square(hidden)), **inputs)
    return model


def sum_of_squares(outputs):
    return 0.02 * tf.reduce_sum(tf.square(outputs))


def summed_terms_batch(random, size):
    ids, targets = ids_and_targets(random, size)
    return ids, [targets, random.uniform(-1, 1, (size, 1))]


def squares(targets, outputs):
    return tf.square(targets - outputs)


def squares_summed(targets, outputs):
    """A loss that is one number for a batch: a sum."""
    return tf.reduce_sum(tf.square(targets - outputs))


def shared(keras):
    """Two towers on one embedding, fed by two inputs."""
    table = keras.layers.Embedding(ROWS, WIDTH, name='table')
    left, right = keras.layers.Input((LENGTH,)), keras.layers.Input((LENGTH,))
    towers = [keras.layers.Flatten()(table(ids)) for ids in (left, right)]
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(towers))
    return keras.models.Model([left, right], out)


def shared_batch(random, size):
    ids, targets = ids_and_targets(random, size)
    return [ids, skewed_ids(random, (size, LENGTH))], targets


def sub_models(keras):
    """The same, with each tower a model of its own, which is a layer of the whole model."""
    table, inputs, towers = keras.layers.Embedding(ROWS, WIDTH, name='table'), [], []
    for _ in range(2):
        ids = keras.layers.Input((LENGTH,))
        tower = keras.models.Model(ids, keras.layers.Flatten()(table(ids)))
        inputs.append(keras.layers.Input((LENGTH,)))
        towers.append(tower(inputs[-1]))
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(towers))
    return keras.models.Model(inputs, out)


SUB_MODELS = Case(sub_models, batch=shared_batch)


def half_still(keras):
    """Two towers on one embedding, of which only the first trains it."""
    table = keras.layers.Embedding(ROWS, WIDTH, name='table')
    left, right = keras.layers.Input((LENGTH,)), keras.layers.Input((LENGTH,))
    still = keras.layers.Lambda(tf.stop_gradient, output_shape=(LENGTH, WIDTH))(table(right))
    towers = keras.layers.Flatten()(table(left)), keras.layers.Flatten()(still)
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(list(towers)))
    return keras.models.Model([left, right], out)


def looked_up_twice(keras):
    """One input, looked up twice: two lookups that the same placeholder feeds."""
    table = keras.layers.Embedding(ROWS, WIDTH, name='table')
    ids = keras.layers.Input((LENGTH,))
    reverse = keras.layers.Lambda(lambda x: (ROWS - 1) - x, output_shape=(LENGTH,))
    out = keras.layers.add([table(ids), table(reverse(ids))])
    out = keras.layers.Dense(1, name='out')(keras.layers.Flatten()(out))
    return keras.models.Model(ids, out)


def masked(keras):
    """A masked embedding under a recurrent layer."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, WIDTH, mask_zero=True, input_length=LENGTH, name='table'),
            keras.layers.LSTM(3, name='recurrent'),
            keras.layers.Dense(1, name='out'),
        ]
    )


def stateful(keras):
    """Recurrent layers that go on from the states that their samples had in the batch before."""
    samples = 12 // int(os.environ.get('HOROVOD_SIZE', 1))
    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, WIDTH, batch_input_shape=(samples, LENGTH), name='table'),
            keras.layers.LSTM(4, stateful=True, return_sequences=True, name='first'),
            keras.layers.GRU(3, stateful=True, name='second'),
            keras.layers.Dense(1, name='out'),
        ]
    )


def masked_batch(random, size):
    ids = 1 + skewed_ids(random, (size, LENGTH), ROWS - 1)
    ids[:, 3:] = 0
    return ids, random.uniform(-1, 1, (size, 1))


def masked_loss(keras):
    """A mask that reaches the loss of a sequence, and a table with a penalty."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(
                ROWS,
                WIDTH,
                mask_zero=True,
                input_length=LENGTH,
                embeddings_regularizer=keras.regularizers.l2(0.01),
                name='table',
            ),
            keras.layers.LSTM(3, return_sequences=True, name='recurrent'),
            keras.layers.Dense(1, name='out'),
        ]
    )


def masked_loss_batch(random, size):
    """Samples whose first half has few words, in every third batch none; all have a target."""
    ids = 1 + skewed_ids(random, (size, LENGTH), ROWS - 1)
    ids[: size // 2, 1:] = 0
    if random.uniform() < 0.4:
        ids[: size // 2] = 0
    return ids, random.uniform(-1, 1, (size, LENGTH, 1))


def some_weights(random, shape):
    """Sample weights, most of which are zero in the first half, in every third batch all."""
    weights = random.uniform(0.5, 2, shape)
    few = random.uniform(0, 1, shape) < (0.8 if random.uniform() < 0.6 else 2)
    few[shape[0] // 2 :] = random.uniform(0, 1, few[shape[0] // 2 :].shape) < 0.1
    few[-1] = False
    weights[few] = 0
    return weights


def temporal_batch(random, size):
    ids, targets = masked_loss_batch(random, size)
    return ids, targets, some_weights(random, (size, LENGTH))


def masked_and_weighted_batch(random, size):
    ids, targets = masked_loss_batch(random, size)
    return ids, targets, some_weights(random, (size,))


def weighted_batch(random, size):
    ids, targets = ids_and_targets(random, size)
    return ids, targets, some_weights(random, (size,))


def mean_square(targets, found):
    """A loss of a user's that is one number for a batch."""
    return tf.reduce_mean(tf.square(found - tf.cast(targets, found.dtype)))


def masked_outputs(keras):
    """Two outputs, of which one has a mask, with a mask of its own each."""
    words, flags = keras.layers.Input((LENGTH,)), keras.layers.Input((LENGTH,))
    rows = keras.layers.Embedding(ROWS, WIDTH, mask_zero=True, name='table')(words)
    others = keras.layers.Embedding(ROWS, 2, name='others')(flags)
    tags = keras.layers.Dense(1, name='tags')(rows)
    out = keras.layers.Dense(1, name='out')(keras.layers.Flatten()(others))
    return keras.models.Model([words, flags], [tags, out])


def masked_outputs_batch(random, size):
    ids, targets, weights = temporal_batch(random, size)
    flags, others = ids_and_targets(random, size)
    return [ids, flags], [targets, others], [weights, some_weights(random, (size,))]


def layer_class(keras, call, weights, output_shape):
    """A custom layer class with weights `{name: shape}` and a `call(layer, inputs)`."""

    class Custom(keras.layers.Layer):
        def build(self, input_shape):
            for name, shape in weights.items():
                setattr(
                    self,
                    name,
                    self.add_weight(
                        name=name, shape=shape, initializer='glorot_uniform', trainable=True
                    ),
                )
            super().build(input_shape)

        def call(self, inputs):
            return call(self, inputs)

        def compute_output_shape(self, input_shape):
            return output_shape(input_shape)

    return Custom


def tied(keras):
    """An embedding whose table is also the matrix of the output."""
    layer = layer_class(
        keras,
        lambda self, ids: tf.matmul(
            tf.reduce_mean(tf.gather(self.kernel, tf.cast(ids, tf.int32)), 1),
            tf.convert_to_tensor(self.kernel),
            transpose_b=True,
        ),
        {'kernel': (ROWS, WIDTH)},
        lambda shape: (shape[0], ROWS),
    )
    ids = keras.layers.Input((LENGTH,))
    out = keras.layers.Dense(1, name='out')(layer(name='tied')(ids))
    return keras.models.Model(ids, out)


def gathered(keras):
    """A custom layer that looks rows up with `tf.gather`."""
    layer = layer_class(
        keras,
        lambda self, ids: tf.gather(self.rows, tf.cast(ids, tf.int64)),
        {'rows': (ROWS, WIDTH)},
        lambda shape: (shape[0], LENGTH, WIDTH),
    )
    ids = keras.layers.Input((LENGTH,))
    out = keras.layers.Flatten()(layer(name='custom')(ids))
    return keras.models.Model(ids, keras.layers.Dense(1, name='out')(out))


def candidates(function):
    """A word model whose output is a candidate-sampling loss of TensorFlow.

    The candidates are fixed: each worker would draw its own, and so compute another loss than one
    process that draws once for the joined batch.
    """

    def model(keras):
        def call(self, inputs):
            hidden, labels = inputs
            labels = tf.cast(labels, tf.int64)
            fixed = tf.constant([0, 3, 7, 3 * ROWS // 4], tf.int64)
            return tf.reshape(
                function(
                    weights=self.kernel,
                    biases=self.bias,
                    labels=labels,
                    inputs=hidden,
                    num_sampled=4,
                    num_classes=ROWS,
                    sampled_values=(fixed, tf.ones_like(labels, tf.float32), tf.ones([4])),
                    remove_accidental_hits=False,
                ),
                [-1, 1],
            )

        layer = layer_class(
            keras,
            call,
            {'kernel': (ROWS, 3), 'bias': (ROWS, 1)},
            lambda shapes: (shapes[0][0], 1),
        )

        # TensorFlow takes a vector of biases; glorot_uniform wants a matrix.
        class WithVector(layer):
            def build(self, input_shape):
                self.kernel = self.add_weight(
                    name='kernel', shape=(ROWS, 3), initializer='glorot_uniform', trainable=True
                )
                self.bias = self.add_weight(
                    name='bias', shape=(ROWS,), initializer='zeros', trainable=True
                )
                self.built = True

        ids, labels = keras.layers.Input((LENGTH,)), keras.layers.Input((1,))
        hidden = keras.layers.Embedding(ROWS, WIDTH, name='table')(ids)
        hidden = keras.layers.Dense(3, name='hidden')(keras.layers.Flatten()(hidden))
        return keras.models.Model([ids, labels], WithVector(name='softmax')([hidden, labels]))

    return model


def candidates_batch(random, size):
    ids, targets = ids_and_targets(random, size)
    return [ids, skewed_ids(random, (size, 1))], targets


def pass_through(targets, output):
    """A loss that is the model's own output."""
    del targets
    return output


def model_of_functions(keras, tables, call):
    """A model of one layer with tables and a `scale`, whose `call(layer, ids)` has functions."""
    weights = dict.fromkeys(tables, (ROWS, WIDTH))
    layer = layer_class(
        keras,
        lambda self, inputs: call(self, tensorflow.cast(inputs, 'int32')),
        dict(weights, scale=(1, WIDTH)),
        lambda shape: (shape[0], WIDTH),
    )
    inputs = keras.layers.Input((LENGTH,))
    looked = layer(name='looked')(inputs)
    return keras.models.Model(inputs, keras.layers.Dense(1, name='out')(looked))


def lookup_in_function(keras):
    """A table that one function of a layer looks up, whose sum another function makes."""

    def call(layer, ids):
        @tensorflow.function
        def rows_of(ids):
            tensorflow.debugging.assert_less(ids, ROWS)
            return tensorflow.gather(layer.table, ids)

        @tensorflow.function
        def summed(ids):
            return tensorflow.reduce_sum(tensorflow.tanh(rows_of(ids) * layer.scale), 1)

        return summed(ids)

    return model_of_functions(keras, ['table'], call)


def layers_in_function(keras):
    """Layers that a layer's function builds when it is called for the first time."""

    class Built(keras.layers.Layer):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.words = keras.layers.Embedding(ROWS, WIDTH, name='words')
            self.recurrent = keras.layers.SimpleRNN(WIDTH, name='recurrent')
            self.dense = keras.layers.Dense(WIDTH, name='dense')

        def compute_output_shape(self, input_shape):
            return (input_shape[0], WIDTH)

        @tensorflow.function
        def call(self, inputs):
            return self.recurrent(self.dense(self.words(inputs))) * self.words(inputs[:, 0])

    inputs = keras.layers.Input((LENGTH,))
    return keras.models.Model(inputs, keras.layers.Dense(1, name='out')(Built()(inputs)))


def loops_in_function(keras):
    """Tables that functions of a layer look up, one of them in a loop."""

    def call(layer, ids):
        @tensorflow.function
        def scaled(rows):
            for _ in tensorflow.range(2):
                rows = tensorflow.tanh(rows * layer.scale)
            return tensorflow.reduce_sum(rows, 1)

        @tensorflow.function
        def looked_up(ids):
            tensorflow.debugging.assert_less(ids, ROWS)
            return scaled(tensorflow.gather(layer.once, ids))

        @tensorflow.function
        def looked_up_in_a_loop(ids):
            found = tensorflow.zeros_like(ids[:, :1], 'float32')
            found = tensorflow.tile(found, [1, WIDTH])
            for column in tensorflow.transpose(ids):
                rows = tensorflow.nn.embedding_lookup(layer.by_column, column)
                if tensorflow.reduce_sum(layer.scale) > 0.0:
                    found += rows
                else:
                    found -= rows
            return found

        return looked_up(ids) + looked_up_in_a_loop(ids)

    return model_of_functions(keras, ['once', 'by_column'], call)


def wide_rows(keras):
    """A table whose gradients are sorted before they are summed (`compat/segment_sums.py`)."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, 128, input_length=LENGTH, name='table'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, name='out'),
        ]
    )


def in_function(keras):
    """A table below a layer that calls a `tf.function`, which reads another weight."""

    class Scaled(keras.layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(
                name='scale', shape=(LENGTH * WIDTH,), initializer='ones', dtype='float32'
            )
            self.built = True

        def call(self, inputs):
            @tensorflow.function
            def scaled(values):
                return tf.tanh(values * self.scale)

            return scaled(inputs)

    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH, name='table'),
            keras.layers.Flatten(),
            Scaled(name='scaled'),
            keras.layers.Dense(1, name='out'),
        ]
    )


#: Models with layers that call functions of TensorFlow 2.
CALLING = (in_function, layers_in_function, lookup_in_function, loops_in_function)


def two_outputs(keras):
    """Two inputs, two tables, a nested model, two outputs."""
    inner_in = keras.layers.Input((LENGTH,))
    inner = keras.models.Model(
        inner_in,
        keras.layers.Flatten()(keras.layers.Embedding(ROWS, WIDTH, name='inner_table')(inner_in)),
        name='inner',
    )
    words, items = keras.layers.Input((LENGTH,)), keras.layers.Input((2,))
    item_rows = keras.layers.Embedding(7, 2, name='items')(items)
    both = keras.layers.concatenate([inner(words), keras.layers.Flatten()(item_rows)])
    outs = [keras.layers.Dense(1, name=name)(both) for name in ('first', 'second')]
    return keras.models.Model([words, items], outs)


def two_outputs_batch(random, size):
    words, first = ids_and_targets(random, size)
    return (
        [words, skewed_ids(random, (size, 2), 7)],
        [first, random.uniform(-1, 1, (size, 1))],
        [np.tile([1.0, 0.5], size // 2), np.tile([0.25, 2.0], size // 2)],
    )


def only_sparse(keras):
    """A model with no dense variable."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, 1, input_length=LENGTH, name='table'),
            keras.layers.Flatten(),
            keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1, keepdims=True), output_shape=(1,)),
        ]
    )


def only_dense(keras):
    """A model with no sparse variable."""
    return keras.models.Sequential(
        [keras.layers.Dense(3, input_shape=(LENGTH,), name='hidden'), keras.layers.Dense(1)]
    )


def dense_batch(random, size):
    return random.uniform(-1, 1, (size, LENGTH)), random.uniform(-1, 1, (size, 1))


def few_rows(keras):
    """A table of fewer rows than there may be servers, besides a larger one."""
    words, flags = keras.layers.Input((LENGTH,)), keras.layers.Input((1,))
    both = keras.layers.concatenate(
        [
            keras.layers.Flatten()(keras.layers.Embedding(ROWS, WIDTH, name='table')(words)),
            keras.layers.Flatten()(keras.layers.Embedding(2, 3, name='flags')(flags)),
        ]
    )
    return keras.models.Model([words, flags], keras.layers.Dense(1, name='out')(both))


def two_on_one_table(keras):
    """Two models that share a table."""
    first, ids = wide(LENGTH, regularized=False)(keras), keras.layers.Input((LENGTH,))
    rows = keras.layers.Flatten()(first.get_layer('table')(ids))
    return first, keras.models.Model(ids, keras.layers.Dense(1, name='other')(rows))


def tables_in_one_piece(keras):
    """Four tables of one size, for servers that hold each as a whole."""
    inputs, rows = [], []
    for number in range(4):
        inputs.append(keras.layers.Input((LENGTH,)))
        table = keras.layers.Embedding(ROWS, WIDTH, name='table_%d' % number)
        rows.append(keras.layers.Flatten()(table(inputs[number])))
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(rows))
    return keras.models.Model(inputs, out)


def every_second_table_is_hot(random, size):
    """Batches that touch most rows of tables 0 and 2, and one row each of tables 1 and 3."""
    ids = [random.randint(0, ROWS, (size, LENGTH)) for _ in range(4)]
    return [ids[0], 0 * ids[1] + 3, ids[2], 0 * ids[3] + 5], random.uniform(-1, 1, (size, 1))


def few_rows_batch(random, size):
    ids, targets = ids_and_targets(random, size)
    return [ids, random.randint(0, 2, (size, 1))], targets


def one_row_only(random, size):
    """Every id is the same: a row repeated many times, and shards that no worker touches."""
    return np.full((size, LENGTH), 4), random.uniform(-1, 1, (size, 1))


def even_rows_only(random, size):
    """No id is in an odd shard."""
    ids, targets = ids_and_targets(random, size)
    return ids // 2 * 2, targets


#: Rows of each column's tables in `columns`.
COLUMN_ROWS = (ROWS, 9, 40, 31, 23)


def bags(keras):
    """Fields of several ids: two on one table, of which one has weights that are learned."""
    import keras_parallax as kp

    # Here, for the cases are also built where it is not installed.
    package = name_of(keras)
    bag = kp.layers.EmbeddingBag(ROWS, WIDTH, padding_id=-1, keras=package, name='bag')
    tags, likes, about = (keras.layers.Input((LENGTH,)) for _ in range(3))
    strengths = keras.layers.Dense(LENGTH, activation='sigmoid', name='strengths')(about)
    other = kp.layers.EmbeddingBag(ROWS, 64, 'sqrtn', keras=package, name='other')
    # Two more of the same ids, which travel together.
    alike = [
        kp.layers.EmbeddingBag(ROWS, width, 'sum', keras=package, name='alike_%d' % width)
        for width in (1, 2)
    ]
    rows = [bag(tags), bag([likes, strengths]), other(about)] + [one(about) for one in alike]
    out = keras.layers.Dense(1, name='out')(keras.layers.concatenate(rows))
    return keras.models.Model([tags, likes, about], out)


def bags_batch(random, size):
    """Bags with and without ids; in some batches the last samples have none at all."""
    tags, likes, about = (skewed_ids(random, (size, LENGTH)) for _ in range(3))
    tags[random.uniform(size=tags.shape) < 0.3] = -1
    likes[random.uniform(size=likes.shape) < 0.6] = -1
    if random.uniform() < 0.5:
        tags[size // 2 :] = likes[size // 2 :] = -1
    return [tags, likes, about], random.uniform(-1, 1, (size, 1))


def columns(keras):
    """Wide & Deep: a column of ids for each pair of tables of 4 and of 1 numbers a row.

    One table has a regularizer, one a constraint, one is looked up twice. The ids of the last
    column depend on rows of the first one's table.
    """
    ids = keras.layers.Input((len(COLUMN_ROWS),), dtype='int32')

    def column(number):
        return keras.layers.Lambda(lambda x: x[:, number : number + 1], output_shape=(1,))(ids)

    own = {
        1: {'embeddings_regularizer': keras.regularizers.l2(0.01)},
        2: {'embeddings_constraint': keras.constraints.NonNeg()},
    }
    deep, wide, first = [], [], None
    for number, rows in enumerate(COLUMN_ROWS):
        chosen = column(number)
        if number == len(COLUMN_ROWS) - 1:
            chosen = keras.layers.Lambda(
                lambda pair: pair[0] + tf.cast(0 * tf.reduce_sum(pair[1], -1), tf.int32),
                output_shape=(1,),
            )([chosen, first])
        table = keras.layers.Embedding(rows, 4, name='deep_%d' % number, **own.get(number, {}))
        deep.append(table(chosen))
        if number == 0:
            first = deep[0]
            deep.append(table(column(len(COLUMN_ROWS) - 1)))
        wide.append(keras.layers.Embedding(rows, 1, name='wide_%d' % number)(chosen))
    hidden = keras.layers.Flatten()(keras.layers.concatenate(deep, axis=1))
    hidden = keras.layers.Dense(1, name='out')(hidden)
    wide = keras.layers.Flatten()(keras.layers.add(wide))
    return keras.models.Model(ids, keras.layers.add([hidden, wide]))


def columns_batch(random, size):
    """The third column's table is touched at one row, the fourth's in one shard of two or three."""
    ids = [skewed_ids(random, size, rows) for rows in COLUMN_ROWS]
    ids[2][:] = 6
    ids[3] = ids[3] // 6 * 6
    return np.stack(ids, 1), random.uniform(-1, 1, (size, 1))


def custom_optimizer(keras):
    """A user's own optimizer: sign of a running mean of gradients."""
    backend = keras.backend

    class RunningSign(keras.optimizers.Optimizer):
        def __init__(self, lr=0.01, **kwargs):
            super().__init__(**kwargs)
            self.rate = backend.variable(lr, name='lr')  # Keras 2.3 has `lr` itself.

        def get_updates(self, loss, params):
            grads = self.get_gradients(loss, params)
            self.updates, self.weights = [], []
            for param, grad in zip(params, grads):
                mean = backend.zeros(backend.int_shape(param))
                self.weights.append(mean)
                new_mean = 0.9 * mean + grad
                self.updates.append(backend.update(mean, new_mean))
                step = self.rate * new_mean / (backend.abs(new_mean) + 0.1)
                self.updates.append(backend.update(param, param - step))
            return self.updates

        def get_config(self):
            return {'lr': float(backend.get_value(self.rate))}

    return RunningSign()


def optimizer_case(optimizer, **fields):
    """A case that is about its optimizer."""
    return Case(embed_and_sum(), optimizer, ids_and_targets, **fields)


def gradients_of(keras, model):
    """A function from a batch, a list, to the gradients of a model's weights, arrays."""
    backend = keras.backend
    targets = backend.placeholder((None, 1))
    loss = backend.mean(backend.square(targets - model.output))
    gradients = backend.gradients(loss, model.trainable_weights)
    # The table's is of rows that may come twice.
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return backend.function(model.inputs + [targets], gradients)


def regularizer_over_whole(keras):
    """A user's regularizer that no shard can compute by itself."""
    return lambda table: 0.1 * tf.sqrt(1.0 + tf.reduce_sum(tf.square(table)))


CASES = {
    'sgd': optimizer_case(lambda keras: keras.optimizers.SGD(lr=0.1)),
    'sgd_decay': optimizer_case(lambda keras: keras.optimizers.SGD(lr=0.1, decay=0.1)),
    'momentum': optimizer_case(lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9)),
    'nesterov': optimizer_case(
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9, nesterov=True, decay=0.01)
    ),
    'rmsprop': optimizer_case(lambda keras: keras.optimizers.RMSprop(lr=0.01)),
    'adagrad': optimizer_case(lambda keras: keras.optimizers.Adagrad(lr=0.1)),
    'adagrad_decay': optimizer_case(lambda keras: keras.optimizers.Adagrad(lr=0.1, decay=0.1)),
    'adadelta': optimizer_case(lambda keras: keras.optimizers.Adadelta()),
    'adam': optimizer_case(lambda keras: keras.optimizers.Adam(lr=0.01, decay=0.01)),
    'amsgrad': optimizer_case(lambda keras: keras.optimizers.Adam(lr=0.01, amsgrad=True)),
    'adamax': optimizer_case(lambda keras: keras.optimizers.Adamax()),
    'nadam': optimizer_case(lambda keras: keras.optimizers.Nadam()),
    'custom': optimizer_case(custom_optimizer),
    'tf_sgd': optimizer_case(lambda keras: tf.train.GradientDescentOptimizer(0.1)),
    'tf_momentum': optimizer_case(lambda keras: tf.train.MomentumOptimizer(0.1, 0.9)),
    'tf_adagrad': optimizer_case(lambda keras: tf.train.AdagradOptimizer(0.1)),
    'tf_adam': optimizer_case(lambda keras: tf.train.AdamOptimizer(0.01)),
    'tf_rmsprop': optimizer_case(lambda keras: tf.train.RMSPropOptimizer(0.01)),
    'clipnorm': optimizer_case(lambda keras: keras.optimizers.SGD(lr=0.1, clipnorm=0.2)),
    'clipnorm_adam': optimizer_case(lambda keras: keras.optimizers.Adam(lr=0.01, clipnorm=0.2)),
    'clipvalue': optimizer_case(lambda keras: keras.optimizers.SGD(lr=0.1, clipvalue=0.02)),
    'regularized': Case(
        embed_and_sum(embeddings_regularizer=lambda keras: keras.regularizers.l2(0.01)),
        lambda keras: keras.optimizers.SGD(lr=0.1),
        ids_and_targets,
    ),
    'regularized_adam': Case(
        embed_and_sum(embeddings_regularizer=lambda keras: keras.regularizers.l1_l2(0.01, 0.01)),
        lambda keras: keras.optimizers.Adam(lr=0.01),
        ids_and_targets,
    ),
    # One of TensorFlow's, in whose sparse update a penalty has every row touched.
    'regularized_tf_momentum': Case(
        embed_and_sum(embeddings_regularizer=lambda keras: keras.regularizers.l2(0.01)),
        lambda keras: tf.train.MomentumOptimizer(0.1, 0.9),
        ids_and_targets,
    ),
    'activity_regularized': Case(activity_regularized, batch=ids_and_targets),
    'regularized_whole': Case(
        embed_and_sum(embeddings_regularizer=regularizer_over_whole), batch=ids_and_targets
    ),
    'non_negative': Case(
        embed_and_sum(embeddings_constraint=lambda keras: keras.constraints.NonNeg()),
        batch=ids_and_targets,
    ),
    'row_norm': Case(
        embed_and_sum(embeddings_constraint=lambda keras: keras.constraints.MaxNorm(0.05, axis=1)),
        lambda keras: keras.optimizers.Adam(lr=0.01),
        ids_and_targets,
    ),
    'column_norm': Case(
        embed_and_sum(embeddings_constraint=lambda keras: keras.constraints.MaxNorm(0.05, axis=0)),
        lambda keras: keras.optimizers.SGD(lr=0.1),
        ids_and_targets,
    ),
    'given_weights': Case(
        embed_and_sum(weights=lambda keras: [np.full((ROWS, WIDTH), 0.5)]), batch=ids_and_targets
    ),
    'shared': Case(shared, batch=shared_batch),
    'shared_adam': Case(shared, lambda keras: keras.optimizers.Adam(lr=0.01), shared_batch),
    'looked_up_twice': Case(looked_up_twice, batch=ids_and_targets),
    'masked': Case(masked, batch=masked_batch),
    'masked_adam': Case(masked, lambda keras: keras.optimizers.Adam(lr=0.01), masked_batch),
    'tied': Case(tied, batch=ids_and_targets),
    'frozen': Case(embed_and_sum(trainable=False), batch=ids_and_targets),
    'gathered': Case(gathered, batch=ids_and_targets),
    'sampled_softmax': Case(
        candidates(tf.nn.sampled_softmax_loss),
        lambda keras: keras.optimizers.SGD(lr=0.1),
        candidates_batch,
        loss=pass_through,
    ),
    # Adagrad's first step is the sign of a gradient, however small: the rounding of a sum in which
    # a row's parts as label and as candidate nearly cancel is blown up (plain Keras differs from
    # itself by 4e-6 when the samples of a batch are turned around; with SGD nothing is blown up).
    'sampled_softmax_adagrad': Case(
        candidates(tf.nn.sampled_softmax_loss),
        batch=candidates_batch,
        loss=pass_through,
        tolerance=1e-4,
    ),
    'nce': Case(
        candidates(tf.nn.nce_loss),
        lambda keras: keras.optimizers.SGD(lr=0.1),
        candidates_batch,
        loss=pass_through,
    ),
    # tf.keras divides by the sum of weights, which is one for all workers if their samples are
    # even.
    'two_outputs': Case(two_outputs, batch=two_outputs_batch, samples=24),
    'only_sparse': Case(only_sparse, batch=ids_and_targets),
    'only_dense': Case(only_dense, batch=dense_batch),
    'few_rows': Case(few_rows, lambda keras: keras.optimizers.Adam(lr=0.01), few_rows_batch),
    'columns': Case(
        columns, lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01), columns_batch
    ),
    'one_row': Case(embed_and_sum(), batch=one_row_only, samples=480),
    'even_rows': Case(embed_and_sum(), batch=even_rows_only),
    'batch_of_one': Case(embed_and_sum(), batch=ids_and_targets, samples=0),
    'made_dense': Case(
        embed_and_sum(),
        batch=ids_and_targets,
        strategy={'overrides': {'table/embeddings': 'dense'}},
    ),
    'stateful': Case(
        stateful, lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01), ids_and_targets
    ),
    'bags': Case(bags, lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01), bags_batch),
}
#: Losses that Keras divides by what masks and sample weights sum up to, each package by another
#: sum. Keras 2.15 and later do so with masks.
WEIGHTED_CASES = {
    'mask_of_loss': Case(masked_loss, batch=masked_loss_batch),
    'mask_and_weights': Case(
        masked_loss, lambda keras: keras.optimizers.Adam(lr=0.01), masked_and_weighted_batch
    ),
    'temporal_weights': Case(
        masked_loss,
        lambda keras: keras.optimizers.SGD(lr=0.1),
        temporal_batch,
        compiled=(('sample_weight_mode', 'temporal'),),
    ),
    'zero_weights': Case(embed_and_sum(), batch=weighted_batch),
    'zero_weights_of_one_number': Case(
        embed_and_sum(),
        lambda keras: keras.optimizers.SGD(lr=0.1),
        weighted_batch,
        loss=mean_square,
    ),
    'masked_outputs': Case(
        masked_outputs,
        lambda keras: keras.optimizers.SGD(lr=0.1),
        masked_outputs_batch,
        compiled=(('sample_weight_mode', ('temporal', None)), ('loss_weights', (0.3, 2.0))),
    ),
    'ps_masked_outputs': Case(
        masked_outputs,
        lambda keras: keras.optimizers.SGD(lr=0.1, clipnorm=0.5),
        masked_outputs_batch,
        compiled=(('sample_weight_mode', ('temporal', None)), ('loss_weights', (0.3, 2.0))),
        strategy={'architecture': 'ps', 'partitions': 2},
    ),
    'moved_mask_of_loss': Case(
        masked_loss, batch=masked_loss_batch, moves=('ps', 'allreduce', 'hybrid')
    ),
}
#: Losses with terms that are sums over the samples of a batch.
SUMMED_CASES = {
    'summed_loss': Case(
        embed_and_sum(),
        lambda keras: keras.optimizers.SGD(lr=0.1, clipvalue=0.05),
        ids_and_targets,
        loss=squares_summed,
    ),
    'summed_terms': Case(
        summed_terms,
        batch=summed_terms_batch,
        loss=(squares_summed, 'mse'),
        compiled=(('loss_weights', (0.3, 2.0)),),
    ),
    'ps_summed_terms': Case(
        summed_terms,
        lambda keras: keras.optimizers.SGD(lr=0.01),
        summed_terms_batch,
        loss=(squares_summed, 'mse'),
        strategy={'architecture': 'ps', 'partitions': 2},
    ),
    'accumulated_summed_terms': Case(
        summed_terms,
        batch=summed_terms_batch,
        loss=(squares_summed, 'mse'),
        wrap={'accumulate_steps': 2},
        samples=24,
    ),
    'moved_summed_loss': Case(
        embed_and_sum(),
        batch=ids_and_targets,
        loss=squares_summed,
        moves=('ps', 'allreduce', 'hybrid'),
    ),
    # Each sample has its number, and the rest is done by the mask.
    'masked_squares': Case(masked_loss, batch=masked_loss_batch, loss=squares),
    'told_summed_loss': Case(
        embed_and_sum(),
        batch=ids_and_targets,
        loss=squares_summed,
        wrap={'loss_reduction': 'sum'},
    ),
}
if TF2:
    SUMMED_CASES['summed_reduction'] = Case(
        embed_and_sum(),
        batch=ids_and_targets,
        loss=keras_module('tf.keras').losses.MeanSquaredError(reduction='sum'),
    )
for _name, _arguments in (('RowwiseAdagrad', {'lr': 0.1}), ('LazyAdam', {'lr': 0.01})):
    CASES['our_' + _name] = optimizer_case(of_ours(_name, **_arguments))
if TF2:
    CASES['schedule'] = optimizer_case(
        lambda keras: keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
        )
    )
if TF2:
    CASES['lookup_in_function'] = Case(lookup_in_function, batch=ids_and_targets)
    CASES['layers_in_function'] = Case(layers_in_function, batch=ids_and_targets)
    CASES['loops_in_function'] = Case(
        loops_in_function,
        lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01),
        ids_and_targets,
    )
if TF2 and not TF1_15:
    # In TensorFlow 1.15 the second gradient of a function is a tensor; `reference.py` asks for it.
    CASES['loops_in_function_momentum'] = Case(
        loops_in_function,
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9),
        rested_rows.ids_and_targets,
    )
    CASES['loops_in_function_clipped'] = CASES['loops_in_function_momentum']._replace(
        optimizer=lambda keras: keras.optimizers.Adagrad(lr=0.1, clipvalue=0.01)
    )
    CASES['in_function'] = Case(in_function, batch=ids_and_targets)
    CASES['wide_rows'] = Case(wide_rows, batch=ids_and_targets)
    CASES['half_computed'] = Case(
        half_computed, lambda keras: keras.optimizers.SGD(lr=0.1), ids_and_targets, tolerance=2e-3
    )
    CASES['half_computed_adagrad'] = CASES['half_computed']._replace(
        optimizer=lambda keras: keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.Adagrad(lr=0.1), initial_scale=2.0**9, dynamic_growth_steps=2
        ),
        batch=not_always_finite,
    )
    CASES['half_computed_clipnorm'] = CASES['half_computed_adagrad']._replace(
        optimizer=lambda keras: keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.SGD(lr=0.1, momentum=0.9, clipnorm=0.2)
        ),
        strategy={'architecture': 'ps', 'partitions': 3},
    )
    CASES['half_computed_fixed'] = CASES['half_computed']._replace(
        optimizer=lambda keras: keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.SGD(lr=0.1), dynamic=False, initial_scale=64.0
        ),
        strategy={'architecture': 'allreduce'},
    )


def wide(length, regularized):
    """A table that is too large to be dense untouched, looked up in `length` places a sample."""

    def model(keras):
        return keras.models.Sequential(
            [
                keras.layers.Embedding(
                    1500,
                    64,
                    input_length=length,
                    name='table',
                    embeddings_regularizer=keras.regularizers.l2(1e-3) if regularized else None,
                ),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1, name='out'),
            ]
        )

    return model


def uniform_ids(length):
    """Batches of ids all over the table of `wide`."""

    def batch(random, size):
        return random.randint(0, 1500, (size, length)), random.uniform(-1, 1, (size, 1))

    return batch


def _strategies():
    """Every architecture, with few shards and with more than the table has rows."""
    strategies = {
        '%s_%s' % (architecture, partitions): {
            'architecture': architecture,
            'partitions': partitions,
        }
        for architecture in ('hybrid', 'ps', 'auto')
        for partitions in (1, 3, ROWS + 1)
    }
    for partitions in (1, 3, ROWS + 1):
        # So small a table would be dense from the start, and have no shards.
        strategies['auto_%s' % partitions]['overrides'] = {'table/embeddings': 'sparse'}
    strategies['allreduce'] = {'architecture': 'allreduce'}
    strategies['allreduce_dense'] = {
        'architecture': 'allreduce',
        'density': {'table/embeddings': 1.0},
    }
    return strategies


def scaled(keras):
    """A model with a weight that is a single number."""

    class Scale(keras.layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(
                name='scale', shape=(), initializer='ones', dtype='float32'
            )
            self.built = True

        def call(self, inputs):
            return inputs * self.scale

        def compute_output_shape(self, input_shape):
            return input_shape

    model = embed_and_sum()(keras)
    return keras.models.Model(model.inputs, Scale()(model.outputs[0]))


def two_stages(keras):
    """A dense layer on the rows of one table, multiplied by rows of another."""
    layers = keras.layers
    words, classes = layers.Input((LENGTH,), dtype='int32'), layers.Input((1,), dtype='int32')
    rows = layers.Embedding(600, 160, name='words')(words)
    hidden = layers.Dense(160)(layers.GlobalAveragePooling1D()(rows))
    chosen = layers.Embedding(600, 160, name='classes')(classes)
    return keras.models.Model(
        [words, classes], layers.dot([hidden, layers.Flatten()(chosen)], axes=1)
    )


def two_kinds_of_ids(random, size):
    """Ids `[size, LENGTH]` and `[size, 1]`, and a number for each sample."""
    shapes = (size, LENGTH), (size, 1)
    ids = [skewed_ids(random, shape, 600) for shape in shapes]
    return ids, random.uniform(-1, 1, (size, 1))


def looking_up_in_a_loop(keras):
    """A cell of a recurrent layer that looks up the ids it is given itself."""
    backend = keras.backend

    class Cell(keras.layers.Layer):
        state_size = output_size = 4

        def build(self, input_shape):
            self.table = self.add_weight(
                name='table', shape=(ROWS, 4), initializer='uniform', dtype='float32'
            )
            self.kernel = self.add_weight(name='kernel', shape=(4, 4), initializer='uniform')
            self.built = True

        def call(self, inputs, states):
            rows = backend.gather(self.table, backend.cast(inputs[:, 0], 'int32'))
            output = backend.tanh(rows + backend.dot(states[0], self.kernel))
            return output, [output]

    ids = keras.layers.Input((LENGTH,))
    steps = keras.layers.Reshape((LENGTH, 1))(ids)
    rows = keras.layers.RNN(Cell())(steps)
    return keras.models.Model(ids, keras.layers.Dense(1)(rows))


def looking_up_in_a_branch(keras):
    """A layer that looks up its ids in training alone, in a branch."""
    backend = keras.backend

    class Rows(keras.layers.Layer):
        def build(self, input_shape):
            self.table = self.add_weight(
                name='table', shape=(ROWS, 4), initializer='uniform', dtype='float32'
            )
            self.built = True

        def call(self, inputs):
            def looked_up():
                return backend.sum(backend.gather(self.table, inputs), 1)

            def nothing():
                return backend.zeros_like(looked_up())

            return backend.in_train_phase(looked_up, nothing)

        def compute_output_shape(self, input_shape):
            return input_shape[0], 4

    ids = keras.layers.Input((LENGTH,), dtype='int32')
    return keras.models.Model(ids, keras.layers.Dense(1)(Rows()(ids)))


def _engine_cases():
    """What else the engine does: other models on servers, plans that change, half precision."""
    found = {}
    ps = {'architecture': 'ps', 'partitions': 3}
    for name in (
        'tied',
        'masked_adam',
        'two_outputs',
        'clipnorm_adam',
        'regularized_adam',
        'custom',
        'columns',
    ):
        found['ps_' + name] = CASES[name]._replace(strategy=ps)
    for name in (
        'momentum',
        'adam',
        'nadam',
        'regularized_adam',
        'shared',
        'two_outputs',
        'few_rows',
        'columns',
    ):
        found['search_' + name] = CASES[name]._replace(strategy={'partitions': 'search'})
    found['search_ps'] = CASES['adam']._replace(
        strategy={'partitions': 'search', 'architecture': 'ps'}
    )
    optimizers = {name: CASES[name].optimizer for name in ('momentum', 'adam')}
    # Of so many entries some are nearly 0 after summing, and Keras's epsilon of 1e-7 blows their
    # rounding up. A larger one does not, and all else stays Adagrad.
    optimizers['adagrad'] = lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01)
    for length in (5, 400):
        # The density is measured in the first ten steps; at 400 places the table becomes dense,
        # with six samples a worker also for four workers.
        for name, optimizer in optimizers.items():
            found['auto_%d_%s' % (length, name)] = Case(
                # Adagrad moves rows by themselves if there is no regularizer.
                wide(length, regularized=name != 'adagrad'),
                optimizer,
                uniform_ids(length),
                strategy={'architecture': 'auto'},
                samples=24,
            )
    found['auto_400_tf_adagrad'] = found['auto_400_adagrad']._replace(
        optimizer=lambda keras: tf.train.AdagradOptimizer(0.1)
    )
    found['search_tf_adam'] = CASES['tf_adam']._replace(strategy={'partitions': 'search'})
    # Values lose digits in half precision; sums are still made in single precision.
    for strategy in ({}, {'architecture': 'ps'}, {'architecture': 'allreduce'}):
        found['fp16_%s' % strategy.get('architecture', 'hybrid')] = CASES['sgd']._replace(
            strategy=strategy, wrap={'compression': 'fp16'}, tolerance=2e-3
        )
    both = {'compression': 'fp16', 'pull_compression': 'fp16'}
    for name in ('sgd', 'columns'):
        found['fp16_both_' + name] = CASES[name]._replace(wrap=both, tolerance=2e-3)
    # The second table's rows are pulled when the first one's are there.
    found['waiting'] = CASES['sgd']._replace(model=two_stages, batch=two_kinds_of_ids)
    found['columns_clipnorm'] = CASES['columns']._replace(
        optimizer=lambda keras: keras.optimizers.Adam(lr=0.01, clipnorm=0.2)
    )
    for name in ('clipnorm', 'regularized_whole', 'shared_adam', 'tf_adam', 'few_rows', 'columns'):
        found['many_' + name] = CASES[name]._replace(strategy={'partitions': 5})
    # Only one worker owns a shard, and has a use of its own for the sum of all squared norms.
    found['one_clipnorm'] = CASES['clipnorm']._replace(strategy={'partitions': 1})
    found['half_still'] = CASES['shared_adam']._replace(model=half_still)
    found['allreduce_clipnorm'] = CASES['clipnorm']._replace(strategy={'architecture': 'allreduce'})
    found['in_loop'] = CASES['adam']._replace(model=looking_up_in_a_loop)
    found['in_branch'] = CASES['adam']._replace(model=looking_up_in_a_branch)
    found['many_in_loop'] = found['in_loop']._replace(strategy={'partitions': 5})
    found['search_rowwise'] = CASES['our_RowwiseAdagrad']._replace(
        strategy={'partitions': 'search'}
    )
    found['many_regularized_rowwise'] = CASES['regularized']._replace(
        optimizer=CASES['our_RowwiseAdagrad'].optimizer, strategy={'partitions': 5}
    )
    # With one optimizer for all variables the numbers are plain Keras's.
    of_tables = {'tables': CASES['adagrad'].optimizer}
    found['many_of_tables'] = CASES['adagrad']._replace(wrap=of_tables, strategy={'partitions': 5})
    found['moved_of_tables'] = CASES['adagrad']._replace(
        wrap=of_tables, moves=('ps', 'allreduce', 'ps', 'hybrid')
    )
    if TF2 and not TF1_15:
        found['half_computed_of_tables'] = CASES['half_computed_adagrad']._replace(wrap=of_tables)
    # As `architecture='auto'` tries them; what has left its shards comes back to some.
    for name in ('regularized_adam', 'columns', 'tf_adam'):
        moves = ('ps', 'allreduce', 'ps', 'hybrid')
        found['moved_' + name] = CASES[name]._replace(moves=moves)
    found['moved_scaled'] = CASES['adam']._replace(
        model=scaled, moves=('ps', 'allreduce', 'ps', 'hybrid')
    )
    found['search_chosen'] = found['waiting']._replace(
        strategy={
            'partitions': {'words/embeddings': 'search', 'classes/embeddings': 3},
            'min_partitions': 4,
        }
    )
    found.update(_accumulated_cases(found))
    return found


def _accumulated_cases(engine_cases):
    """Cases whose joined batch each worker has in two batches, with one exchange for both."""
    ps, many = {'architecture': 'ps', 'partitions': 3}, {'partitions': 5}
    cases = {
        'adam': CASES['adam']._replace(samples=24),
        'ps_regularized_adam': CASES['regularized_adam']._replace(strategy=ps),
        'many_clipnorm': CASES['clipnorm']._replace(strategy=many),
        'allreduce': CASES['sgd_decay']._replace(strategy={'architecture': 'allreduce'}),
        'fp16': engine_cases['fp16_hybrid']._replace(wrap={'compression': 'fp16'}),
        'lazy': CASES['shared']._replace(wrap={'sparse_update': 'lazy'}),
        'search': engine_cases['search_momentum'],
        'auto': engine_cases['auto_400_adam'],
        'tf_adam': CASES['tf_adam']._replace(strategy=many),
        'one_shard': CASES['adagrad']._replace(samples=24, strategy={'partitions': 1}),
    }
    if TF2 and not TF1_15:
        cases['half_computed'] = CASES['half_computed_adagrad']
    return {
        'accumulated_' + name: case._replace(wrap=dict(case.wrap, accumulate_steps=2))
        for name, case in cases.items()
    }


def _own_cases():
    """Optimizers as users write them, whose formulas look at more than an entry at a time."""
    own = own_optimizers.OWN
    found = {
        'own_' + name: Case(embed_and_sum(), optimizer, ids_and_targets)
        for name, optimizer in own.items()
    }
    for name in ('layerwise', 'layerwise_adam', 'centralized', 'entrywise'):
        if name in own:
            found['own_ps_' + name] = found['own_' + name]._replace(strategy={'architecture': 'ps'})
    for name in ('entrywise', 'factored'):
        if name in own:
            found['own_many_' + name] = found['own_' + name]._replace(strategy={'partitions': 5})
    found['own_search_entrywise'] = found['own_entrywise']._replace(
        strategy={'partitions': 'search'}
    )
    return found


def _dense_cases():
    """A table that is made dense, with each optimizer and each way to exchange it."""
    table = 'table/embeddings'
    resting = Case(
        rested_rows.partly_still(ROWS, WIDTH),
        batch=rested_rows.ids_and_targets,
        strategy={'overrides': {table: 'dense'}},
    )
    found = {
        name: resting._replace(optimizer=optimizer)
        for name, optimizer in rested_rows.OPTIMIZERS.items()
    }
    ps = {'architecture': 'ps', 'partitions': 3, 'overrides': {table: 'dense'}}
    momentum, lazy = found['tf_momentum'], found['lazy_adam']
    found['ps_tf_momentum'] = momentum._replace(strategy=ps)
    found['ps_lazy_adam'] = lazy._replace(strategy=ps)
    found['ps_fp16'] = momentum._replace(strategy=ps, wrap={'compression': 'fp16'}, tolerance=2e-3)
    found['allreduce_tf_rmsprop'] = found['tf_rmsprop']._replace(
        strategy={'architecture': 'allreduce', 'density': {table: 1.0}}
    )
    # A table that is dense, then in shards, then dense, with slots that go along.
    found['moved_tf_nesterov'] = found['tf_nesterov']._replace(
        strategy={'architecture': 'auto', 'density': {table: 1.0}},
        moves=('hybrid', 'auto', 'ps', 'auto'),
    )
    found['fp16'] = momentum._replace(wrap={'compression': 'fp16'}, tolerance=2e-3)
    found['accumulated'] = momentum._replace(wrap={'accumulate_steps': 2})
    found['ps_accumulated'] = found['accumulated']._replace(strategy=ps)
    found['looked_up_twice'] = momentum._replace(model=looked_up_twice)
    # TensorFlow 1 joins the penalty, or the whole read, to the rows; 2 makes a tensor of both.
    found['regularized'] = CASES['regularized_tf_momentum']._replace(strategy=resting.strategy)
    found['ps_regularized'] = found['regularized']._replace(strategy=ps)
    found['tied'] = CASES['tied']._replace(optimizer=momentum.optimizer)
    found['clipnorm_lazy_adam'] = lazy._replace(
        optimizer=of_ours('LazyAdam', lr=0.01, clipnorm=0.05)
    )
    if TF2:
        # Keras bounds each occurrence of a row, before occurrences are summed.
        bounds = {'clipvalue': 0.01, 'clipnorm': 0.05}
        if not TF1_15:
            bounds['global_clipnorm'] = 0.05
        for name, bound in bounds.items():
            for kind, rate in (('momentum', 0.9), ('sgd', 0.0)):
                clipped = functools.partial(_sgd, momentum=rate, **{name: bound})
                found['%s_%s' % (name, kind)] = resting._replace(optimizer=clipped)
            found['ps_' + name] = found[name + '_momentum']._replace(strategy=ps)
    if TF2 and not TF1_15:
        found['half_computed'] = CASES['half_computed_clipnorm']._replace(strategy=resting.strategy)
    return {'dense_' + name: case for name, case in found.items()}


def _sgd(keras, **arguments):
    return keras.optimizers.SGD(lr=0.1, **arguments)


OWN_CASES = _own_cases()
STRATEGIES = _strategies()
#: They keep no, one and two slots of a row.
MATRIX_OPTIMIZERS = ('sgd', 'adagrad', 'adam')
#: Every architecture, number of shards and optimizer, for jobs of several workers.
MATRIX_CASES = {
    '%s_%s' % (name, optimizer): CASES[optimizer]._replace(strategy=strategy)
    for name, strategy in STRATEGIES.items()
    for optimizer in MATRIX_OPTIMIZERS
}
#: Tables that are dense although the loss only looks them up, for jobs of two workers.
DENSE_CASES = _dense_cases()
#: Other cases about the engine rather than about the model, for jobs of several workers.
ENGINE_CASES = _engine_cases()


def find(name):
    """The case called `name`."""
    return next(
        found[name]
        for found in (
            CASES,
            WEIGHTED_CASES,
            SUMMED_CASES,
            MATRIX_CASES,
            ENGINE_CASES,
            OWN_CASES,
            DENSE_CASES,
        )
        if name in found
    )


def joined_size(case, ranks):
    """The number of samples that all workers together take in a step."""
    return case.samples or ranks


def joined_batches(case, ranks, steps=None):
    """The batches of one process: for each step the joined batch of all workers, as lists."""
    random = np.random.RandomState(7)
    for _ in range(steps or case.steps):
        yield case.batch(random, joined_size(case, ranks))


def share(batch, rank, ranks):
    """The part of a joined batch that is a worker's own."""
    if isinstance(batch, (list, tuple)):
        return type(batch)(share(part, rank, ranks) for part in batch)
    size = len(batch) // ranks
    return batch[rank * size : (rank + 1) * size]


def batches(case, ranks, begin, end, rank=None, size=None):
    """The batches of the steps from `begin` to `end`, a list.

    Args:
        case: a `Case`.
        ranks: the number of workers whose joined batches they are.
        begin, end: numbers of steps.
        rank: whose part of each it is, instead of the joined batches.
        size: of how many workers that is one, if not of `ranks`.
    """
    joined = list(joined_batches(case, ranks, end))[begin:]
    return joined if rank is None else [share(batch, rank, size or ranks) for batch in joined]


def train(model, batches):
    """Trains a compiled model on batches, one after another; returns the list of losses."""
    return [np.ravel(model.train_on_batch(*batch))[0] for batch in batches]


def compile_arguments(case):
    """Further arguments of `model.compile`, a dict; Keras takes no tuples for lists."""
    return {name: as_lists(value) for name, value in case.compiled}


def as_lists(value):
    """A list in place of a tuple, and anything else as it is."""
    return list(value) if isinstance(value, tuple) else value


def start_weights(model):
    """Start values for a model's weights: a function of their shapes only."""
    random = np.random.RandomState(11)
    return [
        random.uniform(-0.1, 0.1, shape).astype(np.float32)
        for shape in [weight.shape for weight in model.get_weights()]
    ]
