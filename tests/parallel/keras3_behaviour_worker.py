# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: what a strategy does with models of Keras 3 besides `fit`.

Usage: keras3_behaviour_worker.py BACKEND FOLDER. Each rank writes FOLDER/RANK.json, from names of
checks to what they find.
"""

import functools
import json
import os
import sys
from unittest import mock

BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import horovod.tensorflow.keras as hvd  # noqa: E402
import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402
from keras3_cases import summing  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.session import graph_sessions  # noqa: E402
from keras_parallax.keras3 import joint_pulls, optimizer, scope, sharded_tables  # noqa: E402

RATE = 0.05
STEPS, BATCH = cases.STEPS, cases.BATCH


def batches(rank, ranks):
    """This rank's batches, and the joined ones."""
    x, y, _ = cases.CASES['sgd'].data(STEPS * ranks * BATCH)
    joined = []
    for step in range(STEPS):
        first = step * ranks * BATCH
        joined.append(
            ([part[first : first + ranks * BATCH] for part in x], y[first : first + ranks * BATCH])
        )
    own = [
        (
            [part[rank * BATCH : (rank + 1) * BATCH] for part in x],
            y[rank * BATCH : (rank + 1) * BATCH],
        )
        for x, y in joined
    ]
    return own, joined


@functools.lru_cache(maxsize=None)
def plain_weights(strategy, epochs=1, make=lambda: keras.optimizers.SGD(RATE)):
    """The weights of plain Keras after some epochs."""
    model = cases.two_tables()
    model.compile(summing(make()), 'mse', jit_compile=False)
    for _ in range(epochs):
        for x, y in batches(strategy.rank, strategy.size)[1]:
            model.train_on_batch(x, y)
    return model.get_weights()


def difference(model, weights):
    return max(float(np.abs(ours - of).max()) for ours, of in zip(model.get_weights(), weights))


def in_scope(strategy, optimizer=None):
    with strategy:
        model = cases.two_tables()
        model.compile(optimizer or keras.optimizers.SGD(RATE), 'mse')
    return model


def own_loop(strategy):
    """A loop of the script's own: the difference from plain Keras."""
    model, own = in_scope(strategy), batches(strategy.rank, strategy.size)[0]
    model.optimizer.build(model.trainable_variables)
    if BACKEND == 'tensorflow':

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            of = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(of, model.trainable_variables))

        for x, y in own:
            step([tf.constant(part) for part in x], tf.constant(y))
    else:
        import jax

        def loss_of(trainable, rest, x, y):
            out, rest = model.stateless_call(trainable, rest, x, training=True)
            return keras.ops.mean(keras.ops.square(out - y)), rest

        @jax.jit
        def step(trainable, rest, of_optimizer, x, y):
            (_, rest), of = jax.value_and_grad(loss_of, has_aux=True)(trainable, rest, x, y)
            trainable, of_optimizer = model.optimizer.stateless_apply(of_optimizer, of, trainable)
            return trainable, rest, of_optimizer

        state = [
            [variable.value for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
                model.optimizer.variables,
            )
        ]
        for x, y in own:
            state = step(*state, x, y)
        for variable, value in zip(model.trainable_variables, state[0]):
            variable.assign(value)
    return difference(model, plain_weights(strategy))


class Batches(keras.utils.PyDataset):
    """Some batches."""

    def __init__(self, of):
        super().__init__()
        self._of = of

    def __len__(self):
        return len(self._of)

    def __getitem__(self, place):
        x, y = self._of[place]
        return tuple(x), y


def sources(strategy):
    """Of each kind of data that `fit` takes besides arrays, the difference from plain Keras."""
    own, found = batches(strategy.rank, strategy.size)[0], {}
    specs = tuple(tf.TensorSpec(of.shape, of.dtype) for of in own[0][0])
    signature = specs, tf.TensorSpec(own[0][1].shape, own[0][1].dtype)
    makers = {
        'PyDataset': lambda: Batches(own),
        'generator': lambda: ((tuple(x), y) for x, y in own),
        'tf.data': lambda: tf.data.Dataset.from_generator(
            lambda: ((tuple(x), y) for x, y in own), output_signature=signature
        ),
    }
    for name, make in makers.items():
        model = in_scope(strategy)
        model.fit(make(), shuffle=False, verbose=0)
        found[name] = difference(model, plain_weights(strategy))
    return found


def train_on_batch(strategy):
    model = in_scope(strategy)
    for x, y in batches(strategy.rank, strategy.size)[0]:
        model.train_on_batch(x, y)
    return difference(model, plain_weights(strategy))


def pulled(strategy):
    """How many calls pull rows in a step, of several tables and of one."""
    model = in_scope(strategy)
    x, y = batches(strategy.rank, strategy.size)[0][0]
    model.train_on_batch(x, y)
    counts = []
    for cls, method in ((joint_pulls.JointPull, '__call__'), (sharded_tables.Table, 'pull')):
        with mock.patch.object(cls, method, autospec=True, side_effect=getattr(cls, method)) as of:
            model.train_on_batch(x, y)
        counts.append(of.call_count)
    return counts


def learned(strategy):
    """How often the session learns of new operations, from a model's first step to its weights."""
    model, versions = in_scope(strategy), set()
    see = graph_sessions.GraphSessions.see_new_operations

    def noting(sessions):
        versions.add(scope.GRAPH.version)
        see(sessions)

    with mock.patch.object(graph_sessions.GraphSessions, 'see_new_operations', noting):
        for x, y in batches(strategy.rank, strategy.size)[0]:
            model.train_on_batch(x, y)
        model.get_weights()
    return len(versions)


def lazy(strategy):
    """How far lazy updates differ if a functional model looks two tables up alike."""
    weights = []
    for alike in (True, False):
        with strategy:
            model, sgd = cases.Apart(alike), keras.optimizers.SGD(RATE, momentum=0.9)
            model.compile(kp.ParallaxOptimizer(sgd, sparse_update='lazy'), 'mse')
        keras.utils.set_random_seed(3)
        for x, y in batches(strategy.rank, strategy.size)[0]:
            model.train_on_batch(x, y)
        weights.append(model.get_weights())
    return max(float(np.abs(one - other).max()) for one, other in zip(*weights))


def eager(strategy):
    """How far calls of layers and models without a step are from the table's rows."""
    ids = np.array([[1, 2, 2]], 'int32')
    found = []
    with strategy:
        layer = cases.embedding(50, 4, 'one')
        found.append(layer(ids) - layer.get_weights()[0][ids])
    model = in_scope(strategy)
    x, y = batches(strategy.rank, strategy.size)[0][0]
    model.train_on_batch(x, y)
    plain = cases.two_tables()
    plain.set_weights(model.get_weights())
    for inputs in (x, [x[0], x[0][:, :2] % 30]):
        found.append(np.asarray(model(inputs)) - np.asarray(plain(inputs)))
    return max(float(np.abs(difference).max()) for difference in found)


def unused(strategy):
    """A table that a loss does not use is not moved; the name of the error, or the difference."""
    with strategy:
        users, items = keras.Input((3,), dtype='int32'), keras.Input((2,), dtype='int32')
        rows = [cases.embedding(50, 4, 'user')(users), cases.embedding(30, 4, 'item', 2)(items)]
        model = keras.Model([users, items], rows)
        model.compile(keras.optimizers.Adam(RATE), 'mse')
    model.optimizer.build(model.trainable_variables)
    x, _ = batches(strategy.rank, strategy.size)[0][0]
    if BACKEND == 'jax':
        return 'PlanError'  # Its gradient is zero there, in plain Keras, too.
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x)[0]))
    try:
        of = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(of, model.trainable_variables))
    except kp.ParallaxError as error:
        return type(error).__name__
    return None


def predicted(strategy):
    """Predictions before and after a fit that makes the tables dense: how far from plain Keras."""
    x, y = batches(strategy.rank, strategy.size)[0][0]
    found = []
    # The second one is built by its first prediction.
    for build in (cases.two_tables, cases.Computed):
        with strategy:
            model = build()
            model.compile(keras.optimizers.SGD(RATE, clipnorm=10.0), 'mse')
        model.predict(x, verbose=0)
        model.fit(x, y, epochs=3, batch_size=BATCH, verbose=0)
        plain = build()
        plain(x)
        plain.set_weights(model.get_weights())
        found.append(model.predict(x, verbose=0) - plain.predict(x, verbose=0))
    return max(float(np.abs(difference).max()) for difference in found)


def moved(strategy):
    """Whether tables move to other servers during a fit, and how far it is from plain Keras."""
    rows, size, steps, ranks = 4000, 8, 16, strategy.size
    random = np.random.RandomState(0)
    # As placed at first, one server has both tables of which a batch touches many rows.
    many = random.randint(0, rows, (steps * ranks * size, 40)).astype('int32')
    x, y = [many, many[:, :2] % 3], random.rand(len(many), 1).astype('float32')
    own = np.arange(len(many)).reshape(steps, ranks, size)[:, strategy.rank].ravel()
    del strategy  # One with options of its own.

    def trained(make, x, y, size):
        inputs = [keras.Input((40,), dtype='int32'), keras.Input((2,), dtype='int32')]
        found = [
            keras.layers.Flatten()(cases.embedding(rows, 8, name, number)(inputs[number % 2]))
            for number, name in enumerate('abcd')
        ]
        joined = keras.layers.Concatenate()(found)
        model = keras.Model(inputs, cases.dense(1)(joined))
        model.compile(make(keras.optimizers.Adagrad(RATE)), 'mse', jit_compile='auto')
        model.optimizer.build(model.trainable_variables)
        step = getattr(model.optimizer, '_parallax_step', None)
        before = step and step.step.operations
        model.fit(x, y, batch_size=size, shuffle=False, verbose=0)
        return model, step and step.step.operations is not before

    plain, _ = trained(summing, x, y, ranks * size)
    with kp.ParallaxStrategy(partitions=1):
        model, has_moved = trained(lambda of: of, [part[own] for part in x], y[own], size)
    return [bool(has_moved), difference(model, plain.get_weights())]


def compiled_again(strategy):
    """The same optimizer compiled again goes on with its slots."""
    optimizer = keras.optimizers.Adagrad(RATE)
    model = in_scope(strategy, optimizer)
    for epoch in range(2):
        for x, y in batches(strategy.rank, strategy.size)[0]:
            model.train_on_batch(x, y)
        if not epoch:
            with strategy:
                model.compile(optimizer, 'mse')
    return difference(model, plain_weights(strategy, 2, lambda: keras.optimizers.Adagrad(RATE)))


def new_optimizer(strategy):
    """A new optimizer begins anew, on the values that the first one has left."""
    model, plain = in_scope(strategy), cases.two_tables()
    own, joined = batches(strategy.rank, strategy.size)
    for make in (lambda: keras.optimizers.SGD(RATE), lambda: keras.optimizers.Adam(RATE)):
        with strategy:
            model.compile(make(), 'mse')
        plain.compile(summing(make()), 'mse', jit_compile=False)
        for (x, y), (joined_x, joined_y) in zip(own, joined):
            model.train_on_batch(x, y)
            plain.train_on_batch(joined_x, joined_y)
    return difference(model, plain.get_weights())


def saved(strategy, folder):
    """A file that plain Keras loads, and the weights of a model that is set to others."""
    model = in_scope(strategy, keras.optimizers.Adagrad(RATE))
    x, y = batches(strategy.rank, strategy.size)[0][0]
    model.train_on_batch(x, y)
    path = os.path.join(folder, 'model.keras')
    # Each worker may read what it has saved, and has a file of its own if it asks for one.
    found = 0.0
    for of_worker in (path, os.path.join(folder, 'of-%d.keras' % strategy.rank)):
        model.save(of_worker)
        loaded = keras.saving.load_model(of_worker, compile=False)
        found = max(found, difference(model, loaded.get_weights()))
    # A part of the model, which is not compiled.
    part = os.path.join(folder, 'part.keras')
    keras.Model(model.inputs, model.layers[-2].output).save(part)
    of_part = keras.saving.load_model(part).get_weights()
    found = max(found, *(float(np.abs(a - b).max()) for a, b in zip(of_part, model.get_weights())))
    weights = os.path.join(folder, 'model.weights.h5')
    model.save_weights(weights)
    loaded.set_weights([weight * 0 for weight in loaded.get_weights()])
    loaded.load_weights(weights)
    found = max(found, difference(model, loaded.get_weights()))
    strategy._job.barrier()
    model.set_weights([weight * 0 for weight in loaded.get_weights()])
    strategy._job.barrier()
    with strategy:
        compiled = keras.saving.load_model(path)
    own, plain = compiled.optimizer, keras.saving.load_model(path).optimizer
    optimizers = [type(own).__name__, optimizer.is_wrapped(own), optimizer.is_wrapped(plain)]
    zeros = float(np.abs(model.predict(x, verbose=0)).max())
    # Keras saves these, in this order.
    own_and_plain = [
        [(list(variable.shape), variable.path.split('/')[-1]) for variable in of.variables]
        for of in (model.optimizer, plain)
    ]
    return [found, zeros, model.count_params(), own_and_plain, optimizers]


def written(strategy, folder):
    """The lines of a log that all workers would write, and of those that each has for itself."""
    (x, y), *_ = batches(strategy.rank, strategy.size)[0]
    paths = [os.path.join(folder, 'log%s.csv' % end) for end in ('', '-of-%d' % strategy.rank)]
    in_scope(strategy).fit(
        x, y, BATCH, epochs=2, verbose=0, callbacks=[*map(keras.callbacks.CSVLogger, paths)]
    )
    strategy._job.barrier()
    lines = []
    for path in paths:
        with open(path) as file:
            lines.append([line.split(',')[0] for line in file])
    return lines


def exported(strategy, folder):
    """What an exported model predicts, and the error that refuses an archive of a model."""
    model = in_scope(strategy, keras.optimizers.Adagrad(RATE))
    x, y = batches(strategy.rank, strategy.size)[0][0]
    model.train_on_batch(x, y)
    strategy._job.barrier()
    predictions = model.predict(x, verbose=0)
    path = os.path.join(folder, 'exported')
    model.export(path, verbose=False)
    strategy._job.barrier()
    loaded = tf.saved_model.load(path)
    served = loaded.serve([tf.constant(part) for part in x])
    try:
        keras.export.ExportArchive().track(model)
        refused = None
    except kp.ParallaxError as error:
        refused = type(error).__name__
    return [float(np.abs(served - predictions).max()), refused]


class Noting(keras.layers.Layer):
    """Notes whether XLA compiles what it is part of."""

    in_xla = False

    def call(self, inputs):
        if BACKEND == 'tensorflow':
            from tensorflow.python.ops import control_flow_util

            graph = tf.compat.v1.get_default_graph()
            self.in_xla |= control_flow_util.GraphOrParentsInXlaContext(graph)
        return inputs


def compiled_by_xla(strategy):
    """Whether XLA compiles a Sequential model's layers, and the difference from plain Keras."""

    def trained(optimizer):
        noting = Noting()
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                keras.Input((3,), dtype='int32'),
                cases.embedding(cases.USERS, 4, 'user'),
                noting,
                keras.layers.Flatten(),
                cases.dense(1),
            ]
        )
        model.compile(optimizer, 'mse', jit_compile=True)
        return model, noting

    own, joined = batches(strategy.rank, strategy.size)
    plain, _ = trained(summing(keras.optimizers.Adagrad(RATE)))
    with strategy:
        model, noting = trained(keras.optimizers.Adagrad(RATE))
    for (x, y), (joined_x, joined_y) in zip(own, joined):
        model.train_on_batch(x[0], y)
        plain.train_on_batch(joined_x[0], joined_y)
    return [noting.in_xla or BACKEND == 'jax', difference(model, plain.get_weights())]


def refused(strategy):
    """What is refused: dict from names to the errors' names."""
    x, y = batches(strategy.rank, strategy.size)[0][0]

    def of(act):
        try:
            act()
        except (kp.ParallaxError, ValueError) as error:
            return type(error).__name__
        return None

    def quantized_after_a_step(kind):
        with strategy:
            layer = kind(cases.USERS, 4)
            model = keras.Sequential([layer, keras.layers.Flatten(), keras.layers.Dense(1)])
            model.compile('sgd', 'mse')
        model.train_on_batch(x[0], y)
        layer.quantize('int8')
        model.train_on_batch(x[0], y)

    def of_float8():
        with strategy:
            model = cases.two_tables()
            model.quantize('float8')
            model.compile('sgd', 'mse')
        model.train_on_batch(x, y)

    def compiled_for_xla(model):
        model.compile('sgd', 'mse', jit_compile=True)
        model.train_on_batch(x, y)

    def own_class_for_xla():
        with strategy:
            compiled_for_xla(cases.Apart())

    def own_ids_for_xla():
        with strategy:
            compiled_for_xla(cases.same_ids())

    def with_horovod():
        in_scope(strategy, hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)))

    def with_our_callback():
        in_scope(strategy).fit(x, y, callbacks=[kp.callbacks.StepMetrics()], verbose=0)

    def of_keras_2():
        with strategy:
            tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])

    def out_of_range():
        with strategy:
            layer = keras.layers.Embedding(5, 2)
            layer(np.array([[1]]))
        layer(np.array([[7]]))

    def read_whole():
        model = in_scope(strategy)
        model.train_on_batch(x, y)
        table = model.get_layer('user')

        class Reading(keras.layers.Layer):
            def call(self, inputs):
                return inputs @ keras.ops.transpose(table.embeddings)

        Reading()(np.zeros((1, 4), 'float32'))

    found = {
        'xla of a class': of(own_class_for_xla),
        'xla of ids': of(own_ids_for_xla),
        'quantized': of(lambda: quantized_after_a_step(keras.layers.Embedding)),
        'quantized reversible': of(
            lambda: quantized_after_a_step(keras.layers.ReversibleEmbedding)
        ),
        'float8': of(of_float8),
        'horovod': of(with_horovod),
        'our callback': of(with_our_callback),
        'Keras 2': of(of_keras_2),
        'read whole': of(read_whole),
        'ps': of(lambda: kp.ParallaxStrategy(architecture='ps')),
        'accumulate': of(lambda: accumulating(strategy)),
    }
    try:
        out_of_range()
    except Exception as error:
        found['id'] = 'from 0 to 4' in str(error) and '7' in str(error)
    return found


def accumulating(strategy):
    with strategy:
        kp.ParallaxOptimizer(keras.optimizers.SGD(RATE), accumulate_steps=2)


def overridden(strategy):
    """How tables are exchanged with options of the strategy that name some of them."""
    options = dict(overrides={'user': 'dense'}, partitions={'item': 3}, density={'user': 0.2})
    del strategy  # One with options of its own.
    own = kp.ParallaxStrategy(**options)
    model = in_scope(own)
    model.optimizer.build(model.trainable_variables)
    return {one.name: [one.exchange, len(one.shards)] for one in own.plan(model).variables[:2]}


def planned(strategy):
    """Kinds and reasons of the plan, and its text."""
    with strategy:
        model = cases.two_tables(embeddings_regularizer=keras.regularizers.L2(0.1))
        model.compile(keras.optimizers.Adagrad(RATE), 'mse')
    try:
        strategy.plan(model)
        early = None
    except kp.ScopeError as error:
        early = 'optimizer.build' in str(error)
    model.optimizer.build(model.trainable_variables)
    plan, lines = strategy.plan(model), []
    strategy.summary(model, lines.append)
    by_name = {one.name: [one.kind, one.exchange, one.reason] for one in plan.variables}
    with strategy:
        other = cases.same_ids()
        other.compile(keras.optimizers.Adagrad(RATE), 'mse')
    other.optimizer.build(other.trainable_variables)
    alone = [one.name for one in strategy.plan(other).variables if 'call of its own' in one.reason]
    return [by_name, plan.architecture, '\n'.join(lines), early, alone]


def main(folder):
    strategy = kp.ParallaxStrategy()
    checks = (
        own_loop,
        train_on_batch,
        sources,
        pulled,
        learned,
        lazy,
        eager,
        unused,
        predicted,
        moved,
        compiled_again,
        new_optimizer,
        refused,
        planned,
        overridden,
        compiled_by_xla,
    )
    found = {check.__name__: check(strategy) for check in checks}
    found['saved'], found['backend'] = saved(strategy, folder), BACKEND
    found['exported'] = exported(strategy, folder)
    found['written'] = written(strategy, folder)
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


if __name__ == '__main__':
    main(sys.argv[2])
