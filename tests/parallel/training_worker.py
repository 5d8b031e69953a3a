# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: scripts that train with `fit` as in plain Keras, one after the other.

Usage: training_worker.py FOLDER PACKAGE CASE... Each worker writes what the function called CASE
returns to FOLDER/CASE/RANK.pickle.
"""

import contextlib
import importlib
import io
import os
import pickle
import sys
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import recipes  # noqa: E402
from frameworks import TF2, tf  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402

RANKS = recipes.RANKS


class Rank:
    """This process: the Keras package, the strategy, and this worker's share of the data."""

    def __init__(self, package, folder):
        self.keras, self.folder = cases.keras_module(package), folder
        self.strategy = kp.ParallaxStrategy()
        self.number = self.strategy.rank
        self.callbacks = self.keras.callbacks

    def model(self, build=recipes.model, optimizer=None, strategy=None):
        with strategy or self.strategy:
            model = build(self.keras)
            model.compile(optimizer or recipes.optimizer(self.keras), 'mse', metrics=['mae'])
        return model

    def started(self, *arguments, **named):
        """A model that has the start weights on every worker."""
        model = self.model(*arguments, **named)
        model.set_weights(cases.start_weights(model))
        return model

    def share(self, begin=0, end=recipes.BATCHES):
        return recipes.data(begin, end, self.number)

    def fit(self, model, callbacks=(), epochs=recipes.EPOCHS, **named):
        """Trains on this worker's share; returns what `History` has."""
        named.setdefault('shuffle', False)
        named.setdefault('verbose', 0)
        named.setdefault('batch_size', recipes.BATCH // RANKS)
        return model.fit(*self.share(), epochs=epochs, callbacks=list(callbacks), **named).history

    def at_epoch_end(self, epoch, function):
        """A callback that does something at the end of an epoch on rank 1, and only there."""

        def act(number, logs):
            if number == epoch and self.number == 1:
                function()

        return self.callbacks.LambdaCallback(on_epoch_end=act)


def shortest(rank, loaded):
    """The recipe without any callback of ours, from weights loaded on rank 0 or on every worker."""
    model = rank.model()
    if loaded == 'everywhere' or rank.number == 0:
        model.set_weights(cases.start_weights(model))
    callbacks = recipes.deciding(rank.callbacks)
    validation = rank.share(*recipes.HELD_OUT)
    history = rank.fit(model, callbacks, validation_data=validation)
    return {'history': history, 'weights': model.get_weights()}


def explicit(rank):
    """The same with all callbacks of Horovod's recipe."""
    model = rank.model()
    if rank.number == 0:
        model.set_weights(cases.start_weights(model))
    ours = [kp.callbacks.BroadcastGlobalVariablesCallback(0), kp.callbacks.MetricAverageCallback()]
    callbacks = ours + recipes.deciding(rank.callbacks)

    def add(epoch, logs):
        logs['added'] = np.float32(rank.number)

    callbacks.append(rank.callbacks.LambdaCallback(on_epoch_end=add))
    callbacks.append(kp.callbacks.MetricAverageCallback())
    history = rank.fit(model, callbacks, validation_data=rank.share(*recipes.HELD_OUT))
    return {'added': history.pop('added'), 'history': history, 'weights': model.get_weights()}


def generator(rank):
    """`fit_generator` with arguments by place, then `fit` once more, outside the scope."""
    model = rank.started()
    ids, targets = rank.share()
    size = recipes.BATCH // RANKS

    def forever():
        while True:
            for begin in range(0, len(ids), size):
                yield ids[begin : begin + size], targets[begin : begin + size]

    callbacks = recipes.deciding(rank.callbacks)
    validation = rank.share(*recipes.HELD_OUT)
    # generator, steps_per_epoch, epochs, and for `keras`, which takes but three by place, names.
    history = model.fit_generator(
        forever(), recipes.BATCHES, 3, verbose=0, callbacks=callbacks, validation_data=validation
    ).history
    # x, y, batch_size, epochs, verbose, callbacks
    later = model.fit(ids, targets, size, 5, 0, callbacks, 0.0, validation, False, None, None, 3)
    return {'history': history, 'later': later.history, 'weights': model.get_weights()}


def built_by_fit(rank):
    """Models whose weights are made by `fit`, after the scope, with callbacks that decide."""
    results = {}
    for name in ('shapeless_model', 'subclassed_model'):
        model = rank.model(getattr(recipes, name))
        callbacks, validation = recipes.deciding(rank.callbacks), rank.share(*recipes.HELD_OUT)
        history = rank.fit(model, callbacks, validation_data=validation)
        results[name] = {'history': history, 'weights': model.get_weights()}
    return results


def from_dataset(rank):
    """`fit` of `tf.keras` that takes batches from data sets, after the scope."""
    model = rank.started()
    callbacks = recipes.deciding(rank.callbacks, 'val_loss')
    size = recipes.BATCH // RANKS
    return {
        'history': model.fit(**recipes.datasets(size, rank.number), callbacks=callbacks).history,
        'weights': model.get_weights(),
    }


def shared_arrays(rank):
    """`fit` on shares of all samples, in two calls, the second of which goes on."""
    model, (ids, targets) = rank.started(), recipes.uneven_data()
    history = {}
    for begin, end in ((0, 1), (1, recipes.SHARED_EPOCHS)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            given = kp.data.arrays(
                ids, targets, seed=recipes.SHARED_SEED, validation_split=recipes.SPLIT
            )
        epochs = {'initial_epoch': begin, 'epochs': end}
        size = recipes.BATCH // RANKS
        found = model.fit(**given, batch_size=size, verbose=0, **epochs).history
        for name, values in found.items():
            history.setdefault(name, []).extend(values)
    told = [str(one.message) for one in caught]
    return {'history': history, 'weights': model.get_weights(), 'told': told}


def shared_sequence(rank):
    """A `Sequence` of batches of which each worker takes its own, in two calls."""
    model, losses = rank.started(), []
    batches = recipes.batches_of(rank.keras, recipes.BATCH // RANKS)
    share = kp.data.shard(batches, seed=recipes.SHARED_SEED)
    fit = model.fit if TF2 else model.fit_generator
    for begin, end in ((0, 1), (1, recipes.SHARED_EPOCHS)):
        losses += fit(share, epochs=end, initial_epoch=begin, verbose=0).history['loss']
    return {'loss': losses, 'weights': model.get_weights()}


def shared_generator(rank):
    """A generator of batches of which each worker takes every second one."""
    model, batches = rank.started(), recipes.batches_of(rank.keras, recipes.BATCH // RANKS)
    share = kp.data.shard(batches[number] for number in range(len(batches)))
    loss = [model.train_on_batch(*batch)[0] for batch in share]
    return {'steps': len(loss), 'weights': model.get_weights()}


def shared_dataset(rank):
    """A `tf.data.Dataset` of samples; each worker takes every second one before batches."""
    model, (ids, targets) = rank.started(), recipes.uneven_data()
    samples = tf.data.Dataset.from_tensor_slices((ids, targets.astype(np.float32)))
    share = kp.data.shard(samples.shuffle(50, seed=recipes.SHARED_SEED))
    given = share.batch(recipes.BATCH // RANKS).repeat()
    history = model.fit(given, steps_per_epoch=recipes.BATCHES, epochs=2, verbose=0).history
    return {'loss': history['loss'], 'weights': model.get_weights()}


def taking_turns(rank):
    """Two models in one scope, of which each has a table that the other's step knows nothing of."""
    with rank.strategy:
        models = [recipes.model(rank.keras) for _ in range(2)]
        for model in models:
            model.compile(recipes.optimizer(rank.keras), 'mse', metrics=['mae'])
    for model in models:
        model.set_weights(cases.start_weights(model))
    histories = [rank.fit(model, epochs=1) for _ in range(2) for model in models]
    weights = [weight for model in models for weight in model.get_weights()]
    return {'losses': [history['loss'] for history in histories], 'weights': weights}


def set_between(rank):
    """What rank 0 sets between two calls of `fit` is what all go on with."""
    model = rank.started()
    rank.fit(model, epochs=1)
    if rank.number == 0:
        model.set_weights([2 * weight for weight in model.get_weights()])
        rank.keras.backend.set_value(model.optimizer.lr, 0.05)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        rank.fit(model, epochs=1)
    told = [str(one.message) for one in caught if 'different rates' in str(one.message)]
    return {'weights': model.get_weights(), 'told': told}


def not_a_number(rank):
    """A batch of rank 1 has a loss that is not a number."""
    model, ends = rank.started(), []
    ids, targets = rank.share()
    if rank.number == 1:
        targets[recipes.BAD_SAMPLE // RANKS] = np.nan
    callbacks = [
        rank.callbacks.TerminateOnNaN(),
        rank.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: ends.append(batch)),
    ]
    size = recipes.BATCH // RANKS
    history = model.fit(
        ids, targets, batch_size=size, epochs=3, shuffle=False, verbose=0, callbacks=callbacks
    ).history
    return {'ends': ends, 'loss': history['loss'], 'nan': np.isnan(model.get_weights()[-1]).all()}


def one_stops(rank):
    """Rank 1 stops within an epoch, in ways that can be foreseen and that cannot."""
    model, results = rank.started(), {}

    def foreseen(batch, logs):
        if rank.number == 1 and batch == 1:
            model.stop_training = True

    def unforeseen(batch, logs):
        if rank.number == 1 and batch == 1:
            setattr(model, '_'.join(['stop', 'training']), True)

    ends = []
    note = rank.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: ends.append(batch))
    for name, stop in (('foreseen', foreseen), ('unforeseen', unforeseen)):
        ends.clear()
        rank.fit(model, [rank.callbacks.LambdaCallback(on_batch_end=stop), note], epochs=3)
        results[name] = list(ends)
    # A callback that decides to stop on rank 0 alone.
    alone = [rank.callbacks.EarlyStopping('loss', patience=0, min_delta=9)]
    history = rank.fit(model, alone if rank.number == 0 else [])
    return dict(results, epochs=len(history['loss']))


def chief_validates(rank):
    """Only rank 0 has data to validate on, and callbacks on all workers decide by it."""
    model = rank.started()
    validation = recipes.data(*recipes.HELD_OUT) if rank.number == 0 else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        history = rank.fit(
            model, recipes.deciding(rank.callbacks, 'val_loss'), validation_data=validation
        )
    told = [str(one.message) for one in caught if 'different metrics' in str(one.message)]
    return {'history': history, 'told': told, 'weights': model.get_weights()}


def uneven(rank):
    """Rank 1 has a sample less, in as many batches."""
    model, (ids, targets) = rank.started(), rank.share()
    end = len(ids) - rank.number
    size = recipes.BATCH // RANKS
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        model.fit(ids[:end], targets[:end], batch_size=size, epochs=2, shuffle=False, verbose=0)
    told = [str(one.message) for one in caught if 'numbers of samples' in str(one.message)]
    return {'told': told, 'samples': len(ids[:end])}


def different(rank):
    """What all workers must have alike, and have not."""
    only = [kp.callbacks.MetricAverageCallback()]
    sharded = [kp.callbacks.ModelCheckpoint(os.path.join(rank.folder, 'x'), sharded=True)]
    steps = [kp.callbacks.ModelCheckpoint(os.path.join(rank.folder, 'x'), save_steps=2)]
    here = rank.number == 0
    validation = rank.share(*recipes.HELD_OUT) if here else None
    half = rank.share(0, 2 if here else 1)
    schedule = rank.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (1 + rank.number * epoch))

    def add(epoch, logs):
        if here:
            logs['auc'] = 0.5

    def set_rate(model):
        rank.keras.backend.set_value(model.optimizer.lr, 0.5)

    def set_weights(model):
        layer = model.get_layer('hidden')
        layer.set_weights([1.01 * weight for weight in layer.get_weights()])

    def at_epoch_end(epoch, change):
        return lambda model: rank.fit(model, [rank.at_epoch_end(epoch, lambda: change(model))])

    def fit(*callbacks, **named):
        return lambda model: rank.fit(model, callbacks, **named)

    fits = {
        'validation': fit(*only, validation_data=validation),
        'callback': fit(*only if here else []),
        'sharded': fit(*sharded if here else []),
        'steps': fit(*steps if here else []),
        'order': fit(*(only + sharded)[:: 1 if here else -1]),
        'added': fit(rank.callbacks.LambdaCallback(on_epoch_end=add), *only),
        'batches': lambda model: model.fit(*half, batch_size=recipes.BATCH // RANKS),
        'epochs': fit(initial_epoch=1 if here else 0),
        'rates': fit(schedule),
        'set rate': at_epoch_end(2, set_rate),
        'set weights': at_epoch_end(1, set_weights),
    }
    return {what: _error_of_fit(rank, fit) for what, fit in fits.items()}


def _error_of_fit(rank, fit):
    """What a function raises that trains a fresh model, as text."""
    # In one graph with those before it, each model would take longer to start than the one before.
    rank.keras.backend.clear_session()
    return error_of(fit, rank.started())


def normalized(rank):
    """Batch normalization's averages, without and with the option that averages them."""

    def statistics(averaged):
        model, seen = rank.started(recipes.normalized_model), []
        layer = model.get_layer('normal')
        before, after = (
            rank.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: seen.append(layer.get_weights())
            )
            for _ in range(2)
        )
        average = kp.callbacks.MetricAverageCallback(average_moving_statistics=averaged)
        rank.fit(model, [before, average, after], epochs=2)
        return {'seen': seen, 'dense': model.get_layer('out').get_weights()}

    return {'left': statistics(False), 'averaged': statistics(True)}


def stateful(rank):
    """Recurrent states are each worker's own, from one call of `fit` to the next."""
    model = rank.started(recipes.stateful_model)
    backend = rank.keras.backend
    for _ in range(2):
        rank.fit(model, epochs=1)
    (states,) = model.get_layer('recurrent').states
    before = backend.get_value(states)
    kept = []
    note = rank.callbacks.LambdaCallback(
        on_train_begin=lambda logs: kept.append(backend.get_value(states))
    )
    broadcast = kp.callbacks.BroadcastGlobalVariablesCallback(0)
    rank.fit(model, [broadcast, note], epochs=1)
    return {'before': before, 'kept': kept[0]}


def counted(rank):
    """What a metric that is stateful counts in each epoch, and in tests on held-out data."""
    with rank.strategy:
        model = recipes.model(rank.keras)
        count = recipes.counter(rank.keras)
        model.compile(recipes.optimizer(rank.keras), 'mse', metrics=[count])
    held_out, size = rank.share(*recipes.HELD_OUT), recipes.BATCH // RANKS
    history = rank.fit(model, validation_data=held_out, epochs=20)
    tests = [model.evaluate(*held_out, batch_size=size, verbose=0)[1] for _ in range(20)]
    counts = {'count': history['count'], 'val_count': history['val_count'], 'tests': tests}
    shares = {'count': rank.share(), 'val_count': held_out, 'tests': held_out}
    positive = {name: int((targets > 0).sum()) for name, (_, targets) in shares.items()}
    return {'counts': counts, 'positive': positive}


def restored(rank):
    """Weights that a callback restores on rank 0 alone, and what then is trained."""

    def fit(model, callbacks, **named):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            history = rank.fit(model, callbacks, **named)
        told = [str(one.message) for one in caught if 'different weights' in str(one.message)]
        return {'epochs': len(history['loss']), 'told': told, 'weights': model.get_weights()}

    results = {}
    for architecture in ('hybrid', 'allreduce'):
        rank.keras.backend.clear_session()
        model = rank.started(strategy=kp.ParallaxStrategy(architecture=architecture))
        callbacks = [recipes.restoring(rank.callbacks)] if rank.number == 0 else []
        results[architecture] = [fit(model, callbacks), fit(model, [], epochs=1)]
    rank.keras.backend.clear_session()
    model = rank.started(recipes.normalized_model)
    results['own averages'] = fit(model, [], epochs=1)
    results['averages'] = fit(model, callbacks)
    # Rank 0 sets a weight that no step trains.
    rank.keras.backend.clear_session()
    model = rank.started(recipes.frozen_model)
    layer = model.get_layer('frozen')
    double = rank.callbacks.LambdaCallback(
        on_train_end=lambda logs: layer.set_weights([2 * one for one in layer.get_weights()])
    )
    results['frozen'] = fit(model, [double] if rank.number == 0 else [], epochs=1)
    return results


def printed(rank):
    """What each worker prints, by default and when it is asked to."""
    model, results = rank.started(), {}
    data, size = rank.share(), recipes.BATCH // RANKS

    def evaluate(**named):
        model.evaluate(*data, **named)

    def fit(**named):
        results['loss'] = model.fit(*data, batch_size=size, shuffle=False, **named).history['loss']

    for name, function, named in (
        ('fit', fit, {}),
        ('evaluate', evaluate, {}),
        ('asked fit', fit, {'verbose': 2}),
        ('asked evaluate', evaluate, {'verbose': 1}),
    ):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            function(**named)
        results[name] = text.getvalue()
    return results


def written(rank):
    """Callbacks that write to one place on all workers, and those that write to one for each."""
    model, own = rank.started(), os.path.join(rank.folder, 'rank%d' % rank.number)
    os.makedirs(own)
    callbacks = recipes.writing(rank.callbacks, rank.folder)
    callbacks += recipes.writing(rank.callbacks, own, histograms=False)
    if rank.number == 1:
        callbacks.append(rank.callbacks.CSVLogger(os.path.join(rank.folder, 'of_rank_1.csv')))
    named = {'validation_data': recipes.data(*recipes.HELD_OUT)}
    rank.fit(model, callbacks, epochs=2, **named)
    # The graph of rank 0 has more in it now.
    with rank.strategy:
        model.compile(recipes.optimizer(rank.keras), 'mse', metrics=['mae'])
    callbacks = recipes.writing(rank.callbacks, rank.folder)[1:]
    rank.fit(model, callbacks, epochs=4, initial_epoch=2, **named)
    return {'weights': model.get_weights()}


def told(rank):
    """What callbacks print that have been asked to, of one path and of one for each worker."""
    results = {}
    for name, path in (('same', 'model.h5'), ('own', '%d.h5' % rank.number)):
        callbacks = recipes.printing(rank.callbacks, os.path.join(rank.folder, path))
        with contextlib.redirect_stdout(io.StringIO()) as text:
            rank.fit(rank.started(), callbacks)
        results[name] = text.getvalue()
        results['asked again'] = [callback.verbose for callback in callbacks]
    return results


def wrapped(rank):
    """Keras's wrappers for scikit-learn ask which arguments `fit` has."""
    name = rank.keras.__name__.replace('tensorflow.', 'tensorflow.python.')
    wrappers = importlib.import_module(name + '.wrappers.scikit_learn')
    regressor = wrappers.KerasRegressor(
        rank.started, epochs=2, batch_size=recipes.BATCH // RANKS, verbose=0, shuffle=False
    )
    return {'loss': regressor.fit(*rank.share()).history['loss']}


def weighted(rank):
    """Sample weights and masks, of which the workers have unequal sums."""
    with rank.strategy:
        model = recipes.model(rank.keras)
        optimizer = recipes.optimizer(rank.keras)
        model.compile(optimizer, 'mse', metrics=['mae'], weighted_metrics=['mse', 'mae'])
    model.set_weights(cases.start_weights(model))
    batches = [
        (
            *recipes.data(number, number + 1, rank.number),
            recipes.weights(number, number + 1, rank.number),
        )
        for number in range(4)
    ]
    found = recipes.weighted_fits(
        model,
        lambda **named: rank.fit(model, epochs=2, **named),
        recipes.weights(rank=rank.number),
        batches,
    )
    # A script that calls what Keras calls.
    fresh = rank.started()
    fresh._make_train_function()
    found['refused'] = None
    if fresh._feed_sample_weights:
        ids, targets, weights = batches[0]
        fresh.train_function([ids, targets, np.ones_like(weights)])
        found['refused'] = error_of(lambda _: fresh.train_function([ids, targets, weights]), fresh)
    with rank.strategy:
        model = cases.masked_outputs(rank.keras)
        model.compile(recipes.optimizer(rank.keras), **recipes.MASKED)
    model.set_weights(cases.start_weights(model))
    ids, targets, weights = recipes.masked_data(rank.number)
    arguments = {'batch_size': recipes.BATCH // RANKS, 'epochs': 2, 'shuffle': False, 'verbose': 0}
    history = model.fit(ids, targets, sample_weight=weights, **arguments).history
    found['masked'] = {'history': history, 'weights': model.get_weights()}
    return found


def asynchronous(rank):
    """Ranks that wait for nobody: what they train is their own business."""
    rank.keras.backend.clear_session()
    strategy = kp.ParallaxStrategy(architecture='ps', sync=False)
    model = rank.started(strategy=strategy)
    validation = rank.share(*recipes.HELD_OUT) if rank.number == 0 else None
    alone = [rank.callbacks.EarlyStopping('loss', patience=0, min_delta=9)]
    history = rank.fit(
        model, alone if rank.number == 0 else [], epochs=3 + rank.number, validation_data=validation
    )
    return {'epochs': len(history['loss']), 'names': sorted(history)}


def main(folder, package, *names):
    for name in names:
        cases.keras_module(package).backend.clear_session()
        function, _, argument = name.partition(':')
        own = os.path.join(folder, name)
        os.makedirs(own, exist_ok=True)
        rank = Rank(package, own)
        results = globals()[function](rank, *[argument] if argument else [])
        with open(os.path.join(own, '%d.pickle' % rank.number), 'wb') as file:
            pickle.dump(results, file)


main(*sys.argv[1:])
