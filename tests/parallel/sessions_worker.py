# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts that put into a session what Keras does not know of, and run steps in unusual ways.

Usage: sessions_worker.py FOLDER PACKAGE plain|strategy|config CASE... Each case is a script as it
is written for plain Keras, but for the strategy and the share of the data. It returns a dict of
arrays, which each worker writes to FOLDER/CASE.RANK.npz. With `config`, the strategy is one that is
given a configuration, and so is the session that Keras has before.
"""

import contextlib
import importlib
import os
import sys
import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
from frameworks import TF2, tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import reference  # noqa: E402
from raised import error_of  # noqa: E402

ROWS, LENGTH, BATCH, STEPS = 23, 3, 8, 4
#: The module of what TensorFlow 1 has in `tf.contrib.lookup`.
LOOKUP_TABLES = 'tensorflow.python.ops.lookup_ops' if TF2 else 'tensorflow.contrib.lookup'
WORDS = ['word%d' % number for number in range(ROWS)]


class Script(NamedTuple):
    """What a script needs.

    Attributes:
        keras: the Keras package.
        strategy: a `kp.ParallaxStrategy`, or `None` for plain Keras.
    """

    keras: Any
    strategy: Any

    @property
    def is_tensorflows(self):
        return self.keras is cases.keras_module('tf.keras')

    @property
    def rank(self):
        return self.strategy.rank if self.strategy else 0

    @property
    def size(self):
        return self.strategy.size if self.strategy else 1

    @property
    def session(self):
        return self.keras.backend.get_session()

    def scope(self):
        return self.strategy or contextlib.ExitStack()

    def dataset(self, seed=1, epochs=None, shuffle=False, feeds=None):
        """This worker's share of the batches: of each, every so-manieth sample.

        With `feeds`, a dict, the arrays are to be fed, and are put there.
        """
        random = np.random.RandomState(seed)
        samples = BATCH * STEPS
        ids = random.randint(0, ROWS, (samples, LENGTH)).astype(np.int32)
        targets = random.uniform(-1, 1, (samples, 1)).astype(np.float32)
        arrays = ids, targets
        if feeds is not None:
            arrays = tuple(tf.placeholder(array.dtype, array.shape) for array in arrays)
            feeds.update(zip(arrays, (ids, targets)))
        dataset = tf.data.Dataset.from_tensor_slices(arrays).repeat(epochs)
        dataset = dataset.map(lambda ids, targets: (tf.identity(ids), 2 * targets))
        if shuffle:
            dataset = dataset.shuffle(20, seed=5)
        if self.size > 1:
            dataset = dataset.shard(self.size, self.rank)
        return dataset.batch(BATCH // self.size).prefetch(1)

    def layers(self, ids):
        layers = self.keras.layers
        rows = layers.Embedding(ROWS, 4, name='table')(ids)
        return layers.Dense(1, name='out')(layers.Flatten()(rows))

    def optimizer(self, optimizer):
        import keras_parallax as kp

        if self.strategy:
            return kp.ParallaxOptimizer(optimizer)
        return reference.gated(optimizer)

    def compile(self, model, **arguments):
        optimizer = self.keras.optimizers.Adagrad(lr=0.1)
        model.compile(self.optimizer(optimizer), 'mse', **arguments)
        model.set_weights(cases.start_weights(model))
        return model

    def model(self, **arguments):
        ids = self.keras.layers.Input((LENGTH,), dtype='int32')
        return self.compile(self.keras.models.Model(ids, self.layers(ids)), **arguments)

    def model_of(self, iterator):
        """A model that reads an iterator; in `keras`, its tensors are the model's inputs."""
        if self.is_tensorflows:
            return self.model()
        ids, targets = iterator.get_next()
        ids.set_shape([None, LENGTH])
        ids = self.keras.layers.Input(tensor=ids)
        model = self.keras.models.Model(ids, self.layers(ids))
        return self.compile(model, target_tensors=[targets])

    def fit(self, model, iterator, epochs=2):
        if TF2:  # Keras does not take iterators any more.
            batch = iterator.get_next()
            for _ in range(epochs * STEPS):
                model.train_on_batch(*self.session.run(batch))
            return
        data = [iterator] if self.is_tensorflows else []
        model.fit(*data, epochs=epochs, steps_per_epoch=STEPS, verbose=0)

    def numpy_batches(self, seed=1):
        """This worker's batches as arrays."""
        graph = tf.Graph()
        with graph.as_default(), tf.Session(graph=graph) as session:
            batch = self.dataset(seed, 1).make_one_shot_iterator().get_next()
            return [session.run(batch) for _ in range(STEPS)]

    @property
    def steps_begun(self):
        """The number of training steps that the job knows of."""
        return self.strategy._job.activity.steps if self.strategy else 0


def weights_of(model):
    return {'weight.%d' % number: value for number, value in enumerate(model.get_weights())}


# --- What a session holds ----------------------------------------------------------------------


def fit_dataset(script):
    with script.scope():
        model = script.model()
    history = model.fit(
        script.dataset(epochs=2),
        epochs=2,
        steps_per_epoch=STEPS,
        validation_data=Script(script.keras, None).dataset(seed=2),
        validation_steps=2,
        verbose=0,
    )
    logs = {name: history.history[name] for name in ('loss', 'val_loss')}
    return dict(weights_of(model), **logs)


def _iterator_made(script, when, make, feeds=None):
    """Trains with an iterator of which one batch has been taken before the model was built."""

    def opened():
        iterator = make()
        if hasattr(iterator, '_initializer') and iterator._initializer is not None:
            script.session.run(iterator.initializer, feeds)
        script.session.run(iterator.get_next())
        return iterator

    iterator = opened() if when == 'before' else None
    with script.scope():
        if when == 'inside':
            iterator = opened()
        if when != 'after':
            model = script.model_of(iterator)
        else:
            model = script.model()
    if when == 'after':
        iterator = opened()
    script.fit(model, iterator)
    return weights_of(model)


def iterator_before(script):
    make = script.dataset(shuffle=True).make_initializable_iterator
    return _iterator_made(script, 'before', make)


def fed_before(script):
    feeds = {}
    make = script.dataset(feeds=feeds).make_initializable_iterator
    return _iterator_made(script, 'before', make, feeds)


def iterator_inside(script):
    return _iterator_made(script, 'inside', script.dataset().make_initializable_iterator)


def iterator_after(script):
    return _iterator_made(script, 'after', script.dataset().make_initializable_iterator)


def one_shot_before(script):
    return _iterator_made(script, 'before', script.dataset().make_one_shot_iterator)


def one_shot_inside(script):
    return _iterator_made(script, 'inside', script.dataset().make_one_shot_iterator)


def held_session(script):
    """A session taken before the first fit, handles of iterators, a queue, a default session."""
    with script.scope():
        session = script.session
        iterators = [script.dataset(seed).make_initializable_iterator() for seed in (1, 2)]
        handle = tf.placeholder(tf.string, [])
        shared = tf.data.Iterator.from_string_handle(
            handle, iterators[0].output_types, iterators[0].output_shapes
        )
        batch = shared.get_next()
        queue = tf.FIFOQueue(5, [tf.float32])
        put, taken = queue.enqueue([3.0]), queue.dequeue()
        session.run([iterator.initializer for iterator in iterators] + [put])
        handles = session.run([iterator.string_handle() for iterator in iterators])
        model = script.model()
    taken_before = session.make_callable(model.weights[1].value())
    with session.as_default():
        for step in range(2 * STEPS):
            model.train_on_batch(*session.run(batch, {handle: handles[step % 2]}))
    return dict(
        weights_of(model),
        taken=session.run(taken),
        bias=taken_before(),
        same=session.run(model.layers[-1].bias),
    )


def own_session(script):
    """A user's own session, as older scripts have it: they initialize everything by it."""
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    with tf.Session(config=config) as session:
        script.keras.backend.set_session(session)
        iterator = script.dataset().make_initializable_iterator()
        with script.scope():
            model = script.model_of(iterator)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        session.run(iterator.initializer)
        model.set_weights(cases.start_weights(model))
        script.fit(model, iterator)
        bias = session.run(model.layers[-1].bias)
        return dict(weights_of(model), bias=bias)


def entered_session(script):
    """A session of the script's own, entered and first run in the scope, as DeepCTR has it."""
    lookup, layers = importlib.import_module(LOOKUP_TABLES), script.keras.layers
    keys, values = tf.constant(WORDS), tf.constant(np.arange(ROWS))
    with script.scope():
        if TF2:
            filled = lookup.KeyValueTensorInitializer(keys, values)
            table = lookup.StaticHashTable(filled, -1)
        else:
            table = lookup.HashTable(lookup.KeyValueTensorInitializer(keys, values), -1)
        words = layers.Input((LENGTH,), dtype='string')
        ids = layers.Lambda(table.lookup, output_shape=(LENGTH,), dtype='int64')(words)
        model = script.keras.models.Model(words, script.layers(ids))
        model.compile(script.optimizer(script.keras.optimizers.Adagrad(lr=0.1)), 'mse')
        with tf.Session() as session:
            session.run(tf.tables_initializer())
            model.set_weights(cases.start_weights(model))
            for ids, targets in script.numpy_batches():
                model.train_on_batch(np.array(WORDS, object)[ids], targets)
            return dict(weights_of(model), bias=session.run(model.layers[-1].bias))


def frozen_graph(script):
    """The last rank freezes its graph alone. Plain tf.keras of TensorFlow 1.11 cannot freeze."""
    with script.scope():
        model = script.model()
    batches = script.numpy_batches()
    for batch in batches:
        model.train_on_batch(*batch)
    ids = np.arange(BATCH * LENGTH, dtype=np.int32).reshape(BATCH, LENGTH) % ROWS
    results = dict(weights_of(model), predicted=model.predict(ids))
    if script.rank == script.size - 1 and script.strategy:
        definition = script.session.graph.as_graph_def()
        output = model.outputs[0]
        frozen = tf.graph_util.convert_variables_to_constants(
            script.session, definition, [output.op.name]
        )
        with tf.Graph().as_default(), contextlib.closing(tf.Session()) as session:
            (again,) = tf.import_graph_def(frozen, return_elements=[output.name], name='')
            results['predicted'] = session.run(again, {model.inputs[0].name: ids})
        constants = [node for node in frozen.node if node.op == 'Const']
        sizes = [tf.make_ndarray(node.attr['value'].tensor).size for node in constants]
        results['largest'] = max(sizes)
        results['holders'] = len(
            [node for node in frozen.node if node.op.startswith('Var') or 'shard_' in node.name]
        )
    # The others go on meanwhile.
    model.train_on_batch(*batches[0])
    return results


def frozen_dynamic(script):
    """A graph that looks up a `DynamicEmbedding`, which plain Keras does not have."""
    if not script.strategy:
        return {}
    import keras_parallax as kp

    layers = script.keras.layers
    with script.scope():
        ids = layers.Input((LENGTH,), dtype='int64')
        rows = kp.layers.DynamicEmbedding(2, 100, name='dynamic')(ids)
        model = script.keras.models.Model(ids, layers.Dense(1)(rows))
        model.compile(script.optimizer(script.keras.optimizers.SGD(lr=0.1)), 'mse')
    model.train_on_batch(*[np.full((BATCH, LENGTH) + rest, 3) for rest in ((), (1,))])
    session, output = script.session, model.outputs[0].op.name
    freeze = tf.graph_util.convert_variables_to_constants
    return {'error': error_of(lambda: freeze(session, session.graph.as_graph_def(), [output]))}


def lookup_tables(script):
    """Words are looked up in tables: one filled before the scope, one inside, both by sessions."""
    lookup = importlib.import_module(LOOKUP_TABLES)
    vocabulary = lookup.index_table_from_tensor(WORDS)
    renamed = lookup.MutableHashTable(tf.int64, tf.int64, -1)
    numbers = np.arange(ROWS)
    script.session.run(tf.tables_initializer())
    script.session.run(renamed.insert(tf.constant(numbers), tf.constant(ROWS - 1 - numbers)))
    layers = script.keras.layers
    with script.scope():
        again = lookup.index_table_from_tensor(WORDS, name='again')
        back = lookup.index_to_string_table_from_tensor(WORDS)
        script.session.run(
            [getattr(table, 'initializer' if TF2 else 'init') for table in (again, back)]
        )

        def look_up(words):
            words = back.lookup(again.lookup(words))
            return renamed.lookup(vocabulary.lookup(words))

        words = layers.Input((LENGTH,), dtype='string')
        ids = layers.Lambda(look_up, output_shape=(LENGTH,), dtype='int64')(words)
        model = script.compile(script.keras.models.Model(words, script.layers(ids)))
    for ids, targets in script.numpy_batches():
        model.train_on_batch(np.array(WORDS, object)[ids], targets)
    return weights_of(model)


def eager_tables(script):
    """Lookup tables in layers and data sets, which the script does not initialize.

    Only plain Keras in a graph needs `initialize`.
    """
    lookup, numbers = importlib.import_module(LOOKUP_TABLES), np.arange(ROWS)
    layers, results = script.keras.layers, {}

    def initialize():
        if not script.strategy:
            script.session.run(tf.tables_initializer())

    with script.scope():
        words = layers.Input((LENGTH,), dtype='string')
        ids = layers.StringLookup(vocabulary=WORDS[1:], name='ids')(words)
        model = script.compile(script.keras.models.Model(words, script.layers(ids)))
        text = layers.Input((1,), dtype='string')
        split = layers.TextVectorization(vocabulary=WORDS[2:], output_sequence_length=LENGTH)
        of_text = script.keras.models.Model(text, split(text))
    batches = [(np.array(WORDS, object)[ids], values) for ids, values in script.numpy_batches()]
    initialize()
    results['first'] = model.predict(np.array(WORDS, object)[:LENGTH][None])
    for batch in batches:
        model.train_on_batch(*batch)
    results['split'] = of_text.predict(np.array([[' '.join(WORDS[::8])]], object)) + 0.0

    def named():
        keys, values = tf.constant(numbers), tf.constant(WORDS)
        table = lookup.StaticHashTable(lookup.KeyValueTensorInitializer(keys, values), '')
        return script.dataset().map(
            lambda ids, values: (table.lookup(tf.cast(ids, tf.int64)), values)
        )

    # Tables that appear when there is a step already, one of them in data.
    dataset = named()
    initialize()
    model.fit(dataset, epochs=1, steps_per_epoch=STEPS, verbose=0)
    return dict(weights_of(model), **results)


def not_copied(script):
    """An iterator over a generator of Python, begun before the scope."""
    dataset = tf.data.Dataset.from_generator(lambda: iter(range(9)), tf.int64)
    iterator = dataset.make_initializable_iterator()
    element = iterator.get_next()
    script.session.run(iterator.initializer)
    script.session.run(element)
    with script.scope():
        model = script.model()
    model.train_on_batch(*script.numpy_batches()[0])
    try:
        error, value = '', script.session.run(element)
    except RuntimeError as problem:
        error, value = '%s: %s' % (type(problem).__name__, problem), -1
    script.session.run(iterator.initializer)
    return dict(error=error, value=value, anew=script.session.run(element))


# --- Ways to run a step ------------------------------------------------------------------------


def _train(script, model, run_step, times=4):
    """Runs steps, and tells how many of them the job has counted."""
    before = script.steps_begun
    for _ in range(times):
        for batch in script.numpy_batches():
            run_step(*batch)
    measured = {}
    if script.strategy:
        step = model.optimizer._parallax_step
        density = step.runs.density.get('table/embeddings', 0.0)
        measured = {'density': density, 'connections': len(step.runs.connections)}
    counted = script.steps_begun - before
    return dict(weights_of(model), counted=counted, ran=times * STEPS, **measured)


def sparse_input(script):
    """Keras 2.2.4 runs a model with a sparse input by `session.run`."""
    import scipy.sparse

    layers = script.keras.layers
    with script.scope():
        ids = layers.Input((LENGTH,), dtype='int32')
        features = layers.Input((5,), sparse=True)
        hidden = layers.add([script.layers(ids), layers.Dense(1, name='wide')(features)])
        model = script.compile(script.keras.models.Model([ids, features], hidden))

    def run_step(ids, targets):
        features = scipy.sparse.csr_matrix(np.eye(ROWS, 5, dtype=np.float32)[ids[:, 0]])
        model.train_on_batch([ids, features], targets)

    return _train(script, model, run_step)


def traced(script):
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with script.scope():
        model = script.model(options=options, run_metadata=metadata)
    results = _train(script, model, model.train_on_batch)
    return dict(results, devices=len(metadata.step_stats.dev_stats))


def traced_dataset(script):
    """The batch is a tensor, which `tf.keras` feeds as such."""
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with script.scope():
        model = script.model(options=options, run_metadata=metadata)
    model.fit(script.dataset(), epochs=2, steps_per_epoch=STEPS, verbose=0)
    return dict(weights_of(model), devices=len(metadata.step_stats.dev_stats))


def _gate(script, model):
    """Has plain Keras, too, write the states of layers after the gradients are there."""
    model._make_train_function()
    if not script.strategy:
        reference.gate_updates(model)


def _recurrent(script, ids):
    """A layer that goes on from the states that its samples had in the batch before."""
    layers = script.keras.layers
    rows = layers.Embedding(ROWS, 4, name='table')(ids)
    return layers.Dense(1, name='out')(layers.LSTM(3, stateful=True)(rows))


def stateful_sparse_input(script):
    import scipy.sparse

    layers = script.keras.layers
    with script.scope():
        ids = layers.Input(batch_shape=(BATCH // script.size, LENGTH), dtype="int32")
        features = layers.Input((5,), sparse=True)
        hidden = layers.add([_recurrent(script, ids), layers.Dense(1, name='wide')(features)])
        model = script.compile(script.keras.models.Model([ids, features], hidden))
    _gate(script, model)

    def run_step(ids, targets):
        features = scipy.sparse.csr_matrix(np.eye(ROWS, 5, dtype=np.float32)[ids[:, 0]])
        model.train_on_batch([ids, features], targets)

    return _train(script, model, run_step)


def stateful_session_run(script):
    with script.scope():
        ids = script.keras.layers.Input(batch_shape=(BATCH // script.size, LENGTH), dtype='int32')
        model = script.compile(script.keras.models.Model(ids, _recurrent(script, ids)))
    _gate(script, model)
    return _train(script, model, _session_run(script, model, model.train_function.updates_op))


def _by_hand(script, make_run):
    with script.scope():
        model = script.model()
    model._make_train_function()
    run = make_run(script, model, model.train_function.updates_op)
    return _train(script, model, run)


def _fed(model):
    """What is fed: a model's inputs, its targets, and its sample weights where it has some."""
    if TF2:
        return model._feed_inputs + model._feed_targets
    return [model.inputs[0], model.targets[0], model.sample_weights[0]]


def _session_run(script, model, update):
    fed = _fed(model)

    def run(ids, values):
        feeds = dict(zip(fed, [ids, values, np.ones(len(ids))]))
        script.session.run([update, model.total_loss], feeds)

    return run


def session_run(script):
    return _by_hand(script, _session_run)


def control_dependency(script):
    """The step runs before a tensor that is fetched, in a function made of the session."""

    def make_run(script, model, update):
        with tf.control_dependencies([update]):
            after = tf.constant(1.0)
        feeds = _fed(model)
        function = script.session.make_callable(after, feeds)
        return lambda ids, values: function(*[ids, values, np.ones(len(ids))][: len(feeds)])

    return _by_hand(script, make_run)


def threads_that_read(script):
    """Threads read, by a session of before the scope and by Keras, and predict, from the start.

    Plain Keras trains without them: what its threads build is mixed up.
    """
    session, backend, over = script.session, script.keras.backend, threading.Event()
    with script.scope():
        model = script.model()
    bias, ids = model.layers[-1].bias, script.numpy_batches()[0][0]
    session.run(bias)
    ways = {
        'session.run': lambda: session.run(bias).shape == (1,),
        'get_value': lambda: backend.get_value(bias).shape == (1,),
        'predict': lambda: model.predict_on_batch(ids).shape == (len(ids), 1),
    }
    outcomes = {way: [] for way in ways}

    def keep_reading(way):
        with session.graph.as_default():
            while not over.wait(0.001):
                try:
                    outcomes[way].append(ways[way]())
                except Exception as error:
                    outcomes[way].append('%s: %s: %s' % (way, type(error).__name__, error))
                    return

    readers = [threading.Thread(target=keep_reading, args=[way]) for way in ways]
    for thread in readers if script.strategy else ():
        thread.start()
    try:
        results = _train(script, model, model.train_on_batch)
    finally:
        over.set()
        for thread in readers if script.strategy else ():
            thread.join()
    wrong = [str(outcome) for read in outcomes.values() for outcome in read if outcome is not True]
    return dict(results, wrong=np.array(wrong, str), least=min(map(len, outcomes.values())))


# --- Configurations ----------------------------------------------------------------------------


def configured(keras):
    """A strategy as in Horovod's recipe, with a configuration of its own besides."""
    import horovod.tensorflow as hvd

    import keras_parallax as kp

    hvd.init()
    config = tf.ConfigProto(intra_op_parallelism_threads=3)
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    keras.backend.set_session(tf.Session(config=config))
    return kp.ParallaxStrategy(config=tf.ConfigProto(inter_op_parallelism_threads=5))


def followed_config(script):
    """What the sessions and the server follow, before and after there is a table."""
    layers, strategy = script.keras.layers, script.strategy
    configs = []
    with script.scope():
        inputs = layers.Input((LENGTH,))
        model = script.keras.models.Model(inputs, layers.Dense(1)(inputs))
        script.compile(model)
    configs.append(script.session._config)
    with script.scope():
        model = script.model()
    model.train_on_batch(*script.numpy_batches()[0])
    configs.append(script.session._config)
    server = strategy._server
    configs.append(server.server_def.default_session_config if server else configs[-1])
    return {'config.%d' % number: str(config) for number, config in enumerate(configs)}


def refused_config(script):
    """What is said to configurations that a job cannot follow, or cannot follow any more."""
    import keras_parallax as kp

    results = {}
    for name, config in (
        ('same', tf.ConfigProto(inter_op_parallelism_threads=5)),
        ('other', tf.ConfigProto(inter_op_parallelism_threads=6)),
        ('filters', tf.ConfigProto(device_filters=['/job:worker'])),
        ('dict', {'allow_growth': True}),
    ):
        try:
            kp.ParallaxStrategy(config=config)
            results[name] = ''
        except kp.ParallaxError as error:
            results[name] = '%s: %s' % (type(error).__name__, error)
    config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    script.keras.backend.set_session(tf.Session(config=config))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        with script.scope():
            script.model()
    own = [str(warning.message) for warning in caught]
    results['warned'] = '; '.join(text for text in own if 'ParallaxStrategy(config=' in text)
    return results


def threads_of_operations(script):
    """The threads of a process whose operations may have so many, as the environment says."""
    import keras_parallax as kp

    number = int(os.environ['THREADS'])
    strategy = kp.ParallaxStrategy(config=tf.ConfigProto(intra_op_parallelism_threads=number))
    script = script._replace(strategy=strategy)
    with script.scope():
        model = script.model()
    model.train_on_batch(*script.numpy_batches()[0])
    return {'threads': len(os.listdir('/proc/self/task'))}


def main(folder, package, how, *names):
    strategy, keras = None, cases.keras_module(package)
    if how == 'config':
        strategy = configured(keras)
    elif how == 'strategy':
        import keras_parallax as kp

        strategy = kp.ParallaxStrategy()
    for name in names:
        script = Script(keras, strategy)
        if name != 'followed_config':
            keras.backend.clear_session()
        results = globals()[name](script)
        np.savez(os.path.join(folder, '%s.%d.npz' % (name, script.rank)), **results)
        print('CASE %s of rank %d is over.' % (name, script.rank), flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
