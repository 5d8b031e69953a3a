# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models, optimizers and ways to train with Keras 3, which `parallel/keras3_worker.py` compares."""

import functools

import keras
import numpy as np
import tensorflow as tf

BATCH, STEPS = 4, 5


class Summed:
    """Has the gradients of a row summed before the formula, as JAX does by itself."""

    def apply(self, grads, trainable_variables=None):
        if keras.backend.backend() == 'tensorflow':
            grads = [by if by is None else tf.convert_to_tensor(by) for by in grads]
        return super().apply(grads, trainable_variables)


def summing(optimizer):
    """A copy of an optimizer that sums the gradients of a row."""
    cls = type(optimizer)
    return type(cls.__name__, (Summed, cls), {}).from_config(optimizer.get_config())


USERS, ITEMS, WORDS = 50, 30, 20


def uniform(seed):
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=seed)


def embedding(rows, width, name, seed=1, **kwargs):
    return keras.layers.Embedding(
        rows, width, name=name, embeddings_initializer=uniform(seed), **kwargs
    )


def dense(units, seed=2, **kwargs):
    kwargs.setdefault('kernel_initializer', keras.initializers.GlorotUniform(seed))
    return keras.layers.Dense(units, **kwargs)


def two_tables(**of_table):
    """Two tables; a dense layer and an output."""
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    rows = [
        keras.layers.Flatten()(embedding(USERS, 4, 'user', 1, **of_table)(users)),
        keras.layers.Flatten()(embedding(ITEMS, 2, 'item', 2)(items)),
    ]
    hidden = dense(8, activation='tanh')(keras.layers.Concatenate()(rows))
    return keras.Model([users, items], dense(1, 3)(hidden))


def of_policy(policy):
    """The same in layers of another dtype policy."""
    former = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return two_tables()
    finally:
        keras.config.set_dtype_policy(former)


def shared():
    """One table for two inputs."""
    left, right = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    table = embedding(USERS, 4, 'user')
    rows = [keras.layers.Flatten()(table(ids)) for ids in (left, right)]
    return keras.Model([left, right], dense(1)(keras.layers.Concatenate()(rows)))


class Next(keras.layers.Layer):
    """Ids that no operation without weights computes."""

    def call(self, inputs):
        return keras.ops.mod(inputs + 1, USERS)


def same_ids():
    """Two tables of one input, one of a part of it, and one whose ids a layer computes."""
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    rows = [
        embedding(USERS, 4, 'deep')(users),
        embedding(USERS, 1, 'wide', 2)(users),
        embedding(USERS, 3, 'first', 3)(keras.ops.mod(users[:, 1:] * 3, USERS)),
        embedding(USERS, 2, 'after', 4)(Next()(users)),
    ]
    flat = [keras.layers.Flatten()(of_table) for of_table in rows]
    # Keras 3.12 refuses a model that does not use an input.
    flat.append(keras.ops.cast(items, 'float32') / ITEMS)
    return keras.Model([users, items], dense(1)(keras.layers.Concatenate()(flat)))


class Offset(keras.layers.Embedding):
    """A lookup of other ids than those of the call."""

    def call(self, inputs):
        return super().call(keras.ops.mod(inputs + 1, USERS))


def alike_rows():
    """Two tables of rows that are alike and small, and one of a layer's own."""
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    rows = [
        embedding(USERS, 4, 'user')(users),
        embedding(ITEMS, 4, 'item', 2)(items),
        Offset(USERS, 3, name='offset', embeddings_initializer=uniform(3))(users),
    ]
    flat = [keras.layers.Flatten()(of_table) for of_table in rows]
    return keras.Model([users, items], dense(1)(keras.layers.Concatenate()(flat)))


class Apart(keras.Model):
    """Two tables that a functional model looks up alike, if there is one, and this one does not."""

    def __init__(self, alike=True):
        super().__init__()
        self.deep, self.wide = embedding(USERS, 4, 'deep'), embedding(USERS, 1, 'wide', 2)
        self.out, ids = dense(1), keras.Input((3,), dtype='int32')
        if alike:
            self.alike = keras.Model(ids, [self.deep(ids), self.wide(ids)])

    def call(self, inputs):
        users, items = inputs
        rows = [self.deep(users), self.wide(items)]
        return self.out(keras.ops.concatenate([keras.ops.mean(one, axis=1) for one in rows], 1))


def masked():
    """A mask that reaches the loss, of one number for each word."""
    words = keras.Input((6,), dtype='int32')
    hidden = embedding(WORDS, 4, 'word', mask_zero=True)(words)
    return keras.Model(words, keras.layers.TimeDistributed(dense(1))(hidden))


def recurrent():
    """A mask for an LSTM."""
    words = keras.Input((6,), dtype='int32')
    hidden = embedding(WORDS, 4, 'word', mask_zero=True)(words)
    lstm = keras.layers.LSTM(
        5,
        kernel_initializer=keras.initializers.GlorotUniform(4),
        recurrent_initializer=keras.initializers.GlorotUniform(5),
    )
    return keras.Model(words, dense(1)(lstm(hidden)))


def two_outputs():
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    flat = keras.layers.Flatten()(embedding(USERS, 4, 'user')(users))
    other = keras.layers.Flatten()(embedding(ITEMS, 2, 'item', 2)(items))
    joined = keras.layers.Concatenate()([flat, other])
    return keras.Model([users, items], [dense(1, 3, name='a')(flat), dense(1, 4, name='b')(joined)])


def tied():
    """A table that is also read whole."""
    words = keras.Input((6,), dtype='int32')
    table = keras.layers.ReversibleEmbedding(WORDS, 4, embeddings_initializer=uniform(1))
    hidden = dense(4, activation='tanh')(table(words))
    return keras.Model(words, table(hidden, reverse=True))


class Computed(keras.Model):
    """Ids that the model computes; layers that are built by the first batch."""

    def __init__(self, **of_table):
        super().__init__()
        self.table, self.out = embedding(USERS, 4, 'user', **of_table), dense(1)

    def call(self, inputs):
        users, items = inputs
        ids = keras.ops.mod(users * 7 + items[:, :1], USERS)
        return self.out(keras.ops.mean(self.table(ids), axis=1))


class OwnStep(keras.Model):
    """A step of its own that minimizes the loss times three."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 3.0 * super().compute_loss(x, y, y_pred, sample_weight, training)


def own_step():
    model = two_tables()
    return OwnStep(model.inputs, model.outputs)


def penalized_activity():
    words = keras.Input((6,), dtype='int32')
    flat = keras.layers.Flatten()(embedding(WORDS, 4, 'word')(words))
    hidden = dense(4, activity_regularizer=keras.regularizers.L2(0.1))(flat)
    return keras.Model(words, dense(1, 3)(hidden))


class Adding(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.sum(inputs**2))
        return inputs


def adding():
    words = keras.Input((6,), dtype='int32')
    flat = Adding()(keras.layers.Flatten()(embedding(WORDS, 4, 'word')(words)))
    return keras.Model(words, dense(1, 3)(flat))


class Pooled(keras.Model):
    """One table, whose rows are averaged."""

    def __init__(self, **of_table):
        super().__init__()
        self.table, self.out = embedding(USERS, 4, 'user', **of_table), dense(1)

    def call(self, inputs):
        return self.out(keras.ops.mean(self.table(inputs[0]), 1))


class PenalizedByHand(Pooled):
    """The loss has the squares of all weights, which the script adds."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        squares = [keras.ops.sum(keras.ops.square(of)) for of in self.trainable_variables]
        return loss + 0.1 * sum(squares)


class ReadByOperators(Pooled):
    """The call computes with the variable of the table."""

    def call(self, inputs):
        predicted = super().call(inputs)
        table = self.table.trainable_variables[0]
        return predicted + keras.ops.mean(table * table[0])


class Taken(Pooled):
    """The model has the variable of its table among its own."""

    def build(self, shape):
        self.table.build(None)
        self.read = self.table.embeddings
        self.out.build((None, 4))

    def call(self, inputs):
        return super().call(inputs) + keras.ops.mean(keras.ops.transpose(self.read))


def distributed(table=None):
    """Tables of keras-rs: one of two features, and one with weights of its ids."""
    import keras_rs

    layers = keras_rs.layers
    table = table or keras.optimizers.Adagrad(0.05)
    user = layers.TableConfig('user', USERS, 4, uniform(1), table, combiner='sqrtn')
    item = layers.TableConfig('item', ITEMS, 2, uniform(2), _sgd(), combiner='sum')
    features = [
        layers.FeatureConfig('users', user, (None, 3), (None, 4)),
        layers.FeatureConfig('last', user, (None,), (None, 4)),
        layers.FeatureConfig('items', item, (None, 2), (None, 2)),
    ]
    users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
    weights = [1.0 / (1.0 + keras.ops.cast(ids, 'float32')) for ids in (users, users[:, 0], items)]
    rows = layers.DistributedEmbedding(features, name='features')(
        [users, users[:, 0], items], weights
    )
    return keras.Model([users, items], dense(1)(keras.layers.Concatenate()(rows)))


class Case:
    """How a model is trained.

    Args:
        build: function that builds it.
        optimizer: function that makes its optimizer.
        options: arguments of `compile`.
        fit_options: arguments of `fit`.
        weights: `'sample'` or `'step'` for sample weights, or `None`.
        wrap: function from the optimizer and `kp` to the optimizer to compile with.
        builds_first: whether the optimizer is built before `fit`.
        plain: function that makes the optimizer of plain Keras, if that is another one.
    """

    def __init__(
        self,
        build,
        optimizer,
        options=None,
        fit_options=None,
        weights=None,
        wrap=None,
        builds_first=False,
        plain=None,
    ):
        self.build, self.optimizer, self.weights = build, optimizer, weights
        self.builds_first, self.plain = builds_first, plain or optimizer
        self._options, self._fit_options = options or (lambda: {'loss': 'mse'}), fit_options
        self.wrap = wrap or (lambda optimizer, kp: optimizer)

    def compile_arguments(self):
        return dict(dict(metrics=['mae'], jit_compile='auto'), **self._options())

    def data(self, count):
        """Inputs, targets and sample weights of some samples."""
        random = np.random.RandomState(5)
        users = random.randint(0, USERS, (count, 3)).astype('int32')
        items = random.randint(0, ITEMS, (count, 2)).astype('int32')
        # As many zeros in one sample as in none in another.
        words = random.randint(0, WORDS, (count, 6)) * (
            random.rand(count, 6) < random.rand(count, 1)
        )
        one, steps = random.rand(count, 1).astype('float32'), random.rand(count, 6, 1)
        weight = {None: None, 'sample': random.rand(count), 'step': random.rand(count, 6)}
        x, y = {
            two_tables: ([users, items], one),
            masked: (words.astype('int32'), steps.astype('float32')),
            recurrent: (words.astype('int32'), one),
            two_outputs: ([users, items], [one, one * 2]),
            tied: (words.astype('int32'), words.astype('int32')),
            penalized_activity: (words.astype('int32'), one),
            adding: (words.astype('int32'), one),
        }.get(getattr(self.build, 'func', self.build), ([users, items], one))
        weight = weight[self.weights]
        return x, y, None if weight is None else weight.astype('float32')

    def fit(self, model, x, y, weight, size, validation):
        options = self._fit_options() if self._fit_options else {}
        arguments = dict(dict(epochs=2, shuffle=False, verbose=0), **options)
        validation = tuple(part for part in validation if part is not None)
        return model.fit(
            x,
            y,
            sample_weight=weight,
            batch_size=size,
            validation_data=validation,
            validation_batch_size=size,
            **arguments,
        ).history

    def moved(self, plain):
        """How far training has moved the weight that has moved most."""
        start = [np.asarray(weight) for weight in rebuilt(self.build).get_weights()]
        if not start:
            return None
        return max(float(np.abs(of - at).max()) for of, at in zip(plain.get_weights(), start))


def rebuilt(build):
    keras.utils.set_random_seed(3)
    return build()


def sum_of_squares(true, predicted):
    return keras.ops.sum(keras.ops.square(true - predicted))


class Halved(keras.losses.Loss):
    """A loss that calls another one of Keras."""

    def __init__(self, reduction, **kwargs):
        super().__init__(**kwargs)
        self._inner = keras.losses.MeanSquaredError(reduction=reduction)

    def call(self, true, predicted):
        return 0.5 * self._inner(true, predicted)


if hasattr(keras.optimizers, 'OptimizerMap'):  # Keras 3.12 has none.

    @keras.saving.register_keras_serializable()
    class OwnMap(keras.optimizers.OptimizerMap):
        """A map that might choose in a way of its own."""


def multi(table, is_own=False):
    """One optimizer for a table, and another one for all else."""
    default = keras.optimizers.Adagrad(0.05)
    cls = OwnMap if is_own else keras.optimizers.OptimizerMap
    return keras.optimizers.MultiOptimizer(cls(default, {'user/.*': table}))


def multi_of_tables(default, user, item):
    """What the `TableConfig`s of `distributed` name, in plain Keras."""
    by_path = {'features/user/embeddings': user, 'features/item/embeddings': item}
    return keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, by_path))


_of = keras.optimizers
_adagrad = functools.partial(_of.Adagrad, 0.05)
_sgd = functools.partial(_of.SGD, 0.05)

CASES = {
    'sgd': Case(two_tables, _sgd),
    'momentum': Case(two_tables, lambda: _of.SGD(0.05, momentum=0.9)),
    'nesterov': Case(two_tables, lambda: _of.SGD(0.05, momentum=0.9, nesterov=True)),
    'adagrad': Case(two_tables, _adagrad),
    'adam': Case(two_tables, lambda: _of.Adam(0.01)),
    'amsgrad': Case(two_tables, lambda: _of.Adam(0.01, amsgrad=True)),
    'rmsprop': Case(two_tables, lambda: _of.RMSprop(0.01)),
    'rmsprop_all': Case(two_tables, lambda: _of.RMSprop(0.01, momentum=0.9, centered=True)),
    'adadelta': Case(two_tables, lambda: _of.Adadelta(1.0)),
    'adamax': Case(two_tables, lambda: _of.Adamax(0.01)),
    'nadam': Case(two_tables, lambda: _of.Nadam(0.01)),
    'lion': Case(two_tables, lambda: _of.Lion(0.01)),
    # Their tables are dense.
    'adamw': Case(two_tables, lambda: _of.AdamW(0.01)),
    'ftrl': Case(two_tables, lambda: _of.Ftrl(0.05)),
    'lamb': Case(two_tables, lambda: _of.Lamb(0.01)),
    'adafactor': Case(two_tables, lambda: _of.Adafactor(0.01)),
    'muon': Case(two_tables, lambda: _of.Muon(0.01)),
    # With TensorFlow, `fit` of plain Keras would build it while tracing, and lose its start values.
    'schedule_free': Case(two_tables, lambda: _of.ScheduleFreeAdamW(0.01), builds_first=True),
    'loss_scale': Case(two_tables, lambda: _of.LossScaleOptimizer(_of.Adam(0.01))),
    'clipnorm': Case(two_tables, lambda: _of.Adagrad(0.05, clipnorm=0.1)),
    'clipvalue': Case(two_tables, lambda: _of.Adagrad(0.05, clipvalue=0.01)),
    'global_clipnorm': Case(two_tables, lambda: _of.Adagrad(0.05, global_clipnorm=0.1)),
    'weight_decay': Case(two_tables, lambda: _of.Adagrad(0.05, weight_decay=0.1)),
    'ema': Case(two_tables, lambda: _of.Adagrad(0.05, use_ema=True, ema_overwrite_frequency=2)),
    'accumulated': Case(two_tables, lambda: _of.Adagrad(0.05, gradient_accumulation_steps=2)),
    'multi': Case(two_tables, lambda: multi(_of.Adam(_of.schedules.ExponentialDecay(0.1, 2, 0.5)))),
    # The optimizers of the `TableConfig`s, whatever the model is compiled with.
    'distributed': Case(
        distributed,
        lambda: _of.Adam(0.01),
        plain=lambda: multi_of_tables(_of.Adam(0.01), _of.Adagrad(0.05), _sgd()),
    ),
    'distributed_one': Case(lambda: distributed(_sgd()), _sgd),
    'multi_in_part': Case(two_tables, lambda: multi(_of.Ftrl(0.05))),
    'multi_of_own_map': Case(two_tables, lambda: multi(_of.Adam(0.01), is_own=True)),
    'mixed_float16': Case(functools.partial(of_policy, 'mixed_float16'), _adagrad),
    'mixed_bfloat16': Case(functools.partial(of_policy, 'mixed_bfloat16'), _adagrad),
    'bfloat16': Case(functools.partial(of_policy, 'bfloat16'), _adagrad),
    'regularized': Case(
        functools.partial(two_tables, embeddings_regularizer=keras.regularizers.L2(0.1)), _adagrad
    ),
    'constrained': Case(
        functools.partial(two_tables, embeddings_constraint=keras.constraints.NonNeg()), _adagrad
    ),
    'tied': Case(
        tied,
        _adagrad,
        lambda: dict(
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=['accuracy']
        ),
    ),
    # What rates, loops and losses do.
    'schedule': Case(
        two_tables, lambda: _of.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))
    ),
    'rate_callback': Case(
        two_tables,
        _adagrad,
        fit_options=lambda: dict(
            callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)]
        ),
    ),
    'early_stopping': Case(
        two_tables,
        lambda: _of.SGD(0.3),
        fit_options=lambda: dict(
            epochs=6, callbacks=[keras.callbacks.EarlyStopping('val_loss', patience=0)]
        ),
    ),
    'eager': Case(two_tables, _adagrad, lambda: dict(loss='mse', run_eagerly=True)),
    'steps_per_execution': Case(
        two_tables, _adagrad, lambda: dict(loss='mse', steps_per_execution=3)
    ),
    'xla': Case(two_tables, _adagrad, lambda: dict(loss='mse', jit_compile=True)),
    'xla_masked': Case(
        masked,
        _adagrad,
        lambda: dict(loss='mse', metrics=[], jit_compile=True),
        weights='step',
    ),
    'xla_activity': Case(penalized_activity, _adagrad, lambda: dict(loss='mse', jit_compile=True)),
    'xla_without_tables': Case(
        functools.partial(two_tables, embeddings_regularizer=keras.regularizers.L2(0.1)),
        lambda: _of.AdamW(0.01),
        lambda: dict(loss='mse', jit_compile=True),
    ),
    'penalized_by_hand': Case(PenalizedByHand, _adagrad),
    'read_by_operators': Case(ReadByOperators, _adagrad),
    'taken': Case(Taken, _adagrad),
    'frozen': Case(lambda: two_tables(trainable=False), _adagrad),
    'frozen_taken': Case(lambda: Taken(trainable=False), _adagrad),
    'shared': Case(shared, _adagrad),
    'same_ids': Case(same_ids, _adagrad),
    'alike_rows': Case(alike_rows, _adagrad),
    'eager_alike_rows': Case(alike_rows, _adagrad, lambda: dict(loss='mse', run_eagerly=True)),
    'same_ids_adam': Case(same_ids, lambda: _of.Adam(0.01)),
    'apart': Case(Apart, _adagrad),
    'apart_adam': Case(Apart, lambda: _of.Adam(0.01)),
    'computed': Case(Computed, _adagrad),
    'own_step': Case(own_step, _adagrad),
    'recurrent': Case(recurrent, _adagrad),
    'masked': Case(masked, _adagrad, lambda: dict(loss='mse', metrics=[])),
    'masked_weights': Case(masked, _adagrad, lambda: dict(loss='mse', metrics=[]), weights='step'),
    'weights': Case(two_tables, _adagrad, weights='sample'),
    'two_outputs': Case(
        two_outputs,
        _adagrad,
        lambda: dict(loss=['mse', 'mae'], loss_weights=[1.0, 0.3], metrics=[['mae'], ['mse']]),
    ),
    'sum': Case(
        two_tables, _sgd, lambda: dict(loss=keras.losses.MeanSquaredError(reduction='sum'))
    ),
    'weighted_mean': Case(
        two_tables,
        _adagrad,
        lambda: dict(loss=keras.losses.MeanSquaredError(reduction='mean_with_sample_weight')),
        weights='sample',
    ),
    'sum_of_squares': Case(
        two_tables,
        _sgd,
        lambda: dict(loss=sum_of_squares),
        wrap=lambda optimizer, kp: kp.ParallaxOptimizer(optimizer, loss_reduction='sum'),
    ),
    'nested_sum': Case(
        two_tables,
        _sgd,
        lambda: dict(loss=Halved('sum')),
        wrap=lambda optimizer, kp: kp.ParallaxOptimizer(optimizer, loss_reduction='sum'),
    ),
    'nested_values': Case(two_tables, _sgd, lambda: dict(loss=Halved(None))),
    'unknown_reduction': Case(two_tables, _sgd, lambda: dict(loss=sum_of_squares)),
    'activity': Case(penalized_activity, _adagrad),
    'added_loss': Case(adding, _adagrad),
    'lazy': Case(
        two_tables,
        _adagrad,
        wrap=lambda optimizer, kp: kp.ParallaxOptimizer(optimizer, sparse_update='lazy'),
    ),
}
