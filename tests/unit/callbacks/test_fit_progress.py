# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`fit` that is broken off within an epoch, and goes on from a checkpoint, in one process."""

import itertools
import re
import warnings

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF1_15, TF2, tf

import keras_parallax as kp
from keras_parallax.callbacks.fit_progress import sums_of_rank
from keras_parallax.checkpoint import resume

COUNT, BATCH, EPOCHS = 50, 4, 4
#: Batches of an epoch.
BATCHES = 13
X, Y = cases.ids_and_targets(np.random.RandomState(0), COUNT)


class Broken(Exception):
    """Ends a `fit` as a crash would."""


KERAS, TF_KERAS = KERAS_PACKAGES[0], KERAS_PACKAGES[-1]


@pytest.fixture(params=[KERAS])
def package(request):
    package = cases.keras_module(request.param)
    yield package
    package.backend.clear_session()


def compiled(package, metric=lambda package: 'mae'):
    package.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = cases.CASES['adam'].model(package)
        model.compile(package.optimizers.Adam(), 'mse', metrics=[metric(package)])
    model.set_weights(cases.start_weights(model))
    model.strategy = strategy
    return model


def shares(**arguments):
    return dict(kp.data.arrays(X, Y, **arguments), batch_size=BATCH)


def own(**arguments):
    """Arrays that Keras itself shuffles."""
    return dict(x=X, y=Y, batch_size=BATCH, **arguments)


def batchwise():
    """Arrays of which Keras shuffles the batches."""
    return own(shuffle='batch')


def whole_batches():
    """The batches of an epoch, a list."""
    return [
        (X[begin : begin + BATCH], Y[begin : begin + BATCH]) for begin in range(0, COUNT, BATCH)
    ]


def of_sequence(package, is_shared=True):
    class Batches(package.utils.Sequence):
        def __len__(self):
            return BATCHES

        def __getitem__(self, index):
            return whole_batches()[index]

    if is_shared:
        return {'generator': kp.data.shard(Batches())}
    return {'generator': Batches(), 'shuffle': False}


def of_generator(begin=0):
    """Batches of endless epochs, from that of a number on."""
    for epoch in itertools.count(begin):
        for x, y in whole_batches():
            yield x, y + epoch


def fit(model, package, path, *callbacks, data=shares, breaks_after=None, save_steps=3, **named):
    """Trains; returns the history and what there is in the end, of the model and of NumPy."""
    batches = []

    def count(batch, logs):
        batches.append(batch)
        if len(batches) == breaks_after:
            raise Broken

    callbacks = list(callbacks) + [
        # As a callback, or a layer, may draw numbers with each batch.
        package.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: np.random.rand()),
        kp.callbacks.ModelCheckpoint(str(path), save_steps=save_steps),
        package.callbacks.LambdaCallback(on_batch_end=count),
    ]
    named = dict(dict(data(), epochs=EPOCHS, verbose=0, callbacks=callbacks), **named)
    if TF2 and 'generator' in named:
        named['x'] = named.pop('generator')
    history = (model.fit_generator if 'generator' in named else model.fit)(**named)
    end = model.get_weights() + model.optimizer.get_weights() + [np.random.random_sample()]
    return history, end, batches


def of_keras(package):
    return [
        package.callbacks.EarlyStopping('loss', patience=9),
        # It lowers the rate after each epoch but the first.
        package.callbacks.ReduceLROnPlateau('loss', min_delta=1.0, patience=1, factor=0.5),
    ]


#: For `save_steps` of a run that is not broken off.
NEVER = 1000


@pytest.fixture(scope='module')
def broken_off(tmpdir_factory):
    """A checkpoint, after batch 5 of epoch 2, from which several tests go on."""
    package = cases.keras_module(KERAS)
    path = str(tmpdir_factory.mktemp('broken').join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package), package, path, breaks_after=20)
    return path


def check_equal(found, expected):
    for one, other in zip(found[1], expected[1]):
        np.testing.assert_array_equal(one, other)
    assert found[0].epoch == expected[0].epoch == list(range(EPOCHS))
    assert found[0].history == expected[0].history


# It is between two saves, or the last batch of an epoch has been: every pair of values.
@pytest.mark.parametrize('package, data, breaks_after, batch', [
    (KERAS, shares, 20, 5),
    (TF_KERAS, shares, 26, 13),
    (TF_KERAS, own, 20, 5),
    (KERAS, own, 26, 13),
    (KERAS, batchwise, 20, 5),
    (TF_KERAS, batchwise, 26, 13),
], indirect=['package'])  # fmt: skip
def test_a_run_that_goes_on_within_an_epoch_ends_as_an_unbroken_one(
    package, data, breaks_after, batch, tmpdir
):
    save_steps = 3 if batch == 5 else BATCHES
    arguments = {'data': data, 'save_steps': save_steps}
    np.random.seed(5)
    first = of_keras(package)
    expected = fit(compiled(package), package, tmpdir, *first, data=data, save_steps=NEVER)
    np.random.seed(5)
    path = str(tmpdir.join('{epoch}-{batch}.h5'))
    with pytest.raises(Broken):
        callbacks = of_keras(package)
        fit(compiled(package), package, path, *callbacks, breaks_after=breaks_after, **arguments)
    np.random.seed(6)
    model = compiled(package)
    latest = kp.latest_checkpoint(path)
    assert latest == path.format(epoch=2, batch=batch)
    epoch = model.strategy.resume(model, latest)
    assert epoch == 1
    again = of_keras(package)
    found = fit(model, package, path, *again, initial_epoch=epoch, **arguments)
    check_equal(found, expected)
    # No callback has heard of a batch that was over.
    assert found[2] == (list(range(BATCHES)) * EPOCHS)[BATCHES + batch :]
    for one, other in zip(again, first):
        assert (one.best, one.wait) == (other.best, other.wait)
    assert again[0].wait < 9 and expected[0].history['lr'][-1] < 0.001 / 3


@pytest.mark.parametrize('package, kind', [
    (KERAS, 'Sequence of kp.data'),
    (TF_KERAS, 'Sequence'),
    (KERAS, 'generator'),
    (TF_KERAS, 'generator of kp.data'),
    (TF_KERAS, 'Dataset'),  # `keras` 2.2.4 takes none.
], indirect=['package'])  # fmt: skip
def test_batches_of_other_kinds_go_on_where_they_were(package, kind, tmpdir):
    """Data is given to `fit` from the beginning of the epoch that the checkpoint was saved in."""

    def data(begin=0):
        if kind.startswith('generator'):
            batches = of_generator(begin)
            batches = batches if kind == 'generator' else kp.data.shard(batches)
            return {'generator': batches, 'steps_per_epoch': BATCHES}
        if kind == 'Dataset':
            batches = tf.data.Dataset.from_tensor_slices((X[:48], Y[:48])).batch(BATCH)
            return {'x': batches.repeat(), 'steps_per_epoch': 12}
        return of_sequence(package, kind != 'Sequence')

    expected = fit(compiled(package), package, tmpdir, data=data, save_steps=NEVER)
    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package), package, path, data=data, breaks_after=20)
    model = compiled(package)
    epoch = model.strategy.resume(model, path)
    found = fit(model, package, path, data=lambda: data(epoch), initial_epoch=epoch)
    found[1].pop(), expected[1].pop()  # Threads that fetch batches do not draw from NumPy.
    check_equal(found, expected)
    assert epoch == 1 and found[2][0] in (5, 6)


def test_a_generator_that_ends_before_the_batch_to_go_on_with_says_so(package, tmpdir):
    def data(count=2 * BATCHES):
        return {'generator': iter(whole_batches()[:count]), 'steps_per_epoch': BATCHES}

    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package), package, path, data=data, breaks_after=12)
    model = compiled(package)
    epoch = model.strategy.resume(model, path)
    with pytest.raises(kp.DataError, match='ended after 7 batches, but 12 batches'):
        fit(model, package, path, data=lambda: data(7), initial_epoch=epoch)


def test_a_sequence_that_keras_shuffles_ahead_is_refused_before_it_trains(package, tmpdir):
    def data():
        return dict(of_sequence(package, is_shared=False), shuffle=True)

    with pytest.raises(kp.DataError, match='a Sequence, so do not save within one'):
        fit(compiled(package), package, tmpdir.join('model.h5'), data=data)


def test_a_run_that_has_gone_on_twice_keeps_what_callbacks_have_come_to(package, tmpdir):
    path, best = str(tmpdir.join('{epoch}-{batch}.h5')), []
    for breaks_after in (20, 2, 4):
        model = compiled(package)
        epoch = model.strategy.resume(model, kp.latest_checkpoint(path))
        stopping = package.callbacks.EarlyStopping('loss', patience=9)
        with pytest.raises(Broken):
            fit(
                model, package, path, stopping, breaks_after=breaks_after, save_steps=2,
                initial_epoch=epoch,
            )  # fmt: skip
        best.append(stopping.best)
    assert np.isfinite(best[0]) and best == best[:1] * 3


def largest_error(package):
    """A metric that keeps a state: the largest error of a sample in the epoch."""
    backend = package.backend

    class Largest(package.layers.Layer):
        stateful = True

        def __init__(self):
            super().__init__(name='largest')
            self.stateful, self.value = True, backend.variable(0.0)

        def reset_states(self):
            backend.set_value(self.value, 0.0)

        def __call__(self, wanted, found):
            new = backend.maximum(self.value, backend.max(backend.abs(wanted - found)))
            self.add_update(backend.update(self.value, new), inputs=[wanted, found])
            return new + 0.0

    return Largest()


@pytest.mark.skipif(TF2, reason='all metrics of Keras 2.15 keep a state, as mae in other tests')
def test_metrics_that_keep_a_state_go_on(package, tmpdir):
    expected = fit(compiled(package, largest_error), package, tmpdir, save_steps=NEVER)
    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package, largest_error), package, path, breaks_after=22)
    model = compiled(package, largest_error)
    epoch = model.strategy.resume(model, path)
    found = fit(model, package, path, initial_epoch=epoch)
    assert found[0].history == expected[0].history
    assert len(set(found[0].history['largest'])) == EPOCHS


def test_validation_follows_an_epoch_whose_batches_were_over(package, tmpdir):
    def data():
        return shares(validation_split=0.5)

    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package), package, path, data=data, breaks_after=7, save_steps=7)
    model = compiled(package)
    assert model.strategy.resume(model, path) == 0
    # Keras's progress bar is to print an epoch of which it has seen no batch begin.
    history, _, _ = fit(model, package, path, data=data, initial_epoch=0, verbose=1)
    assert history.epoch == [0, 1, 2, 3]
    assert {'loss', 'val_loss'} <= set(history.history)
    assert {len(values) for values in history.history.values()} == {4}


def test_the_progress_bar_goes_on_with_the_averages_of_the_epoch(package, tmpdir, capsys):
    path = str(tmpdir.join('model.h5'))

    def shown():
        """What the bar has come to: batches, or samples, and the averages."""
        end = re.split('[\r\n\b]+', capsys.readouterr().out.strip())[-1]
        return re.match(r'\d+/\d+', end).group(), re.findall(r'\w+: [\d.]+', end)

    fit(compiled(package), package, path, save_steps=NEVER, verbose=1)
    expected = shown()
    with pytest.raises(Broken):
        fit(compiled(package), package, path, breaks_after=BATCHES * 3 + 11, verbose=1)
    model = compiled(package)
    epoch = model.strategy.resume(model, path)
    capsys.readouterr()
    fit(model, package, path, initial_epoch=epoch, verbose=1)
    assert epoch == 3 and shown() == expected
    # The loss and a metric, which TensorFlow 2 shows under two names.
    assert len(expected[1]) == 2 + (TF2 and not TF1_15)


def test_a_fit_that_does_not_begin_where_the_checkpoint_was_says_so(package, broken_off, tmpdir):
    path = str(tmpdir.join('model.h5'))
    model = compiled(package)
    model.strategy.resume(model, broken_off)
    with pytest.warns(UserWarning, match='after batch 5 of epoch 2, but fit begins with initial_'):
        history, _, batches = fit(model, package, path)
    assert batches == list(range(BATCHES)) * EPOCHS
    # And no later one goes on.
    with warnings.catch_warnings():
        warnings.filterwarnings('error', '.*but fit begins with')
        _, _, batches = fit(model, package, path, initial_epoch=1)
    assert batches[0] == 0


def test_history_and_callbacks_go_on_between_epochs_too(package, tmpdir):
    path = str(tmpdir.join('{epoch}.h5'))
    plateau = of_keras(package)
    model = compiled(package)
    named = dict(shares(), verbose=0)
    first = model.fit(epochs=3, callbacks=plateau + [kp.callbacks.ModelCheckpoint(path)], **named)
    model = compiled(package)
    epoch = model.strategy.resume(model, path.format(epoch=2))
    again = of_keras(package)
    found = model.fit(initial_epoch=epoch, epochs=3, callbacks=again, **named)
    assert found.epoch == [0, 1, 2] and found.history == first.history
    for one, other in zip(again, plateau):
        assert (one.best, one.wait) == (other.best, other.wait)


def test_what_a_script_sets_anew_counts_more_than_the_checkpoint(package, tmpdir):
    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        stopping = package.callbacks.EarlyStopping('loss', patience=9)
        fit(compiled(package), package, path, stopping, breaks_after=20)
    saved = resume.state_of(path)['fit']['callbacks']
    assert [name for name, _ in saved] == [
        'EarlyStopping', 'LambdaCallback', 'ModelCheckpoint', 'LambdaCallback',
    ]  # fmt: skip
    assert 'best' in saved[0][1] and 'patience' not in saved[0][1]
    model = compiled(package)
    epoch = model.strategy.resume(model, path)
    stopping = package.callbacks.EarlyStopping('loss', patience=2)
    fit(model, package, path, stopping, initial_epoch=epoch)
    assert stopping.patience == 2


def test_a_number_does_not_replace_what_a_callback_has_open(package, tmpdir):
    class Logging(package.callbacks.Callback):
        count = 0

        def on_train_begin(self, logs=None):
            self.file = open(str(tmpdir.join('log')), 'a')

        def on_batch_end(self, batch, logs=None):
            self.count += 1
            if self.count == 4:
                self.file.close()
                self.file = None

    path = str(tmpdir.join('model.h5'))
    with pytest.raises(Broken):
        fit(compiled(package), package, path, Logging(), breaks_after=7)
    model, again = compiled(package), Logging()
    model.strategy.resume(model, path)
    fit(model, package, path, again)
    assert again.count == BATCHES * EPOCHS and not again.file.closed
    again.file.close()


def test_other_data_is_refused_where_the_checkpoint_is_within_an_epoch(package, broken_off, tmpdir):
    path = str(tmpdir.join('model.h5'))
    model = compiled(package)
    for data, told in (
        (lambda: shares(seed=1), 'seed=0, and now it is 1'),
        (lambda: dict(kp.data.arrays(X[:40], Y[:40]), batch_size=BATCH), 'count=50, and now'),
        (own, 'arrays of kp.data.arrays, and now it is arrays'),
    ):
        epoch = model.strategy.resume(model, broken_off)
        with pytest.raises(kp.DataError, match=told):
            fit(model, package, path, data=data, initial_epoch=epoch)
    with pytest.raises(Broken):
        fit(model, package, path, data=own, breaks_after=20)
    epoch = model.strategy.resume(model, path)
    with pytest.raises(kp.DataError, match='4 samples in a batch, and now it is 5'):
        fit(model, package, path, data=lambda: dict(own(), batch_size=5), initial_epoch=epoch)


def test_batches_of_another_size_begin_with_the_samples_that_follow(package, broken_off, tmpdir):
    path = str(tmpdir.join('model.h5'))
    model = compiled(package)
    epoch = model.strategy.resume(model, broken_off)
    with pytest.warns(UserWarning, match='2 samples are trained again'):
        _, _, batches = fit(
            model, package, path, data=lambda: dict(shares(), batch_size=6), initial_epoch=epoch
        )
    # 20 samples were over.
    assert batches[:2] == [3, 4]


def test_sums_of_more_ranks_than_there_are_count_once():
    saved = [{'seen': 4, 'totals': {'loss': number}} for number in (1.0, 2.0, 6.0)]
    assert sums_of_rank(saved, 1, 3) == saved[1]
    halves = [sums_of_rank(saved, rank, 2) for rank in range(2)]
    assert halves == [{'seen': 6.0, 'totals': {'loss': 4.5}}] * 2
