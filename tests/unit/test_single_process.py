# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Started plainly, without horovodrun: everything of Keras works, with Keras's numbers.

Most tests run a piece of a user's script twice, once as it is written for us and once in plain
Keras, and compare all that it returns.

What must be seen from a fresh process is a script of its own: this file, run as a script with the
name of a function and its arguments, or one of the texts below, which must not import us.
"""

import contextlib
import itertools
import json
import os
import sys
import warnings
from typing import Any, Callable, NamedTuple

import cases
import launch
import numpy as np
import psutil
import pytest
import reference
from frameworks import KERAS_PACKAGES, TF1_15, TF2, tf

import keras_parallax as kp

PACKAGES = KERAS_PACKAGES
TOLERANCE = 1e-5

OPTIMIZERS = {
    'SGD': lambda keras: keras.optimizers.SGD(lr=0.05, momentum=0.9),
    'Adagrad': lambda keras: keras.optimizers.Adagrad(lr=0.1),
    'Adam': lambda keras: keras.optimizers.Adam(lr=0.01),
    'RMSprop': lambda keras: keras.optimizers.RMSprop(lr=0.01),
}


class Script(NamedTuple):
    """What differs between a user's script and the same script in plain Keras.

    Attributes:
        keras: the Keras package.
        scope: function to a context manager, in which models are built and compiled.
        wrap: function from an optimizer to the one that is compiled.
    """

    keras: Any
    scope: Callable[[], Any]
    wrap: Callable[[Any], Any]

    def model(self, optimizer='Adagrad', build=None, loss='mse', **arguments):
        """A compiled model with start weights that depend on nothing."""
        with self.scope():
            model = (build or cases.embed_and_sum())(self.keras)
            self.compile(model, optimizer, loss, **arguments)
        model.set_weights(cases.start_weights(model))
        return model

    def compile(self, model, optimizer='Adagrad', loss='mse', **arguments):
        if isinstance(optimizer, str):
            optimizer = OPTIMIZERS[optimizer](self.keras)
        model.compile(self.wrap(optimizer), loss, **arguments)


def our_script(package, **wrap):
    """A `Script` with a strategy."""
    wrap.setdefault('keras', package)
    return Script(
        cases.keras_module(package),
        kp.ParallaxStrategy,
        lambda optimizer: kp.ParallaxOptimizer(optimizer, **wrap),
    )


def plain_script(package):
    """A `Script` without us; see `reference` for what is gated and why."""
    keras = cases.keras_module(package)
    return Script(
        keras,
        lambda: contextlib.ExitStack(),
        lambda optimizer: reference.gated(
            optimizer
            if isinstance(optimizer, tf.train.Optimizer)
            else keras.optimizers.get(optimizer)
        ),
    )


def forget_all_models():
    for package in PACKAGES:
        cases.keras_module(package).backend.clear_session()


def flat(results):
    """All arrays of nested lists and dicts, in order."""
    if isinstance(results, dict):
        results = [results[key] for key in sorted(results)]
    if isinstance(results, (list, tuple)):
        return [array for part in results for array in flat(part)]
    return [np.asarray(results)]


def assert_all_equal(found, expected):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        np.testing.assert_array_equal(mine, theirs)


def assert_equals_plain_keras(package, run, ours=None):
    """Asserts that `run`, a function from a `Script` to results, gives those of plain Keras."""
    found = flat(run(ours or our_script(package)))
    forget_all_models()
    expected = flat(run(plain_script(package)))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        assert mine.shape == theirs.shape
        scale = np.nanmax(np.abs(theirs)) if theirs.size else 0
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=TOLERANCE * scale)


def data(samples=48, seed=5):
    return cases.ids_and_targets(np.random.RandomState(seed), samples)


def batches(steps=8, seed=5, size=6):
    random = np.random.RandomState(seed)
    return [cases.ids_and_targets(random, size) for _ in range(steps)]


def train(model, steps=4, seed=5):
    return [model.train_on_batch(*batch) for batch in batches(steps, seed)]


@pytest.fixture(params=PACKAGES)
def package(request):
    forget_all_models()
    yield request.param
    forget_all_models()


@pytest.fixture
def keras(package):
    return cases.keras_module(package)


def run_here(function, *arguments):
    """Runs a function of this file in a process of its own."""
    return launch.run(
        0,
        os.path.join('unit', os.path.basename(__file__)),
        function.__name__,
        *arguments,
        environ={'PYTHONPATH': launch.HERE},
    )


def run_text(folder, text, *arguments):
    """Runs a script that must not import this file."""
    path = folder.join('script.py')
    path.write(text)
    return launch.run(0, str(path), *arguments, environ={'PYTHONPATH': launch.HERE})


# --- No server ---------------------------------------------------------------------------------


def tell_ports(package, path):
    """Trains, and writes what the process listens on."""
    model = our_script(package).model()
    train(model)
    process = psutil.Process()
    listening = [
        str(connection)
        for connection in process.connections(kind='all')
        if connection.status == psutil.CONN_LISTEN
    ]
    from keras_parallax.engine.job import job

    with open(path, 'w') as file:
        json.dump({'listening': listening, 'server': str(job.start().servers.server)}, file)


@pytest.mark.parametrize('package', PACKAGES)
def test_one_process_starts_no_server_and_listens_on_no_port(package, tmpdir):
    path = tmpdir.join('ports.json')
    outcome = run_here(tell_ports, package, path)
    assert outcome.code == 0, outcome.output
    assert json.loads(path.read()) == {'listening': [], 'server': 'None'}


def test_a_strategy_alone_is_the_chief_of_one_rank():
    strategy = kp.ParallaxStrategy()
    told = (strategy.rank, strategy.size, strategy.local_rank, strategy.is_chief)
    assert told == (0, 1, 0, True)


# --- Bit-equality ------------------------------------------------------------------------------

WIDE_ROWS, WIDE_LENGTH = 4000, 10


def wide(keras):
    """A model on which plain Keras 2.2.4 gives other bits at each run, with two cores.

    Its layers are wide enough for an update to overtake the backward pass that reads the weights:
    with our wrapper taken away, `keras` fails the test with all four optimizers (`tf.keras` does
    not).
    """
    layers = [keras.layers.Embedding(WIDE_ROWS, 64, input_length=WIDE_LENGTH)]
    layers.append(keras.layers.Flatten())
    layers.extend(keras.layers.Dense(512, activation='tanh') for _ in range(3))
    return keras.models.Sequential(layers + [keras.layers.Dense(1)])


def train_wide(package, path):
    """Trains the wide model with each optimizer, and writes losses and weights."""
    script, results = our_script(package), {}
    for name in sorted(OPTIMIZERS):
        forget_all_models()
        model = script.model(name, wide)
        random = np.random.RandomState(3)
        results[name + ' losses'] = [
            model.train_on_batch(
                random.randint(0, WIDE_ROWS, (64, WIDE_LENGTH)), random.uniform(-1, 1, (64, 1))
            )
            for _ in range(12)
        ]
        for number, weight in enumerate(model.get_weights()):
            results['%s weight %d' % (name, number)] = weight
    np.savez(path, **results)


@pytest.fixture(scope='module', params=PACKAGES)
def two_runs(request, tmpdir_factory):
    """Results of two processes that did the same."""
    folder = tmpdir_factory.mktemp('two_runs')
    results = []
    for number in range(2):
        path = str(folder.join('%d.npz' % number))
        outcome = run_here(train_wide, request.param, path)
        assert outcome.code == 0, outcome.output
        results.append(dict(np.load(path)))
    return results


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_two_runs_give_the_same_bits(two_runs, name):
    first, second = two_runs
    keys = [key for key in first if key.startswith(name + ' ')]
    assert len(keys) == 10
    for key in keys:
        # NaN would equal itself bit by bit too.
        assert np.all(np.isfinite(first[key])), key
        assert first[key].tobytes() == second[key].tobytes(), key


# --- All ways to use a model -------------------------------------------------------------------


def test_fit_gives_the_numbers_of_plain_keras(package):
    def run(script):
        model = script.model(metrics=['mae'])
        history = model.fit(
            *data(), batch_size=6, epochs=3, shuffle=False, validation_data=data(20, 6), verbose=0
        )
        logged = reference.with_default_names(history.history)
        assert {'loss', 'mean_absolute_error', 'val_mean_absolute_error'} < set(logged)
        return logged, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_fit_splits_validation_data_off_and_takes_a_last_batch_that_is_small(package):
    def run(script):
        model = script.model()
        history = model.fit(
            *data(50), batch_size=12, epochs=2, shuffle=False, validation_split=0.3, verbose=0
        )
        return history.history, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_fit_shuffles_as_plain_keras_does(package):
    def run(script):
        model = script.model()
        np.random.seed(8)
        history = model.fit(*data(), batch_size=6, epochs=2, verbose=0)
        return history.history, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_fit_generator_gives_the_numbers_of_plain_keras(package):
    def run(script):
        model = script.model()
        history = model.fit_generator(
            itertools.cycle(batches(16)),
            steps_per_epoch=8,
            epochs=2,
            verbose=0,
            # One batch for ever: how many Keras fetches ahead does not matter.
            validation_data=itertools.repeat(batches(1, seed=6)[0]),
            validation_steps=3,
        )
        return history.history, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_a_sequence_gives_the_numbers_of_plain_keras(package):
    def run(script):
        class Batches(script.keras.utils.Sequence):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return batches()[index]

        model = script.model()
        history = model.fit_generator(
            Batches(), epochs=2, shuffle=False, verbose=0, validation_data=Batches()
        )
        told = model.evaluate_generator(Batches()), model.predict_generator(Batches())
        return history.history, told, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_batch_by_batch_gives_the_numbers_of_plain_keras(package):
    def run(script):
        model = script.model()
        ids, targets = data(10, 6)
        before = model.predict(ids), model.evaluate(ids, targets, verbose=0)
        losses = train(model, 8)
        after = model.predict_on_batch(ids), model.test_on_batch(ids, targets)
        return before, losses, after, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_sample_weights_and_class_weights_count(package):
    def run(script):
        ids, targets = data()
        weights = np.random.RandomState(9).uniform(0, 2, 48)
        model = script.model()
        model.fit(ids, targets, 6, 2, sample_weight=weights, shuffle=False, verbose=0)
        weighted = model.get_weights()
        model.fit(ids, targets > 0, 6, 2, class_weight={0: 0.2, 1: 3.0}, shuffle=False, verbose=0)
        return weighted, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_an_embedding_starts_from_the_weights_it_is_given(package):
    given = np.random.RandomState(2).normal(size=(cases.ROWS, cases.WIDTH)).astype(np.float32)
    with kp.ParallaxStrategy():
        model = cases.embed_and_sum(weights=[given])(cases.keras_module(package))
        our_script(package).compile(model)
    np.testing.assert_array_equal(model.get_weights()[0], given)
    ids, targets = data()
    model.fit(ids, targets, verbose=0)
    trained = model.get_weights()[0]
    touched = np.isin(np.arange(cases.ROWS), ids)
    np.testing.assert_array_equal(trained[~touched], given[~touched])
    assert not np.any(np.all(trained[touched] == given[touched], axis=1))


@pytest.mark.parametrize('optimizer', ['Adagrad', 'SGD'])
def test_a_learning_rate_callback_acts_on_the_next_step(package, optimizer):
    def run(script):
        model = script.model(optimizer)
        schedule = script.keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 * 0.3**epoch)
        history = model.fit(*data(), epochs=4, shuffle=False, callbacks=[schedule], verbose=0)
        return history.history, model.get_weights()

    assert_equals_plain_keras(package, run)


def test_a_nan_loss_is_left_as_keras_leaves_it(package):
    def run(script):
        model = script.model()
        ids, targets = batches()[0]
        losses = [model.train_on_batch(ids, targets), model.train_on_batch(ids, targets * np.nan)]
        assert np.isnan(losses[1])
        return losses, model.get_weights()

    # NaN is NaN in the same places, in the table too: assert_allclose compares it by default.
    assert_equals_plain_keras(package, run)


def test_terminate_on_nan_ends_fit(package, keras):
    model = our_script(package).model()
    ids, targets = data()
    targets[20] = np.nan
    history = model.fit(
        ids,
        targets,
        batch_size=6,
        epochs=3,
        shuffle=False,
        callbacks=[keras.callbacks.TerminateOnNaN()],
        verbose=0,
    )
    assert len(history.epoch) == 1


# --- Ids outside the table ---------------------------------------------------------------------


def two_tables(keras):
    words, items = keras.layers.Input((cases.LENGTH,)), keras.layers.Input((2,))
    both = keras.layers.concatenate(
        [
            keras.layers.Flatten()(keras.layers.Embedding(cases.ROWS, 4, name='words')(words)),
            keras.layers.Flatten()(keras.layers.Embedding(7, 2, name='items')(items)),
        ]
    )
    return keras.models.Model([words, items], keras.layers.Dense(1)(both))


CALLS = [
    lambda model, x, y: model.predict(x),
    lambda model, x, y: model.evaluate(x, y, verbose=0),
    lambda model, x, y: model.fit(x, y, verbose=0),
    lambda model, x, y: model.train_on_batch(x, y),
]


@pytest.mark.parametrize('trained', [True, False], ids=['trained', 'new'])
@pytest.mark.parametrize('layer, bad', [('words', 23), ('words', -1), ('items', 7), ('items', -3)])
def test_an_id_outside_the_table_is_told_with_its_layer_and_rank(package, layer, bad, trained):
    # 7 is an id of the words: only the right table can say that it is none of the items.
    model = our_script(package).model(build=two_tables)
    random = np.random.RandomState(1)
    good = [random.randint(0, cases.ROWS, (6, cases.LENGTH)), random.randint(0, 7, (6, 2))]
    y = random.uniform(-1, 1, (6, 1))
    if trained:
        model.train_on_batch(good, y)
    before = model.get_weights()
    wrong = [good[0].copy(), good[1].copy()]
    wrong[layer == 'items'][3, 1] = bad
    rows = 7 if layer == 'items' else cases.ROWS
    # Several times, because the first of several operations to meet the id is the one that fails.
    for call in CALLS * 5:
        with pytest.raises(kp.IdOutOfRangeError) as raised:
            call(model, wrong, y)
        told = str(raised.value)
        assert 'Rank 0: layer %s looked up id %d, ' % (layer, bad) in told
        assert '%s/embeddings has %d rows' % (layer, rows) in told
        # Nothing was written: whoever catches the error may go on.
        assert_all_equal(model.get_weights(), before)
    model.train_on_batch(good, y)


def test_nan_among_ids_is_told(package):
    model = our_script(package).model()
    x, y = data(6)
    ids = x.astype('float64')
    ids[3, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # NumPy 2 warns of the cast.
        with pytest.raises(kp.IdOutOfRangeError, match='look for NaN among the ids'):
            model.train_on_batch(ids, y)
    with pytest.raises(kp.IdOutOfRangeError, match='make input_dim larger'):
        model.train_on_batch(x + 1000, y)


# --- Optimizers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'given',
    [
        lambda keras: 'adagrad',
        lambda keras: 'Adam',
        lambda keras: keras.optimizers.Adagrad(lr=0.2),
        lambda keras: tf.train.AdagradOptimizer(0.1),
        lambda keras: tf.train.AdamOptimizer(0.01),
    ],
    ids=['adagrad', 'Adam', 'instance', 'tf.train Adagrad', 'tf.train Adam'],
)
def test_an_optimizer_may_be_a_name_an_instance_or_one_of_tensorflow(package, keras, given):
    def run(script):
        with script.scope():
            model = cases.embed_and_sum()(script.keras)
            model.compile(script.wrap(given(script.keras)), 'mse')
        model.set_weights(cases.start_weights(model))
        return train(model, 8), model.get_weights()

    expected = type(keras.optimizers.get(given(keras)))
    with kp.ParallaxStrategy():
        wrapped = kp.ParallaxOptimizer(given(keras), keras=package)
    assert isinstance(wrapped, expected)
    forget_all_models()
    assert_equals_plain_keras(package, run)


def tell_default_package(package):
    """Prints the base class of an optimizer that was given as a string."""
    cases.keras_module(package)
    print([base.__module__ for base in type(kp.ParallaxOptimizer('adagrad')).__mro__])


@pytest.mark.parametrize('package', PACKAGES)
def test_a_name_means_the_package_that_the_script_has_imported(package):
    outcome = run_here(tell_default_package, package)
    assert outcome.code == 0, outcome.output
    module = "'%s.optimizers'" % {'tf.keras': 'tensorflow.python.keras'}.get(package, package)
    if TF2:
        module = '.optimizer_v2.' if TF1_15 else '.src.optimizers.legacy.'
    assert module in outcome.output, outcome.output


@pytest.mark.parametrize(
    'arguments, told',
    [
        (dict(optimizer=3), 'optimizer must be .* 3 was given'),
        (dict(optimizer=None), 'optimizer must be .* None was given'),
        (dict(optimizer='no_such_optimizer'), "ptimizer: '?no_such_optimizer"),
        (dict(sparse_update='fast'), "sparse_update must be .* 'fast' was given"),
        (dict(sparse_update=None), 'sparse_update must be .* None was given'),
        (dict(sparse_reduction='max'), "sparse_reduction must be .* 'max' was given"),
        (dict(compression='fp16'), "^compression must be .* 'fp16' was given"),
        (dict(pull_compression='fp16'), "^pull_compression must be .* 'fp16' was given"),
        (dict(optimizer='adagrad', keras='theano'), "keras must be .* 'theano' was given"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else '',
)
def test_a_wrong_argument_is_refused(package, keras, arguments, told):
    arguments.setdefault('optimizer', keras.optimizers.Adagrad())
    with kp.ParallaxStrategy(), pytest.raises(ValueError, match=told):
        kp.ParallaxOptimizer(**arguments)


@pytest.mark.parametrize(
    'overrides, told',
    [({'tabel/embeddings': 'dense'}, 'tabel/embeddings'), ({'table/embeddings': 'big'}, 'big')],
)
def test_a_wrong_override_is_refused(package, keras, overrides, told):
    strategy = kp.ParallaxStrategy(overrides=overrides)
    with strategy:
        model = cases.embed_and_sum()(keras)
        our_script(package).compile(model)
    with pytest.raises(kp.PlanError, match=told):
        strategy.plan(model)
    with pytest.raises(ValueError, match=told):
        train(model)


def test_an_optimizer_is_wrapped_only_once(package, keras):
    with kp.ParallaxStrategy():
        wrapped = kp.ParallaxOptimizer(keras.optimizers.Adagrad())
        with pytest.raises(ValueError, match='once'):
            kp.ParallaxOptimizer(wrapped)


@pytest.mark.parametrize('name', sorted(OPTIMIZERS))
def test_the_given_optimizer_shares_its_attributes_and_the_wrapped_keeps_its_name(
    package, keras, name
):
    script = our_script(package)
    given = OPTIMIZERS[name](keras)
    cls, before = type(given), dict(given.__dict__)
    with kp.ParallaxStrategy():
        wrapped = script.wrap(given)
        model = cases.embed_and_sum()(keras)
        model.compile(wrapped, 'mse')
    train(model)
    assert type(given) is cls
    # As where Keras trains with the given one itself: it has the weights and updates of training.
    assert given.__dict__ is wrapped.__dict__ and before.keys() <= given.__dict__.keys()
    more = {key for key in given.__dict__.keys() - before.keys() if not key.startswith('_self_')}
    assert more <= {'updates'}
    kept = {key for key in before if key not in ('updates', 'weights')}
    if TF2:  # What begins so, training changes in plain Keras, too.
        kept = {key for key in kept if not key.startswith('_')}
    assert all(given.__dict__[key] is before[key] for key in kept)
    assert type(wrapped).__name__ == cls.__name__ and type(wrapped).__module__ == cls.__module__
    assert isinstance(wrapped, cls)
    assert wrapped.get_config() == given.get_config()


# --- Scopes ------------------------------------------------------------------------------------


def test_nested_strategies_are_refused_and_the_outer_stays_open(package, keras):
    strategy = kp.ParallaxStrategy()
    with strategy:
        for inner in (strategy, kp.ParallaxStrategy()):
            with pytest.raises(kp.ScopeError), inner:
                pass
        model = cases.embed_and_sum()(keras)
        our_script(package).compile(model)
    train(model)
    assert strategy.plan(model)['table/embeddings'].kind == 'sparse'
    # Left by both, the scope may be entered again.
    with kp.ParallaxStrategy():
        pass


def test_an_error_inside_the_scope_leaves_it(package):
    with pytest.raises(KeyError), kp.ParallaxStrategy():
        raise KeyError('of the user')
    train(our_script(package).model())


def test_a_scope_may_be_written_as_a_call(package, keras):
    strategy = kp.ParallaxStrategy()
    with strategy.scope():
        model = cases.embed_and_sum()(keras)
        our_script(package).compile(model)
    train(model)
    plan = strategy.plan(model)
    assert plan['table/embeddings'].kind == 'sparse' and plan['out/kernel'].kind == 'dense'
    assert plan['table/embeddings'].shards == ()


def train_without_init(package):
    """Compiles with no strategy and no hvd.init(), and prints the error of fit."""
    keras = cases.keras_module(package)
    model = cases.embed_and_sum()(keras)
    model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad()), 'mse')
    try:
        model.fit(*data(), verbose=0)
    except kp.ScopeError as error:
        print('ScopeError: %s' % error)


@pytest.mark.parametrize('package', PACKAGES)
def test_an_optimizer_without_strategy_and_init_says_what_it_needs(package):
    outcome = run_here(train_without_init, package)
    assert outcome.code == 0, outcome.output
    assert 'ScopeError: ' in outcome.output and 'hvd.init()' in outcome.output, outcome.output


def test_an_optimizer_without_strategy_trains_after_init(package):
    import horovod.tensorflow as hvd

    hvd.init()
    ours = our_script(package)._replace(scope=contextlib.ExitStack)

    def run(script):
        model = script.model('Adam')
        return train(model, 8), model.get_weights()

    assert_equals_plain_keras(package, run, ours)


# --- Several models, and models anew -----------------------------------------------------------


def test_a_model_compiled_again_with_another_optimizer_trains_on(package):
    def run(script):
        results, scope = [], script.scope()
        with scope:
            model = cases.embed_and_sum()(script.keras)
            script.compile(model)
        model.set_weights(cases.start_weights(model))
        for optimizer in ('Adagrad', 'Adam', 'Adam', 'SGD'):
            with script.scope():
                script.compile(model, optimizer)
            results += [train(model), model.get_weights()]
        return results

    assert_equals_plain_keras(package, run)


def test_two_models_that_share_an_embedding_layer_train_in_turn(package):
    def run(script):
        keras, models = script.keras, []
        with script.scope():
            table = keras.layers.Embedding(cases.ROWS, cases.WIDTH, name='table')
            for optimizer in ('Adagrad', 'Adam'):
                ids = keras.layers.Input((cases.LENGTH,))
                out = keras.layers.Dense(1)(keras.layers.Flatten()(table(ids)))
                models.append(keras.models.Model(ids, out))
                script.compile(models[-1], optimizer)
        for model in models:
            model.set_weights(cases.start_weights(model))
        losses = [train(model, 2, seed) for seed in range(3) for model in models]
        one, other = (model.get_weights() for model in models)
        np.testing.assert_array_equal(one[0], other[0])
        return losses, one, other

    assert_equals_plain_keras(package, run)


def test_a_model_built_after_clear_session_starts_anew(package):
    def run(script):
        results = []
        for _ in range(3):
            script.keras.backend.clear_session()
            model = script.model('Adam')
            results += [train(model), model.get_weights()]
        np.testing.assert_array_equal(results[0], results[2])
        return results

    assert_equals_plain_keras(package, run)


def test_plain_keras_works_after_a_strategy_and_clear_session(package):
    train(our_script(package).model())
    forget_all_models()
    model = plain_script(package).model()
    assert not isinstance(model.optimizer, type(our_script(package).model().optimizer))
    train(model)


def test_a_session_from_before_the_strategy_keeps_its_values(package, keras):
    backend = keras.backend
    number = backend.variable(1.0, name='number')
    backend.set_value(number, 7.5)
    earlier = plain_script(package).model()
    train(earlier)
    before = earlier.get_weights()
    model = our_script(package).model()
    assert backend.get_value(number) == 7.5
    assert_all_equal(earlier.get_weights(), before)
    train(model)
    # The earlier model trains on too, with its own optimizer, and does not touch ours.
    ours = model.get_weights()
    train(earlier)
    assert backend.get_value(number) == 7.5
    assert not np.array_equal(earlier.get_weights()[0], before[0])
    assert_all_equal(model.get_weights(), ours)


def test_a_model_trained_in_plain_keras_is_compiled_anew_inside_a_strategy(package):
    def run(script):
        model = plain_script(package).model('Adam')
        plain_losses = train(model)
        with script.scope():
            script.compile(model, 'Adam')
        return plain_losses, train(model), model.get_weights()

    assert_equals_plain_keras(package, run)


# --- Saved models ------------------------------------------------------------------------------

NO_MOMENTUM = 'SGD without momentum'
#: Besides the others, one whose rows need no slot, though Keras keeps one, and some of more slots.
MORE_OPTIMIZERS = dict(
    OPTIMIZERS,
    **{
        NO_MOMENTUM: lambda keras: keras.optimizers.SGD(lr=0.1),
        'Adam with amsgrad': lambda keras: keras.optimizers.Adam(lr=0.01, amsgrad=True),
        'Adadelta': lambda keras: keras.optimizers.Adadelta(),
        'Nadam': lambda keras: keras.optimizers.Nadam(),
    },
)

#: Loads a model where neither we nor Horovod can be imported, and trains on. The optimizer is
#: gated before that, because plain Keras's numbers would depend on a race.
PLAIN_LOADER = """
import sys

sys.modules['keras_parallax'] = sys.modules['horovod'] = None

import cases
import numpy as np
import reference

package, saved, given, written = sys.argv[1:]
keras = cases.keras_module(package)
model = keras.models.load_model(saved)
results = {'class': '%s.%s' % (type(model.optimizer).__module__, type(model.optimizer).__name__)}
results['config'] = repr(sorted(model.optimizer.get_config().items()))
state = model.optimizer.get_weights()
for kind, arrays in (('weight', model.get_weights()), ('state', state)):
    results.update(('%s %d' % (kind, number), array) for number, array in enumerate(arrays))

model.compile(reference.gated(model.optimizer), model.loss)
model._make_train_function()
model.optimizer.set_weights(state)
batches = np.load(given)
results['losses'] = [
    model.train_on_batch(ids, targets) for ids, targets in zip(batches['ids'], batches['targets'])
]
results.update(('end %d' % number, array) for number, array in enumerate(model.get_weights()))
np.savez(written, **results)
"""


def numbered(results, kind):
    """The arrays of a kind, in order."""
    return [results['%s %d' % (kind, n)] for n in range(99) if '%s %d' % (kind, n) in results]


def assert_all_close(found, expected):
    assert [array.shape for array in found] == [array.shape for array in expected]
    for mine, theirs in zip(found, expected):
        atol = TOLERANCE * np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol)


def two_tables_and_dense(keras):
    """Sparse variables first and last, so that the order of slots shows."""
    ids = keras.layers.Input((cases.LENGTH,))
    first = keras.layers.Embedding(cases.ROWS, 4, name='first')(ids)
    hidden = keras.layers.Dense(3)(keras.layers.Flatten()(first))
    last = keras.layers.Embedding(cases.ROWS, 1, name='last')(ids)
    out = keras.layers.concatenate([hidden, keras.layers.Flatten()(last)])
    return keras.models.Model(ids, keras.layers.Dense(1)(out))


@pytest.mark.parametrize('name', sorted(set(MORE_OPTIMIZERS) - {NO_MOMENTUM}))
def test_the_optimizers_weights_are_those_of_plain_keras(package, keras, name):
    def run(script):
        model = script.model(MORE_OPTIMIZERS[name](keras), two_tables_and_dense)
        train(model)
        return model.optimizer.get_weights()

    assert_equals_plain_keras(package, run)


@pytest.mark.parametrize('sparse_update', ['exact'] if TF2 else ['exact', 'lazy'])
@pytest.mark.parametrize('name', sorted(MORE_OPTIMIZERS))
def test_the_optimizers_weights_have_the_shapes_of_plain_keras_and_can_be_set(
    package, keras, name, sparse_update
):
    def run(script):
        model = script.model(MORE_OPTIMIZERS[name](keras), two_tables_and_dense)
        train(model)
        state = model.optimizer.get_weights()
        train(model)
        model.optimizer.set_weights(state)
        assert_all_equal(model.optimizer.get_weights(), state)
        return [array.shape for array in state]

    assert_equals_plain_keras(package, run, our_script(package, sparse_update=sparse_update))


@pytest.mark.parametrize('name', ['Adagrad', 'Adam', 'SGD', NO_MOMENTUM])
def test_a_saved_model_trains_on_in_plain_keras_as_if_it_had_not_been_saved(
    package, keras, name, tmpdir
):
    model = our_script(package).model(MORE_OPTIMIZERS[name](keras))
    train(model)
    saved, given, written = (str(tmpdir.join(file)) for file in ('m.h5', 'given.npz', 'end.npz'))
    model.save(saved)
    weights = model.get_weights()
    further = batches(6, seed=9)
    np.savez(given, ids=[ids for ids, _ in further], targets=[targets for _, targets in further])
    losses = [model.train_on_batch(*batch) for batch in further]
    end, config = model.get_weights(), model.optimizer.get_config()
    forget_all_models()
    outcome = run_text(tmpdir, PLAIN_LOADER, package, saved, given, written)
    assert outcome.code == 0, outcome.output
    found = np.load(written)

    # The state is checked against a run that never knew us: our own word for it proves nothing.
    plain = plain_script(package).model(MORE_OPTIMIZERS[name](keras))
    train(plain)
    cls = getattr(keras.optimizers, name.split()[0])
    assert str(found['class']) == '%s.%s' % (cls.__module__, cls.__name__)
    assert str(found['config']) == repr(sorted(config.items()))
    assert_all_equal(numbered(found, 'weight'), weights)
    state, expected = numbered(found, 'state'), plain.optimizer.get_weights()
    assert [array.shape for array in state] == [array.shape for array in expected]
    if name != NO_MOMENTUM:
        # What SGD keeps without momentum is multiplied by 0, so its value means nothing.
        assert_all_close(state, expected)
    assert_all_close([found['losses']], [np.array(losses)])
    assert_all_close(numbered(found, 'end'), end)


def test_weights_alone_go_to_plain_keras_and_back(package, tmpdir):
    path = str(tmpdir.join('weights.h5'))
    model = our_script(package).model()
    train(model)
    saved = model.get_weights()
    model.save_weights(path)
    train(model)
    model.load_weights(path)
    assert_all_equal(model.get_weights(), saved)
    forget_all_models()
    plain = plain_script(package).model()
    plain.load_weights(path)
    assert_all_equal(plain.get_weights(), saved)


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
