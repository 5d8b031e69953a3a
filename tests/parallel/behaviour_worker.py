# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: behaviours of a job, as each worker sees them, one after the other.

Usage: behaviour_worker.py FOLDER PACKAGE BEHAVIOUR[:ARGUMENT]... Each worker writes what the
function called BEHAVIOUR returns, a dict of arrays, lists of arrays and strings, to
FOLDER/BEHAVIOUR[:ARGUMENT]/RANK.npz.
"""

import contextlib
import os
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from frameworks import tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import own_optimizers  # noqa: E402
import reference  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.compat import graph_queries  # noqa: E402
from keras_parallax.engine.job import devices  # noqa: E402
from keras_parallax.engine.session import graph_sessions  # noqa: E402
from keras_parallax.engine.step import train_step  # noqa: E402
from keras_parallax.engine.tables import initial_values  # noqa: E402
from keras_parallax.tuning.moves import replan  # noqa: E402

RANKS = 2
#: Of the table in TensorBoard.
SAMPLED_ROWS = 7


class Rank(NamedTuple):
    """This process.

    Attributes:
        keras: the Keras package.
        package: its name.
        folder: where files go.
        strategy: the strategy.
        number: the rank.
    """

    keras: Any
    package: str
    folder: str
    strategy: Any
    number: int

    def compile(self, model, case, **wrap):
        optimizer = cases.CASES[case].optimizer(self.keras)
        model.compile(
            kp.ParallaxOptimizer(optimizer, keras=self.package, **wrap), 'mse', metrics=['mae']
        )

    def model(self, case='adagrad', build=None, equal=True, **wrap):
        """A compiled model, with `equal` start weights on all workers or others on each."""
        with self.strategy or contextlib.ExitStack():
            model = (build or cases.CASES[case].model)(self.keras)
            self.compile(model, case, **wrap)
        factor = 1 if equal else 1 + self.number
        model.set_weights([factor * weight for weight in cases.start_weights(model)])
        return model

    def batches(self, begin, end, case='adagrad'):
        """This worker's batches of the steps from `begin` to `end`."""
        return cases.batches(cases.CASES[case], RANKS, begin, end, self.number)

    def data(self, begin, end):
        """The same batches, for one call of `fit`."""
        ids, targets = zip(*self.batches(begin, end))
        return np.concatenate(ids), np.concatenate(targets)

    def train(self, model, begin, end):
        return cases.train(model, self.batches(begin, end))

    def fit(self, model, begin, end, callbacks=(), epochs=1, **arguments):
        return model.fit(
            *self.data(begin, end),
            batch_size=cases.joined_size(cases.CASES['adagrad'], RANKS) // RANKS,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=list(callbacks),
            **arguments,
        )

    def barrier(self):
        from keras_parallax.engine.job import job

        job.start().barrier()

    def note(self, model, notes):
        """A callback that notes the weights with which training begins."""
        return self.keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: notes.extend(model.get_weights())
        )


# --- fit and callbacks -------------------------------------------------------------------------


def fit(rank):
    model, notes = rank.model(equal=False), []
    own = model.get_weights()
    ids, targets = rank.data(20, 23)
    callbacks = [
        kp.callbacks.BroadcastGlobalVariablesCallback(0),
        rank.note(model, notes),
        kp.callbacks.MetricAverageCallback(),
        rank.keras.callbacks.ReduceLROnPlateau('loss', factor=0.5, patience=1, min_delta=0.03),
        rank.keras.callbacks.EarlyStopping('loss', patience=9),
    ]
    # The workers may have unequal amounts of data to validate on.
    held_out = (ids[: 6 * (1 + rank.number)], targets[: 6 * (1 + rank.number)])
    history = rank.fit(model, 0, 8, callbacks, epochs=6, validation_data=held_out)
    history = {'history ' + name: values for name, values in history.history.items()}
    return dict(history, own=own, start=notes, end=model.get_weights())


def step_metrics(rank):
    model = rank.model()
    log = os.path.join(rank.folder, 'log-%d.csv' % rank.number)
    on_batches = []

    def wait(batch, logs):
        # Far longer than a busy machine holds one of them up.
        time.sleep(0.5 * rank.number)
        on_batches.append(dict(logs))

    callbacks = [
        # Before the one whose numbers it writes.
        rank.keras.callbacks.CSVLogger(log),
        rank.keras.callbacks.LambdaCallback(on_batch_end=wait),
        kp.callbacks.StepMetrics(per_table=True, every=2),
    ]
    history = rank.fit(model, 0, 4, callbacks, epochs=2).history
    plan = rank.strategy.plan(model)
    (table,) = [one for one in plan.variables if one.shards]
    return dict(
        {'history ' + name: values for name, values in history.items()},
        on_batches=[logs['rows/touched'] for logs in on_batches],
        machines=[shard.server for shard in table.shards],
        shape=table.shape,
        table=table.name,
        dense_bytes=plan.predict().totals['plan'].sent,
        after=model.train_on_batch(*rank.batches(4, 5)[0]),
        end=model.get_weights(),
    )


def accumulated(rank):
    model = rank.model(accumulate_steps=2)
    metrics = kp.callbacks.StepMetrics()
    history = rank.fit(model, 0, 5, [metrics], epochs=2).history
    plan = rank.strategy.plan(model)
    (table,) = [one for one in plan.variables if one.shards]
    end = model.get_weights()
    other = rank.model(accumulate_steps=2 + rank.number)
    try:
        rank.train(other, 0, 1)
    except kp.ModelMismatchError as error:
        refusal = str(error)
    return dict(
        {'history ' + name: values for name, values in history.items()},
        machines=[shard.server for shard in table.shards],
        shape=table.shape,
        dense_bytes=plan.predict().totals['plan'].sent,
        dense_size=sum(one.bytes for one in plan.variables if not one.shards),
        iterations=rank.keras.backend.get_value(model.optimizer.iterations),
        refusal=refusal,
        end=end,
    )


def profile(rank):
    def build(keras):
        # The step pulls the rows of both tables at once, and the model does not.
        inputs = [keras.layers.Input((cases.LENGTH,)) for _ in range(2)]
        tables = [keras.layers.Embedding(cases.ROWS, 4, name=name) for name in ('words', 'items')]
        looked_up = [table(ids) for table, ids in zip(tables, inputs)]
        hidden = keras.layers.Flatten()(keras.layers.concatenate(looked_up))
        return keras.models.Model(inputs, keras.layers.Dense(1)(hidden))

    ids, targets = rank.data(0, 6)
    ends, written = [], os.path.join(rank.folder, 'profile')
    profile = kp.callbacks.Profile(written, steps=(2, 4))
    short = kp.callbacks.Profile(os.path.join(rank.folder, 'short'), steps=(4, 9), ranks=[1, 5])
    file = os.path.join(rank.folder, 'file')
    if rank.number == 0:
        with open(file, 'w') as opened:
            opened.write('no folder')
    refused = kp.callbacks.Profile(os.path.join(file, 'profile'), steps=(1, 2))
    for callbacks in ([], [profile], [short, refused]):
        model = rank.model(build=build)
        model.set_weights(cases.start_weights(model))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            model.fit(
                [ids, ids[::-1]],
                targets,
                len(ids) // 6,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        ends.append(np.concatenate([np.ravel(weight) for weight in model.get_weights()]))
    told = [str(one.message) for one in caught if 'Profile' in str(one.message)]
    return {'ends': ends, 'told': '\n'.join(told)}


def second_fit(rank):
    model = rank.model('adam')
    broadcast = [kp.callbacks.BroadcastGlobalVariablesCallback(0)]
    rank.fit(model, 0, 4, broadcast)
    rank.fit(model, 4, 8, broadcast)
    rank.fit(model, 8, 12)
    rank.train(model, 12, 16)
    return {'end': model.get_weights()}


def generators(rank):
    class Batches(rank.keras.utils.Sequence):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return rank.batches(8, 12)[index]

    def forever():
        while True:
            yield from rank.batches(0, 8)

    model = rank.model()
    model.fit_generator(
        forever(), 4, epochs=2, verbose=0, validation_data=forever(), validation_steps=2
    )
    model.fit_generator(Batches(), epochs=2, shuffle=False, verbose=0, validation_data=Batches())
    return {'end': model.get_weights(), 'predicted': model.predict_generator(Batches())}


def broadcast_from_1(rank):
    model = rank.model()
    callback = kp.callbacks.BroadcastGlobalVariablesCallback(1)
    return {'error': error_of(rank.fit, model, 0, 4, [callback])}


def horovod_callback(rank, case):
    if rank.package == 'keras':
        import horovod.keras as hvd
    else:
        import horovod.tensorflow.keras as hvd
    model = rank.model(case)
    rank.fit(model, 0, 8, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    return {'end': model.get_weights()}


def schedule(rank, case):
    """Adagrad's rate falls epoch by epoch, that of SGD with momentum batch by batch."""
    model = rank.model(case)
    callback = kp.callbacks.LearningRateScheduleCallback(
        lambda epoch: 0.5**epoch, staircase=case == 'adagrad', initial_lr=0.1
    )
    rank.fit(model, 0, 4, [callback], epochs=4)
    return {'end': model.get_weights()}


def warmup(rank):
    model, rates = rank.model(), []
    backend = rank.keras.backend
    callbacks = [
        kp.callbacks.LearningRateWarmupCallback(warmup_epochs=2, initial_lr=0.2),
        rank.keras.callbacks.LambdaCallback(
            on_batch_end=lambda batch, logs: rates.append(
                float(backend.get_value(model.optimizer.lr))
            )
        ),
    ]
    rank.fit(model, 0, 4, callbacks, epochs=3)
    return {'rates': np.array(rates), 'end': model.get_weights()}


def checkpoint(rank):
    """Rank 0 alone saves after each epoch, while the others begin the next one."""
    model = rank.model()
    callbacks = [kp.callbacks.BroadcastGlobalVariablesCallback(0)]
    if rank.strategy.is_chief:
        path = os.path.join(rank.folder, '{epoch}.h5')
        callbacks.append(rank.keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
    rank.fit(model, 0, 4, callbacks, epochs=3)
    return {'end': model.get_weights()}


def graphs(rank):
    """Each worker writes its graph, and tells its operations."""
    rank.fit(rank.model(), 0, 4, [kp.callbacks.GraphExport(rank.folder)])
    operations = tf.get_default_graph().get_operations()
    return {'operations': np.array([operation.name for operation in operations])}


def tensor_board(rank):
    """Both workers have the callback, with folders of their own."""
    board = kp.callbacks.TensorBoard(
        os.path.join(rank.folder, 'rank-%d' % rank.number),
        histogram_freq=1,
        write_grads=True,
        write_images=True,
        embeddings_freq=2,
        sampled_rows=SAMPLED_ROWS,
    )
    model = rank.model()
    # The same on both workers, and one batch here and in one process.
    held_out = cases.batches(cases.CASES['adagrad'], RANKS, 20, 21, 0)[0]
    rank.fit(model, 0, 4, [board], epochs=3, validation_data=held_out)
    return {'end': model.get_weights()}


# --- One worker alone ----------------------------------------------------------------------------


def alone(rank):
    """Each worker in turn predicts and evaluates, while the other has begun its next step."""
    model = rank.model()
    rank.train(model, 0, 3)
    ids, targets = rank.data(10, 13)
    results = {}
    for turn in range(RANKS):
        if rank.number == turn:
            # Longer than the workers' watch over each other takes to look around.
            until = time.time() + 1.5
            while time.time() < until:
                results['predicted'] = model.predict(ids)
            results['evaluated'] = model.evaluate(ids, targets, verbose=0)
            results['weights'] = model.get_weights()
        rank.train(model, 3 + turn, 4 + turn)
    return dict(results, end=model.get_weights())


def whole_tables(rank):
    model = rank.model()
    rank.train(model, 0, 3)
    trained, path = model.get_weights(), os.path.join(rank.folder, 'weights.h5')
    rank.barrier()
    if rank.number == 0:
        model.save_weights(path)
        model.set_weights([2 * weight for weight in trained])
    was_set, was_loaded = [], []
    broadcast = kp.callbacks.BroadcastGlobalVariablesCallback(0)
    rank.fit(model, 3, 6, [broadcast, rank.note(model, was_set)])
    after_set = model.get_weights()
    rank.barrier()
    if rank.number == 0:
        model.load_weights(path)
    rank.fit(model, 6, 9, [broadcast, rank.note(model, was_loaded)])
    return {
        'trained': trained,
        'set': was_set,
        'after set': after_set,
        'loaded': was_loaded,
        'end': model.get_weights(),
    }


# --- Several models on one table ---------------------------------------------------------------


def new_lookup(rank):
    model = rank.model()
    rank.train(model, 0, 3)
    random, results = np.random.RandomState(rank.number), {}
    ids = rank.keras.layers.Input((cases.LENGTH,))
    view = rank.keras.models.Model(ids, model.get_layer('table')(ids))
    for name, begin in (('first', 3), ('second', 5)):
        looked_up = random.randint(0, cases.ROWS, (10, cases.LENGTH))
        rows, table = view.predict(looked_up), model.get_weights()[0]
        results.update({name + ' found': rows, name + ' expected': table[looked_up]})
        # A new lookup in a model that trains: its gradients count too.
        rank.barrier()
        rank.train(model, begin, begin + 2)
    with rank.strategy:
        out = rank.keras.layers.Dense(1)(rank.keras.layers.Flatten()(view.output))
        other = rank.keras.models.Model(ids, out)
        rank.compile(other, 'adagrad')
    results['start'] = cases.start_weights(other)
    other.set_weights(results['start'])
    rank.train(other, 7, 11)
    results['bad'] = error_of(view.predict, np.full((1, cases.LENGTH), cases.ROWS))
    return dict(results, end=other.get_weights())


def tied_reader(rank):
    """Other models of the scope read the table whole, built before and after it was sharded."""
    layers, models = rank.keras.layers, rank.keras.models

    def reader():
        hidden = layers.Input((cases.WIDTH,))
        table = model.get_layer('table')
        scores = layers.Lambda(
            lambda x: tf.matmul(x, tf.convert_to_tensor(table.embeddings), transpose_b=True),
            output_shape=(cases.ROWS,),
        )
        return models.Model(hidden, scores(hidden))

    with rank.strategy:
        model = cases.embed_and_sum()(rank.keras)
        before = reader()
        rank.compile(model, 'adagrad')
    model.set_weights(cases.start_weights(model))
    hidden = np.random.RandomState(rank.number).normal(size=(5, cases.WIDTH))
    results = {'new': before.predict(hidden)}
    rank.train(model, 0, 3)
    after = reader()
    results['kind'] = rank.strategy.plan(model)['table/embeddings'].kind
    results.update(before=before.predict(hidden), after=after.predict(hidden))
    rank.barrier()
    rank.train(model, 3, 5)
    results.update({'later before': before.predict(hidden), 'later after': after.predict(hidden)})
    return dict(results, hidden=hidden, end=model.get_weights())


def towers(rank):
    """Two towers share a table; the left one alone predicts from its own input."""
    parts = []

    def build(keras):
        model = cases.shared(keras)
        left = model.inputs[0]
        tower = keras.layers.Flatten()(model.get_layer('table')(left))
        parts.append(keras.models.Model(left, tower))
        # Besides a lookup of its own, the one that the whole model trains.
        trained = model.get_layer('table').get_output_at(0)
        parts.append(keras.models.Model(left, trained))
        return model

    model = rank.model('shared', build)
    ids = np.random.RandomState(rank.number).randint(0, cases.ROWS, (7, cases.LENGTH))
    results = {'ids': ids, 'new': [part.predict(ids) for part in parts]}
    results['table'] = model.get_weights()[0]
    for batch in rank.batches(0, 4, 'shared'):
        model.train_on_batch(*batch)
    results['trained'] = [part.predict(ids) for part in parts]
    return dict(results, end=model.get_weights())


def two_models(rank):
    """Two models of one optimizer, with tables whose shards are of equal size on both workers."""

    def build(keras):
        layers = [keras.layers.Embedding(24, cases.WIDTH, input_length=cases.LENGTH)]
        return keras.models.Sequential(layers + [keras.layers.Flatten(), keras.layers.Dense(1)])

    first, second = rank.model('adam', build), rank.model('adam', build)
    rank.train(first, 0, 4)
    rank.train(second, 0, 4)
    rank.train(first, 4, 8)
    return {'end': first.get_weights() + second.get_weights()}


def tables_later(rank, moved):
    """A model without tables trains, then one with a table, then the first one again."""
    if moved == 'in_blocks':
        # Of more than a number; 32 MiB would take long.
        graph_sessions.COPY_BYTES = 8

    def dense(keras):
        layers = [keras.layers.Dense(3, input_shape=(cases.LENGTH,)), keras.layers.Dense(1)]
        return keras.models.Sequential(layers)

    def session():
        found = rank.keras.backend.get_session()
        return found.sess_str.decode(), found._config.graph_options.optimizer_options.opt_level

    first = rank.model('adam', dense)
    rank.train(first, 0, 4)
    sessions = [session()]
    second = rank.model('adam')
    sessions.append(session())
    rank.train(second, 0, 4)
    rank.train(first, 4, 8)
    return {'sessions': sessions, 'end': first.get_weights() + second.get_weights()}


def recompile(rank):
    model = rank.model()
    rank.train(model, 0, 4)
    for number, case in enumerate(('adam', 'momentum', 'adagrad'), 1):
        with rank.strategy:
            rank.compile(model, case)
        rank.train(model, 4 * number, 4 * number + 4)
    return {'end': model.get_weights()}


# --- Arguments of ParallaxOptimizer ------------------------------------------------------------


def reduction_sum(rank):
    model = rank.model('sgd', sparse_reduction='sum')
    rank.train(model, 0, 1)
    return {'end': model.get_weights()}


def lazy(rank):
    model = rank.model('adam', sparse_update='lazy')
    rank.train(model, 0, 10)
    return {'end': model.get_weights()}


def of_tables(rank):
    with rank.strategy:
        own = rank.keras.optimizers.Adagrad(lr=0.2, epsilon=0.01)
    model = rank.model('sgd', tables=own)
    rank.train(model, 0, 10)
    return {'end': model.get_weights()}


def waiting(rank):
    """Which tables' rows a step has when it asks for those of each."""
    with rank.strategy:
        model = cases.two_stages(rank.keras)
        model.compile(kp.ParallaxOptimizer(rank.keras.optimizers.SGD()), 'mse')
    losses = [
        model.train_on_batch(*cases.two_kinds_of_ids(np.random.RandomState(n), 6)) for n in (0, 1)
    ]
    step = train_step.step_of(model)
    replaced = {pair.replaced: pair.replacement for pair in step.runs.connections}
    words, classes = (table.pulls[0].rows for table in step.tables.values())
    needed = graph_queries.ancestors([replaced[classes]])
    return {'words': words in replaced, 'classes': words.op in needed, 'losses': losses}


def told(rank, case):
    """What waits on the other worker's server for an operation of this one, beside what it gets."""
    model = rank.model(case)
    model._make_train_function()
    step = graph_queries.ancestors([model.train_function.updates_op])
    device = tf.DeviceSpec.from_string(devices.shard_device(1 - rank.number)).to_string()
    there = [op for op in step if op.device == device]
    waits = [
        '%s for %s' % (op.name, other.name)
        for op in there
        for other in op.control_inputs
        if other.device != device
    ]
    return {'there': len(there), 'waits': '; '.join(waits)}


def pulled_once(rank):
    """How often a step asks the other worker's server for rows, and which it gets for a batch."""
    model = rank.model('shared')
    batch = next(cases.joined_batches(cases.CASES['shared'], RANKS))
    mine = cases.share(batch, rank.number, RANKS)
    losses = model.train_on_batch(*mine)
    step = train_step.step_of(model)
    replaced = {pair.replaced: pair.replacement for pair in step.runs.connections}
    (table,) = step.tables.values()
    rows = [replaced.get(pull.rows, pull.rows) for pull in table.pulls]
    device = tf.DeviceSpec.from_string(devices.shard_device(1 - rank.number)).to_string()
    asked = [
        operation
        for operation in graph_queries.ancestors(rows)
        if operation.type in ('Gather', 'GatherV2', 'ResourceGather') and operation.device == device
    ]
    session = rank.keras.backend.get_session()
    feed = dict(zip(model.inputs, mine[0]))
    found = session.run([operation.outputs[0] for operation in asked], feed)
    wanted = [ids for ids in np.unique(mine[0]) if ids % RANKS == 1 - rank.number]
    return {'got': [len(of) for of in found], 'wanted': [len(wanted)], 'losses': losses}


def fp16(rank):
    model = rank.model(compression=kp.Compression.fp16)
    losses = rank.train(model, 0, 20)
    return {'end': model.get_weights(), 'losses': losses}


def measured(rank, case):
    """Four tables, each in one piece on one of two servers; two of them are touched much more."""
    keras, results = rank.keras, {}
    keras.backend.clear_session()
    strategy = kp.ParallaxStrategy(partitions=1)
    with strategy:
        model = cases.tables_in_one_piece(keras)
        optimizer = cases.CASES[case].optimizer(keras)
        model.compile(kp.ParallaxOptimizer(optimizer, keras=rank.package), 'mse')
    model.set_weights(cases.start_weights(model))
    touched, hot = [], cases.CASES[case]._replace(batch=cases.every_second_table_is_hot)
    for step, batch in enumerate(cases.joined_batches(hot, RANKS, 20)):
        mine = cases.share(batch, rank.number, RANKS)
        model.train_on_batch(*mine)
        touched.append([len(np.unique(ids)) / cases.ROWS for ids in mine[0]])
        if step in (8, 19):
            plan = strategy.plan(model)
            tables = [plan['table_%d/embeddings' % number] for number in range(4)]
            loads = plan.predict().server_loads
            name = 'before' if step == 8 else 'after'
            results[name + ' servers'] = [table.shards[0].server for table in tables]
            results[name + ' traffic'] = [load.traffic_share or np.nan for load in loads]
    results['density'] = [table.density for table in tables]
    results['touched'] = np.mean(touched[:10], 0)
    results['summary'] = ''
    strategy.summary(model, lambda text: results.update(summary=text))
    return dict(results, end=model.get_weights())


def shared_trainers(rank, asked):
    """Two models train one table in turn, where it would change its shards or become dense."""
    rank.keras.backend.clear_session()
    # Nobody has searched for this model before.
    os.environ['KERAS_PARALLAX_CACHE'] = rank.folder
    rank = rank._replace(strategy=kp.ParallaxStrategy(**eval(asked)))
    with rank.strategy:
        models = cases.two_on_one_table(rank.keras)
        for model in models:
            rank.compile(model, 'adam')
    for model in models:
        model.set_weights(cases.start_weights(model))
    for step in range(13):
        for model in models:
            rank.train(model, step, step + 1)
    return {'end': [weight for model in models for weight in model.get_weights()]}


def joined_later(rank, architecture):
    """Two models train one table; the first has been moved before, and is compiled again."""
    rank.keras.backend.clear_session()
    rank = rank._replace(strategy=kp.ParallaxStrategy())
    with rank.strategy:
        models = cases.two_on_one_table(rank.keras)
        for model in models:
            rank.compile(model, 'sgd')
    for model in models:
        model.set_weights(cases.start_weights(model))
    first, second = models
    rank.train(first, 0, 2)
    step = train_step.step_of(first)
    replan(step, step.request._replace(architecture=architecture))
    for model in (first, second, first):
        rank.train(model, 2, 4)
    with rank.strategy:
        rank.compile(first, 'sgd')
    for model in (first, second):
        rank.train(model, 4, 6)
    exchanges = np.array([one.exchange for one in rank.strategy.plan(first).variables])
    weights = [weight for model in models for weight in model.get_weights()]
    return {'end': weights, 'exchanges': exchanges}


def regularized_again(rank):
    """A model whose table has a regularizer is compiled a second time."""
    model = cases.CASES['regularized'].model(rank.keras)
    with rank.strategy:
        rank.compile(model, 'adam')
    model.set_weights(cases.start_weights(model))
    rank.train(model, 0, 2)
    with rank.strategy:
        rank.compile(model, 'adam')
    rank.train(model, 2, 6)
    return {'end': model.get_weights()}


def cannot_move(rank):
    """An optimizer of TensorFlow's that keeps more than numbers besides its slots."""

    class WithVector(tf.train.GradientDescentOptimizer):
        def _create_slots(self, var_list):
            first = min(var_list, key=lambda variable: variable.name)
            self._create_non_slot_variable(np.zeros(3, np.float32), 'vector', first)

    errors = {}
    for name, asked in (
        ('search', {'partitions': 'search'}),
        ('auto', {'architecture': 'auto'}),
        ('hybrid', {}),
        ('given', {'architecture': 'auto', 'density': {'table/embeddings': 0.5}}),
    ):
        rank.keras.backend.clear_session()
        with kp.ParallaxStrategy(**asked):
            # Too large to be dense whatever is measured.
            model = cases.wide(cases.LENGTH, regularized=False)(rank.keras)
            model.compile(kp.ParallaxOptimizer(WithVector(0.1), keras=rank.package), 'mse')
        batch = rank.batches(0, 1)[0]
        errors[name] = error_of(model.train_on_batch, *batch)
    return errors


def refused_formulas(rank):
    """Optimizers of users that would update by what one worker alone knows."""
    backend, base = rank.keras.backend, rank.keras.optimizers.SGD

    class OfSomethingElse(base):
        def get_gradients(self, loss, params):
            return backend.gradients(2 * loss, params)

    class ByLoss(base):
        def get_updates(self, loss, params):
            gradients = self.get_gradients(loss, params)
            self.updates = [backend.update_add(self.iterations, 1)]
            self.updates += [
                backend.update(p, p - self.lr * loss * g) for p, g in zip(params, gradients)
            ]
            return self.updates

    optimizers = {
        'something_else': lambda: OfSomethingElse(0.1),
        'loss': lambda: ByLoss(0.1),
        'slices': lambda: own_optimizers.slices_clipped(rank.keras),
        'tensors': lambda: own_optimizers.clipped_together(rank.keras),
    }
    errors = {}
    for name in sorted(optimizers):
        backend.clear_session()
        with kp.ParallaxStrategy():
            case = 'regularized' if name in ('slices', 'tensors') else 'adagrad'
            model = cases.CASES[case].model(rank.keras)
            model.compile(optimizers[name](), 'mse')
        errors[name] = error_of(model.train_on_batch, *rank.batches(0, 1)[0])
    return errors


def initializer_after_summary(rank):
    """A summary before the first step, after which owners make the table's start values."""
    made, value_sources = [], initial_values.value_sources

    def noting(*arguments):
        made.append(value_sources(*arguments))
        return made[-1]

    initial_values.value_sources = noting
    try:
        with rank.strategy:
            model = cases.CASES['sgd'].model(rank.keras)
            rank.compile(model, 'sgd')
            rank.strategy.summary(model, print_fn=len)
        rank.train(model, 0, 1)
    finally:
        initial_values.value_sources = value_sources
    (sources,) = made
    return {
        'held': [source.held for source in sources.values()],
        'initializers': [bool(source.initializer) for source in sources.values()],
    }


def interleaved_slots(rank):
    """Files of an optimizer that lists the slots of one variable side by side, both ways."""
    keras, half, end = rank.keras, 4, 8
    optimizer = type(own_optimizers.OWN['layerwise_adam'](keras))
    joined = list(cases.joined_batches(cases.CASES['adagrad'], RANKS, end))
    ours, plain = [os.path.join(rank.folder, name) for name in ('ours.h5', 'plain.h5')]
    plain += '.%d' % rank.number

    def load(path, cls):
        return keras.models.load_model(path, custom_objects={optimizer.__name__: cls})

    def values(model):
        return model.get_weights() + model.optimizer.get_weights()

    # Of a graph of its own, without a scope.
    keras.backend.clear_session()
    model = cases.CASES['adagrad'].model(keras)
    model.compile(reference.gated_as(optimizer).from_config({}), 'mse')
    model.set_weights(cases.start_weights(model))
    for batch in joined[:half]:
        model.train_on_batch(*batch)
    model.save(plain)
    for batch in joined[half:]:
        model.train_on_batch(*batch)
    found = {'plain': values(model)}

    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = cases.CASES['adagrad'].model(keras)
        model.compile(optimizer(), 'mse')
    model.set_weights(cases.start_weights(model))
    for batch in rank.batches(0, half):
        model.train_on_batch(*batch)
    model.save(ours)
    for batch in rank.batches(half, end):
        model.train_on_batch(*batch)
    found['unbroken'] = values(model)

    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = load(plain, optimizer)
    for batch in rank.batches(half, end):
        model.train_on_batch(*batch)
    found['from_plain'] = values(model)

    keras.backend.clear_session()
    rank.barrier()
    model = load(ours, reference.gated_as(optimizer))
    for batch in joined[half:]:
        model.train_on_batch(*batch)
    found['from_ours'] = values(model)
    return found


def set_after_summary(rank):
    """Weights are set between a summary and the first step, in a scope that is still open."""
    with rank.strategy:
        # Before the model, so that its momentum has no value yet when the summary asks for it.
        momentum = cases.CASES['momentum'].optimizer(rank.keras)
        optimizer = kp.ParallaxOptimizer(momentum, keras=rank.package)
        model = cases.CASES['momentum'].model(rank.keras)
        model.compile(optimizer, 'mse', metrics=['mae'])
        rank.strategy.summary(model, print_fn=lambda text: None)
        model.set_weights(cases.start_weights(model))
    rank.train(model, 0, 4)
    return {'weights': model.get_weights()}


def shared_by_sub_models(rank):
    """A layer that two sub-models share is trained, set, saved and resumed, or refused."""
    model = rank.model(build=cases.sub_models)
    batches = cases.batches(cases.SUB_MODELS, RANKS, 0, 2, rank.number)
    names = [weight.name for weight in model.trainable_weights]
    if len(names) > len(set(names)):
        return {'error': error_of(model.train_on_batch, *batches[0])}
    path = os.path.join(os.path.dirname(rank.folder), 'sub_models.h5')
    cases.train(model, batches)
    model.save(path)
    cases.train(model, batches)
    rank.strategy.resume(model, path)
    model.set_weights(model.get_weights())
    cases.train(model, batches)
    return {'weights': model.get_weights()}


def increments_without_shards(rank):
    """Incremental checkpoints of a model whose tables every worker holds."""
    rank = rank._replace(strategy=kp.ParallaxStrategy(architecture='allreduce'))
    model, path = rank.model(), os.path.join(os.path.dirname(rank.folder), 'increments')
    rank.fit(model, 0, 4, [kp.callbacks.ModelCheckpoint(path, incremental=True)], epochs=2)
    trained = model.get_weights()
    model.set_weights(cases.start_weights(model))
    return {
        'epochs': rank.strategy.resume(model, path),
        'trained': trained,
        'resumed': model.get_weights(),
    }


def no_strategy(rank, case):
    """The workers start from values of their own, and Horovod gives them those of rank 0."""
    import horovod.tensorflow as hvd

    model = rank.model(case, equal=False)
    own, session = model.get_weights(), rank.keras.backend.get_session()
    session.run(hvd.broadcast_global_variables(0))
    start, losses = model.get_weights(), rank.train(model, 0, 8)
    shapes = {'HorovodAllreduce': [], 'HorovodAllgather': []}
    for operation in session.graph.get_operations():
        # What a branch has does not run: no samples have weights.
        if operation.type in shapes and operation._get_control_flow_context() is None:
            shapes[operation.type].append(operation.inputs[0].shape.as_list())
    end = model.get_weights()
    for number, (ids, targets) in enumerate(rank.batches(8, 12)):
        joined = cases.some_weights(np.random.RandomState(number), (RANKS * len(ids),))
        weights = np.split(joined, RANKS)[rank.number]
        if number % 2:
            model.train_on_batch(ids, targets, sample_weight=weights)
        else:
            model.fit(ids, targets, len(ids), verbose=0, sample_weight=weights)
    return {
        'own': own,
        'start': start,
        'losses': losses,
        'end': end,
        'weighted': model.get_weights(),
        'allreduced': str(shapes['HorovodAllreduce']),
        'allgathered': str(shapes['HorovodAllgather']),
    }


def arrays(results):
    """Results as `np.savez` takes them."""
    flat = {}
    for name, value in results.items():
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            flat.update(('%s.%d' % (name, place), part) for place, part in enumerate(value))
        else:
            flat[name] = np.asarray(value)
    return flat


def main(folder, package, *behaviours):
    import horovod.tensorflow as hvd

    keras = cases.keras_module(package)
    for behaviour in behaviours:
        keras.backend.clear_session()
        name, _, argument = behaviour.partition(':')
        if name == 'no_strategy':
            hvd.init()
            strategy = None
        else:
            strategy = kp.ParallaxStrategy()
        own = os.path.join(folder, behaviour)
        os.makedirs(own, exist_ok=True)
        rank = Rank(keras, package, own, strategy, hvd.rank())
        results = globals()[name](rank, *[argument] if argument else [])
        np.savez(os.path.join(own, '%d.npz' % rank.number), **arrays(results))


main(*sys.argv[1:])
