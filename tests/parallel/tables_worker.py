# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: scripts that read and write tables in their own ways, as plain Keras too.

Usage: tables_worker.py PACKAGE FOLDER SCRIPT... Each worker runs every script twice: by itself with
plain Keras on the joined batches, and with a strategy on its share of them. What the script
returns, a dict of arrays and strings, goes to FOLDER/SCRIPT.RANK.npz, as `plain.NAME` and as
`ours.NAME`.
"""

import os
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

import numpy as np
from frameworks import TF1_15, TF2, tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import reference  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.checkpoint import save_parts  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402
from keras_parallax.engine.session.graph_scope import scope_of  # noqa: E402
from keras_parallax.engine.updates import stochastic_rounding  # noqa: E402

RANKS = 2


class Run(NamedTuple):
    """A run of a script.

    Attributes:
        keras: the Keras package.
        package: its name.
        folder: where files go, of this worker and this run alone.
        strategy: the strategy, or `None` of plain Keras.
    """

    keras: Any
    package: str
    folder: str
    strategy: Any

    @property
    def backend(self):
        return self.keras.backend

    def model(self, case, build=None):
        """A compiled model of a case, with its start weights, and what `build` makes of it."""
        if self.strategy is None:
            model = case.model(self.keras)
            model.compile(reference.gated(case.optimizer(self.keras)), case.loss)
        else:
            with self.strategy:
                model = case.model(self.keras)
                optimizer = kp.ParallaxOptimizer(case.optimizer(self.keras), keras=self.package)
                model.compile(optimizer, case.loss)
        built = build(self, model) if build else None
        model.set_weights(cases.start_weights(model))
        return model, built

    def batches(self, case, begin, end):
        """The batches of the steps from `begin` to `end`, as far as they are this worker's."""
        return cases.batches(case, RANKS, begin, end, self.strategy and self.strategy.rank)

    def train(self, model, case, begin, end):
        cases.train(model, self.batches(case, begin, end))

    def fit(self, model, case, begin, end, epochs, on_epoch_end):
        ids, targets = map(np.concatenate, zip(*self.batches(case, begin, end)))
        samples = case.samples // (1 if self.strategy is None else RANKS)
        callback = self.keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
        model.fit(ids, targets, samples, epochs, verbose=0, shuffle=False, callbacks=[callback])

    def together(self):
        """Waits for the other workers, before a worker writes what another may still read."""
        if self.strategy is not None:
            job.start().barrier()


#: A model whose table is sharded, and its batches.
CASE = cases.CASES['shared_adam']._replace(
    model=cases.embed_and_sum(), batch=cases.ids_and_targets, strategy={'partitions': 3}
)


def nothing(run):
    """Outputs of a function that is there for its updates; Keras 2.15 insists on some."""
    return [] if run.package == 'keras' else [run.backend.constant(0.0)]


def table_of(model):
    return model.get_layer('table').weights[0]


def tensors_of(run, model):
    """What a script may have made of a table before its first step."""
    table = table_of(model)
    with tf.control_dependencies([tf.constant(1)]):
        waited = table.read_value()
    return {
        'twice': table * 2,
        'identity': tf.identity(table),
        'value': table.value(),
        'read value': table.read_value(),
        'read after something': waited,
        'transposed': run.backend.transpose(table),
        'rows': tf.gather(table, [3, 5, 3]),
        'rows in a loop': tf.map_fn(
            lambda row: tf.gather(table, row), tf.constant([3, 5]), tf.float32
        ),
        'in a branch': tf.cond(
            tf.less(tf.random_uniform([]), 2.0), lambda: table + 1, lambda: table - 1
        ),
        'initialized': tf.is_variable_initialized(table),
        'summary': tf.summary.histogram('table', table),
    }


def reads(run):
    model, tensors = run.model(CASE, tensors_of)
    run.train(model, CASE, 0, 3)
    backend, table = run.backend, table_of(model)
    session, graph = backend.get_session(), table.graph
    ((ids, _),) = cases.joined_batches(CASE, RANKS, 1)
    given = {'before.' + name: session.run(tensor) for name, tensor in tensors.items()}
    given.update(
        ('after.' + name, session.run(tensor)) for name, tensor in tensors_of(run, model).items()
    )
    names = list(tensors)
    given['several'] = session.run([tensors[name] for name in names])[names.index('identity')]
    given['nested'] = session.run({'a': (table, [tensors['twice']])})['a'][1][0]
    given['eval'] = backend.eval(table)
    given['get_value'] = backend.get_value(table)
    given['table.eval'] = table.eval(session)
    given['run'] = session.run(table)
    given['make_callable'] = session.make_callable(table)()
    if run.package == 'keras':
        given['by name'] = session.run('table/embeddings:0')
        given['read by name'] = session.run('table/embeddings/read:0')
        given['tensor by name'] = session.run(graph.get_tensor_by_name('table/embeddings:0'))
        given['function'] = backend.function([], [table])([])[0]
        given['with outputs'] = backend.function(model.inputs, [table] + model.outputs)([ids])[0]
        late = graph.get_tensor_by_name('table/embeddings:0')
        given['of the tensor by name'] = session.run(tf.gather(late, [1, 2]))
    else:
        given['function'] = backend.function([], [table.value()])([])[0]
    given['outputs'] = backend.function(model.inputs, model.outputs)([ids])[0]
    given['layer'] = model.get_layer('table').get_weights()[0]
    given['model'] = model.get_weights()[0]
    weights = model.trainable_weights
    squares = [
        backend.mean(backend.square(model.output)),
        backend.sum(tf.gather(table, [1, 1, 2]) ** 2),
    ]
    for name, loss in zip(('loss', 'own'), squares):
        gradients = backend.gradients(loss, weights if name == 'loss' else weights[:1])
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        for number, value in enumerate(backend.function(model.inputs, dense)([ids])):
            given['gradient of %s.%d' % (name, number)] = value
    whole = tf.gradients(tf.reduce_sum(tf.square(tf.convert_to_tensor(table))), table)[0]
    given['gradient of the whole'] = session.run(whole)
    run.train(model, CASE, 3, 6)
    given['end'] = model.get_weights()[0]
    return given


def savers_of(run, model):
    return tf.train.Saver(), tf.train.Saver([table_of(model)])


def savers(run):
    model, early = run.model(CASE, savers_of)
    run.train(model, CASE, 0, 3)
    session, given = run.backend.get_session(), {}
    table = table_of(model)
    for number, saver in enumerate(early + savers_of(run, model)):
        path = saver.save(session, os.path.join(run.folder, 'of saver %d' % number))
        given['saved %d' % number] = tf.train.load_checkpoint(path).get_tensor('table/embeddings')
        run.train(model, CASE, 3, 5)
        run.together()
        saver.restore(session, path)
        given['restored %d' % number] = run.backend.get_value(table)
        run.together()
    # Alone, as Horovod's recipe has it; other weights are for the broadcast.
    if run.strategy is None or run.strategy.rank == 1:
        early[1].restore(session, os.path.join(run.folder, 'of saver 0'))
    run.together()
    given['restored by a worker'] = run.backend.get_value(table)
    return given


def writes_of(run, model):
    """Operations that write to a table, in the order in which they are run."""
    backend, table = run.backend, table_of(model)
    ones = np.ones((cases.ROWS, cases.WIDTH), np.float32)
    rows, values = [[3, 5], [22, 3]], np.arange(16.0, dtype=np.float32).reshape(2, 2, 4)
    return {
        'normalized': backend.update(table, backend.l2_normalize(table, -1)),
        'reversed': tf.assign(table, tf.reverse(table, [0])),
        'added': backend.update_add(table, 0.5 * ones),
        'subtracted': tf.assign_sub(table, table * 0.25),
        'clipped': tf.assign(table, tf.clip_by_norm(table, 0.7, axes=[1])),
        'rows set': tf.scatter_update(table, [4, 7], values[0, :, :]),
        'rows added': tf.scatter_add(table, rows, values),
        'rows subtracted': tf.scatter_sub(table, rows, values * table[0, 0]),
        'given': backend.update(table, 2 * ones),
        'told in part': tf.assign(table, table + tf.gather(table, [1])) * 2,
    }


def writes(run):
    model, early = run.model(CASE, writes_of)
    run.train(model, CASE, 0, 3)
    session, given = run.backend.get_session(), {}
    for when, operations in (('before', early), ('after', writes_of(run, model))):
        for name, write in operations.items():
            name = '%s.%s' % (when, name)
            run.together()
            if name.endswith(('normalized', 'reversed', 'added', 'clipped')):
                run.backend.function([], nothing(run), updates=[write])([])
            else:
                given[name + '.told'] = session.run(write)
            given[name] = run.backend.get_value(table_of(model))
            run.together()
            run.train(model, CASE, 3, 4)
    # A pair, which Keras itself assigns after the outputs.
    table = table_of(model)
    run.backend.function([], [tf.reduce_sum(table)], updates=[(table, 3 * table)])([])
    given['pair'] = run.backend.get_value(table)
    run.together()
    session.run(table.initializer)
    run.together()
    # Keras's initializer draws numbers of up to 0.05; the table had others.
    given['initialized'] = int(np.abs(run.backend.get_value(table)).max() <= 0.05)
    given['was far from its start'] = int(np.abs(given['pair']).max() > 0.05)
    return given


def word2vec(run):
    """Normalizes after each epoch, and looks at the rows that each worker sees."""

    def build(run, model):
        table = table_of(model)
        normalize = run.backend.update(table, run.backend.l2_normalize(table, -1))
        return run.backend.function([], nothing(run), updates=[normalize])

    model, normalize = run.model(CASE, build)
    dumped = []

    def on_epoch_end(epoch, logs):
        dumped.append(model.get_layer('table').get_weights()[0])
        normalize([])
        dumped.append(model.get_layer('table').get_weights()[0])

    run.fit(model, CASE, 0, 4, 3, on_epoch_end)
    return {
        'dumped': np.stack(dumped),
        'end': model.get_weights()[0],
        'out': model.get_weights()[3],
    }


def moved(run, case):
    """Tables that get other shards, or none, while what was made of them before is in use."""
    case = cases.ENGINE_CASES[case]
    model, (tensors, added) = run.model(
        case,
        lambda run, model: (
            {'twice': table_of(model) * 2, 'value': table_of(model).value()},
            tf.assign_add(table_of(model), tf.ones(table_of(model).shape)),
        ),
    )
    given = {}
    late = {}
    for begin in (0, 10, 20):
        run.train(model, case, begin, begin + 10)
        run.together()
        session = run.backend.get_session()
        if begin == 0:
            late = {'late': tf.identity(table_of(model)) + 1}
            late_added = tf.assign_add(table_of(model), tf.ones(table_of(model).shape))
        session.run(added)
        session.run(late_added)
        for name, tensor in {**tensors, **late}.items():
            given['%s.%d' % (name, begin)] = run.backend.get_session().run(tensor)
        run.together()
        if run.strategy is not None:
            given['planned.%d' % begin] = str(run.strategy.plan(model).variables[0])
    given['end'] = model.get_weights()[0]
    return given


def refused(run):
    """What cannot be done on shards: plain Keras does it."""
    model, row = run.model(
        CASE, lambda run, model: tf.scatter_nd_update(table_of(model), [[1]], tf.ones([1, 4]))
    )
    run.train(model, CASE, 0, 1)
    given = {'row': error_of(run.backend.get_session().run, row)}
    run.train(model, CASE, 1, 2)

    def with_update(keras):
        model = CASE.model(keras)
        table = table_of(model)
        layer = model.get_layer('table')
        layer.add_update([keras.backend.update(table, keras.backend.l2_normalize(table, -1))])
        return model

    case = CASE._replace(model=with_update)
    model, _ = run.model(case)
    given['in the step'] = error_of(run.train, model, case, 0, 1)
    return given


def threads(run):
    """Reads a table while other threads save the model."""
    model, _ = run.model(CASE)
    run.train(model, CASE, 0, 1)
    table, session = table_of(model), run.backend.get_session()
    model.save(os.path.join(run.folder, 'model.h5'))  # What this builds is built by one thread.
    stopped, seen, errors = threading.Event(), [], []

    def read():
        while not stopped.is_set():
            try:
                seen.append(np.shape(session.run(table)))
            except Exception:
                errors.append(traceback.format_exc())
                return

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        model.save(os.path.join(run.folder, 'model.h5'))
    stopped.set()
    reader.join()
    run.together()
    return {'seen': sorted(set(map(str, seen))), 'errors': errors}


def own_variable(run):
    """A layer that makes its table without `add_weight`."""

    def build(keras):
        class Rows(keras.layers.Layer):
            def build(self, input_shape):
                start = np.random.RandomState(3).uniform(-1, 1, (cases.ROWS, 4))
                self.table = keras.backend.variable(start, name='own_table')
                trainable = (
                    self.trainable_weights if run.package == 'keras' else self._trainable_weights
                )
                trainable.append(self.table)
                self.built = True

            def call(self, inputs):
                return keras.backend.gather(self.table, keras.backend.cast(inputs, 'int32'))

            def compute_output_shape(self, input_shape):
                return tuple(input_shape) + (4,)

        ids = keras.layers.Input((cases.LENGTH,))
        out = keras.layers.Flatten()(Rows(name='table')(ids))
        return keras.models.Model(ids, keras.layers.Dense(1, name='out')(out))

    case = CASE._replace(model=build)
    model, _ = run.model(case)
    run.train(model, case, 0, 4)
    given = {'end': model.get_weights()[0]}
    bad = np.full((2, cases.LENGTH), cases.ROWS)
    given['bad'] = error_of(model.predict, bad)
    return given


def set_weights(run):
    """Weights of a layer that are set between two calls of `fit`, on every worker."""
    model, _ = run.model(CASE)
    for begin in (0, 4):
        run.fit(model, CASE, begin, begin + 4, 1, lambda epoch, logs: None)
        layer = model.get_layer('table')
        values = layer.get_weights()[0] * np.float32(0.5)
        run.together()
        layer.set_weights([values])
        run.together()
    run.train(model, CASE, 8, 10)
    return {'end': model.get_weights()[0]}


def late(run, rank):
    """Has a worker come to its next line when another has long begun its own."""
    if run.strategy is not None and run.strategy.rank == rank:
        time.sleep(2)


def own_writes(run):
    """Reads and writes of every worker, none of which waits for the others by a line of its own."""
    model, _ = run.model(CASE)
    path = os.path.join(run.folder, 'weights.h5')
    run.train(model, CASE, 0, 2)
    model.save_weights(path)
    run.train(model, CASE, 2, 4)
    backend, table, given = run.backend, table_of(model), {}
    ids, targets = map(np.concatenate, zip(*cases.joined_batches(CASE, RANKS, 2)))
    for rank in range(RANKS):
        late(run, rank)
        given['evaluated %d' % rank] = model.evaluate(ids, targets, verbose=0)
        model.load_weights(path)
        given['loaded %d' % rank] = model.evaluate(ids, targets, verbose=0)
        late(run, rank)
        given['value %d' % rank] = backend.get_value(table)
        backend.set_value(table, given['value %d' % rank] * 0.5)
        backend.set_value(table, backend.get_value(table) + 1)
        late(run, rank)
        given['halved %d' % rank] = backend.get_value(table)
        model.set_weights([0.5 * weight for weight in model.get_weights()])
        late(run, rank)
        state = model.optimizer.get_weights()
        model.optimizer.set_weights([weight * 2 if weight.ndim else weight for weight in state])
        run.train(model, CASE, 4, 6)
        given['trained %d' % rank] = model.get_weights()[0]
    return given


def noise(run):
    """Different values on each rank: those of rank 0 are to count."""
    model, _ = run.model(CASE)
    run.train(model, CASE, 0, 1)
    rank = 0 if run.strategy is None else run.strategy.rank
    late(run, 0)
    table = table_of(model)
    values = run.backend.get_value(table)
    run.backend.set_value(table, values + np.random.RandomState(rank).rand(*values.shape))
    return {'noisy': run.backend.get_value(table)}


def alone(run):
    """Writes of one worker, while the other goes on to what it cannot do without it."""
    model, _ = run.model(CASE)
    path = os.path.join(run.folder, 'weights.h5')
    run.train(model, CASE, 0, 2)
    model.save_weights(path)
    run.train(model, CASE, 2, 4)
    rank = None if run.strategy is None else run.strategy.rank
    table, given = table_of(model), {}

    def write():
        values = run.backend.get_value(table)
        run.backend.set_value(table, values * 0.5)
        run.backend.set_value(table, run.backend.get_value(table) + 1)

    if rank in (None, 1):
        write()
    run.together()
    given['called'] = run.backend.get_value(table)
    run.train(model, CASE, 4, 6)
    given['trained'] = model.get_weights()[0]
    if rank in (None, 0):
        # The other has begun its step, with the rows of before. Dense weights are each worker's
        # own.
        write()
        given['written'] = run.backend.get_value(table)
        model.load_weights(path)
        given['loaded'] = run.backend.get_value(table)
    run.train(model, CASE, 6, 7)
    return given


#: Of `narrow`: a table, and one of three rows that every batch touches, with all that an owner adds
#: to gradients and does with rows.
LIMITED = 3


def two_tables(keras):
    ids, few = keras.layers.Input((cases.LENGTH,)), keras.layers.Input((LIMITED,))
    limited = keras.layers.Embedding(
        LIMITED,
        2,
        embeddings_regularizer=keras.regularizers.l2(0.01),
        # With TensorFlow 2, Keras refuses a constraint on a table.
        embeddings_constraint=None if TF2 else keras.constraints.MaxNorm(0.03, axis=1),
        name='limited',
    )
    rows = [keras.layers.Embedding(cases.ROWS, cases.WIDTH, name='table')(ids), limited(few)]
    joined = keras.layers.concatenate([keras.layers.Flatten()(part) for part in rows])
    return keras.models.Model([ids, few], keras.layers.Dense(1, name='out')(joined))


def two_tables_batch(random, size):
    ids, targets = cases.ids_and_targets(random, size)
    return [ids, np.tile(np.arange(LIMITED), (size, 1))], targets


NARROW = CASE._replace(
    model=two_tables,
    batch=two_tables_batch,
    optimizer=lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01),
)
HALF, STEPS = 2, 4


def rounded(values, step, name):
    """All rows of a table as its servers would round them in a step, as float32."""
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.range(tf.to_int64(len(values)))
        noise = stochastic_rounding.noise_of(rows, [values.shape[1]], tf.to_int64(step), name)
        return session.run(stochastic_rounding.rounded(tf.constant(values), noise)).astype('f')


def narrow_plain(run):
    """Plain Keras, whose rows are rounded after each step; a row without a gradient stays."""
    model, _ = run.model(NARROW)
    layers, given = [model.get_layer(name) for name in ('table', 'limited')], {}
    for layer in layers:
        layer.set_weights([layer.get_weights()[0].astype(np.float16)])
    for step in range(STEPS):
        run.train(model, NARROW, step, step + 1)
        for layer in layers:
            name = layer.weights[0].op.name
            layer.set_weights([rounded(layer.get_weights()[0], step, name)])
        if step in (HALF - 1, STEPS - 1):
            half = 'half' if step < HALF else 'end'
            given.update(('%s.%s' % (half, one.name), one.get_weights()[0]) for one in layers)
    given['penalty'] = model.evaluate(*next(cases.joined_batches(NARROW, 1, 1)), verbose=0)
    return given


def narrow_model(run, **arguments):
    """A strategy whose servers keep rows in 16 bits, and a model of it."""
    run.keras.backend.clear_session()
    with kp.ParallaxStrategy(row_dtype='float16', **arguments) as strategy:
        model = two_tables(run.keras)
        optimizer = kp.ParallaxOptimizer(
            NARROW.optimizer(run.keras), sparse_update='lazy', keras=run.package
        )
        model.compile(optimizer, NARROW.loss)
    return strategy, model


def narrow(run):
    """Rows of 16 bits, which go on with fewer shards."""
    if run.strategy is None:
        return narrow_plain(run)
    given, path = {}, os.path.join(os.path.dirname(run.folder), 'narrow')
    for half, begin, end in (('half', 0, HALF), ('end', HALF, STEPS)):
        strategy, model = narrow_model(run, partitions=1 + (begin == 0))
        if begin:
            strategy.resume(model, path)
        else:
            model.set_weights(cases.start_weights(model))
        run.train(model, NARROW, begin, end)
        run.together()
        for name in ('table', 'limited'):
            given['%s.%s' % (half, name)] = model.get_layer(name).get_weights()[0]
        if not begin:
            save_parts.save_parts(model, path)
    given['penalty'] = model.evaluate(*next(cases.joined_batches(NARROW, 1, 1)), verbose=0)
    if strategy.is_chief:
        model.save(path + '.h5')
    # What a script does with a table by itself.
    session, table = run.backend.get_session(), table_of(model)
    ids = [3, 5, 3]
    given['looked up'] = session.run(tf.gather(table, ids)) - given['end.table'][ids]
    given['whole'] = session.run(table * 2) - 2 * given['end.table']
    run.together()
    session.run(tf.scatter_add(table, [4, 7], np.full((2, cases.WIDTH), 0.25, np.float32)))
    session.run(tf.assign_sub(table, np.full((cases.ROWS, cases.WIDTH), 0.5, np.float32)))
    given['written'] = run.backend.get_value(table)
    of_shards = scope_of(table.graph).tables_by_name['table/embeddings'].shards
    given['bytes'] = sum(session.run(shard).nbytes for shard in of_shards)
    given['slots'] = [one.dtype.base_dtype.name for one in model.optimizer.weights[1:3]]
    given['summary'] = strategy.plan(model)['table/embeddings'].place
    return given


def nothing_else(keras):
    return {}


#: Functions of a Keras package: an optimizer that moves rows of 16 bits, and further arguments of
#: `ParallaxOptimizer`.
NARROW_BY = {
    'rowwise': (cases.of_ours('RowwiseAdagrad', lr=0.1), nothing_else),
    'lazy_adam': (cases.of_ours('LazyAdam', lr=0.01), nothing_else),
    'tables': (
        lambda keras: keras.optimizers.Adagrad(lr=0.1),
        lambda keras: {'tables': keras.optimizers.Adagrad(lr=0.1)},
    ),
}
if TF2:
    NARROW_BY['momentum'] = (
        lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9),
        nothing_else,
    )
if TF2 and not TF1_15:
    NARROW_BY['scaled'] = (
        lambda keras: keras.mixed_precision.LossScaleOptimizer(NARROW.optimizer(keras)),
        nothing_else,
    )


def narrow_by(run):
    """Rows of 16 bits that several optimizers move, beside plain Keras's of 32."""
    given = {}
    for name, (optimizer, arguments) in NARROW_BY.items():
        case = CASE._replace(optimizer=optimizer)
        run.keras.backend.clear_session()
        if run.strategy is None:
            model, _ = run.model(case)
        else:
            with kp.ParallaxStrategy(row_dtype='float16'):
                model = case.model(run.keras)
                own = kp.ParallaxOptimizer(
                    optimizer(run.keras), keras=run.package, **arguments(run.keras)
                )
                model.compile(own, case.loss)
            model.set_weights(cases.start_weights(model))
        run.train(model, case, 0, STEPS)
        given['end.' + name] = end = model.get_weights()[0]
        given['moved.' + name] = end - cases.start_weights(model)[0]
        dtypes = {weight.dtype.base_dtype for weight in model.optimizer.weights}
        assert dtypes <= {tf.int64, tf.float32}, dtypes
    return given


def narrow_refused(run):
    """What is said where rows are not moved one by one."""
    if run.strategy is None:
        return {}
    with kp.ParallaxStrategy(row_dtype='float16'):
        model = two_tables(run.keras)
        model.compile(kp.ParallaxOptimizer('adam', keras=run.package), 'mse')
    given = {'rule': error_of(run.train, model, NARROW, 0, 1)}
    run.keras.backend.clear_session()
    with kp.ParallaxStrategy(row_dtype='float16'):
        ids = run.keras.layers.Input((1,), dtype='int64')
        rows = kp.layers.DynamicEmbedding(2, 60, keras=run.package, name='table')(ids)
        out = run.keras.layers.Dense(1)(run.keras.layers.Flatten()(rows))
        model = run.keras.models.Model(ids, out)
        model.compile('adagrad', 'mse')
    given['ids'] = error_of(model.train_on_batch, np.zeros((4, 1), int), np.zeros((4, 1)))
    return given


def ended(run):
    """The last script: rank 0 writes when the other worker has come to its end."""
    model, _ = run.model(CASE)
    run.train(model, CASE, 0, 2)
    table = table_of(model)
    if run.strategy is None or run.strategy.rank == 0:
        run.backend.set_value(table, run.backend.get_value(table) * 0.5)
        return {'end': run.backend.get_value(table)}
    return {}


def main(package, folder, names):
    keras, rank = cases.keras_module(package), os.environ['HOROVOD_RANK']
    for script in names:
        name, _, argument = script.partition(':')
        results = {}
        try:
            for kind in ('plain', 'ours'):
                keras.backend.clear_session()
                strategy = None
                if kind == 'ours':
                    case = cases.ENGINE_CASES[argument] if argument else CASE
                    strategy = kp.ParallaxStrategy(**case.strategy)
                own = os.path.join(folder, '%s.%s.%s' % (script, kind, rank))
                os.makedirs(own)
                run = Run(keras, package, own, strategy)
                given = globals()[name](run, *[argument] if argument else [])
                results.update(('%s.%s' % (kind, key), value) for key, value in given.items())
            np.savez(os.path.join(folder, '%s.%s.npz' % (script, rank)), **results)
        except Exception:
            print('SCRIPT %s FAILED\n%s' % (script, traceback.format_exc()), flush=True)
            raise


main(sys.argv[1], sys.argv[2], sys.argv[3:])
