# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts that train with `fit` as in plain Keras: their numbers, and what is refused."""

import csv
import glob
import os
import pickle

import cases
import launch
import numpy as np
import pytest
import recipes
import reference
import selected
import stacks
from frameworks import KERAS_PACKAGES, RATE, tf

from keras_parallax.data.sample_order import Order

#: The other one trains in the same ways in `tests/unit/test_single_process.py`.
PACKAGES = KERAS_PACKAGES[-1:]
RANKS = recipes.RANKS
#: What stands before the name of a case in `stacks`.
WORKER = 'tests/parallel/training_worker.py::'
TOLERANCE = 1e-5
CASES = (
    'shortest:everywhere', 'shortest:on_rank_0', 'explicit', 'generator', 'built_by_fit',
    'taking_turns', 'shared_arrays', 'shared_sequence', 'shared_generator',
    'set_between', 'not_a_number', 'one_stops', 'chief_validates', 'uneven', 'different',
    'normalized', 'restored', 'stateful', 'counted', 'printed', 'written', 'told', 'wrapped',
    'asynchronous', 'weighted',
)  # fmt: skip


@pytest.fixture(scope='module', params=PACKAGES)
def package(request):
    return request.param


@pytest.fixture(scope='module')
def keras(package):
    return cases.keras_module(package)


@pytest.fixture(scope='module')
def job(request, package, tmpdir_factory):
    """Runs all cases that tests ask for in one job; a folder and an `Outcome`."""
    folder = str(tmpdir_factory.mktemp('training'))
    names = CASES + (('from_dataset', 'shared_dataset') if package == 'tf.keras' else ())
    names = selected.cases_of(request, names)
    names = [name for name in names if not stacks.reason_against(WORKER + name)]
    outcome = launch.run(RANKS, 'parallel/training_worker.py', folder, package, *names)
    return folder, outcome


@pytest.fixture
def show(job):
    """Function from the name of a case to what each worker has returned."""
    folder, outcome = job

    def ranks_of(case):
        reason = stacks.reason_against(WORKER + case)
        if reason:
            pytest.skip(reason)
        results = []
        for rank in range(RANKS):
            path = os.path.join(folder, case, '%d.pickle' % rank)
            assert os.path.exists(path), outcome.output[-5000:]
            with open(path, 'rb') as file:
                results.append(pickle.load(file))
        return results

    return ranks_of


@pytest.fixture
def plain(keras):
    """Function that makes a model of plain Keras with start weights."""
    keras.backend.clear_session()

    def make(build=recipes.model):
        model = build(keras)
        optimizer = reference.gated(recipes.optimizer(keras))
        model.compile(optimizer, 'mse', metrics=['mae'])
        if model.built:
            model.set_weights(cases.start_weights(model))
        return model

    yield make
    keras.backend.clear_session()


def fit(model, callbacks=(), epochs=recipes.EPOCHS, **named):
    """Trains on the joined batches."""
    return model.fit(
        *recipes.data(),
        batch_size=recipes.BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **named,
    ).history


def assert_same_history(found, expected):
    expected = reference.with_default_names(expected)
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=TOLERANCE, err_msg=name)


def assert_same_weights(found, expected):
    assert len(found) == len(expected)
    for own, other in zip(found, expected):
        np.testing.assert_allclose(own, other, rtol=0, atol=TOLERANCE * np.abs(other).max())


@pytest.mark.parametrize('case', ['shortest:everywhere', 'shortest:on_rank_0', 'explicit'])
def test_fit_gives_the_numbers_and_decisions_of_plain_keras(case, show, plain, keras):
    model = plain()
    validation = recipes.data(*recipes.HELD_OUT)
    history = fit(model, recipes.deciding(keras.callbacks), validation_data=validation)
    # The callbacks do decide.
    assert len(history['loss']) < recipes.EPOCHS and len(set(history['lr'])) > 1
    for rank in show(case):
        assert_same_history(rank['history'], history)
        assert_same_weights(rank['weights'], model.get_weights())


def test_explicit_callbacks_change_nothing(show):
    for without, with_them in zip(show('shortest:on_rank_0'), show('explicit')):
        assert without['history'] == with_them['history']
        for own, other in zip(without['weights'], with_them['weights']):
            np.testing.assert_array_equal(own, other)


def test_a_metric_that_a_callback_adds_is_averaged_by_the_explicit_callback_after_it(show):
    for rank in show('explicit'):
        assert set(rank['added']) == {0.5}


def test_generators_arguments_by_place_and_a_second_fit_are_no_different(show, plain, keras):
    model, callbacks = plain(), recipes.deciding(keras.callbacks)
    validation = recipes.data(*recipes.HELD_OUT)
    history = fit(model, callbacks, epochs=3, validation_data=validation)
    later = fit(model, callbacks, epochs=5, validation_data=validation, initial_epoch=3)
    for rank in show('generator'):
        assert_same_history(rank['history'], history)
        assert_same_history(rank['later'], later)
        assert_same_weights(rank['weights'], model.get_weights())


@pytest.mark.parametrize('name', ['shapeless_model', 'subclassed_model'])
def test_callbacks_decide_by_averages_for_a_model_that_fit_builds_too(name, show, plain, keras):
    model = plain(getattr(recipes, name))
    validation = recipes.data(*recipes.HELD_OUT)
    history = fit(model, recipes.deciding(keras.callbacks), validation_data=validation)
    assert len(history['loss']) < recipes.EPOCHS
    for rank in show('built_by_fit'):
        assert_same_history(rank[name]['history'], history)
        assert_same_weights(rank[name]['weights'], model.get_weights())


def test_callbacks_decide_by_averages_for_data_sets_too(show, plain, keras):
    if keras is not tf.keras:
        pytest.skip('keras 2.2.4 takes no data sets')
    model = plain()
    callbacks = recipes.deciding(keras.callbacks, 'val_loss')
    history = model.fit(**recipes.datasets(recipes.BATCH), callbacks=callbacks).history
    assert len(set(history['lr'])) > 1
    for rank in show('from_dataset'):
        assert_same_history(rank['history'], history)
        assert_same_weights(rank['weights'], model.get_weights())


def test_shares_of_arrays_train_as_one_process_does(show, plain):
    ids, targets = recipes.uneven_data()
    trained = int(len(ids) * (1 - recipes.SPLIT))
    validation, model = (ids[trained:], targets[trained:]), plain()
    order, history = Order(trained, RANKS, recipes.SHARED_SEED), {}
    assert order.remainder and order.length % (recipes.BATCH // RANKS)
    for epoch in range(recipes.SHARED_EPOCHS):
        rows = order.of_all(epoch)
        found = model.fit(
            ids[rows], targets[rows], batch_size=recipes.BATCH, shuffle=False, verbose=0,
            validation_data=validation,
        ).history  # fmt: skip
        for name, values in found.items():
            history.setdefault(name, []).extend(values)
    ranks = show('shared_arrays')
    for rank in ranks:
        assert_same_history(rank['history'], history)
        assert_same_weights(rank['weights'], model.get_weights())
    assert [len(rank['told']) for rank in ranks] == [1, 0]


def joined(batches, numbers):
    """One batch made of the batches that workers have at the same time."""
    return [np.concatenate(parts) for parts in zip(*[batches[int(number)] for number in numbers])]


def test_shares_of_a_sequence_train_as_one_process_does(show, plain, keras):
    batches, model = recipes.batches_of(keras, recipes.BATCH // RANKS), plain()
    order, losses = Order(len(batches), RANKS, recipes.SHARED_SEED), []
    assert order.remainder
    for epoch in range(recipes.SHARED_EPOCHS):
        numbers = order.of_all(epoch).reshape(-1, RANKS)
        losses.append(
            np.mean([model.train_on_batch(*joined(batches, pair))[0] for pair in numbers])
        )
    for rank in show('shared_sequence'):
        np.testing.assert_allclose(rank['loss'], losses, rtol=TOLERANCE)
        assert_same_weights(rank['weights'], model.get_weights())


def test_shares_of_a_generator_train_as_one_process_does(show, plain, keras):
    batches, model = recipes.batches_of(keras, recipes.BATCH // RANKS), plain()
    for pair in Order(len(batches), RANKS).of_all(0).reshape(-1, RANKS):
        model.train_on_batch(*joined(batches, pair))
    for rank in show('shared_generator'):
        assert rank['steps'] == len(batches) // RANKS
        assert_same_weights(rank['weights'], model.get_weights())


def test_shares_of_a_data_set_train_as_one_process_does(show, plain, package):
    if package != 'tf.keras':
        pytest.skip('keras 2.2.4 takes no data sets')
    model, (ids, targets) = plain(), recipes.uneven_data()
    samples = tf.data.Dataset.from_tensor_slices((ids, targets.astype(np.float32)))
    samples = samples.shuffle(50, seed=recipes.SHARED_SEED).take(len(ids) // RANKS * RANKS)
    given = samples.batch(recipes.BATCH).repeat()
    history = model.fit(given, steps_per_epoch=recipes.BATCHES, epochs=2, verbose=0).history
    for rank in show('shared_dataset'):
        np.testing.assert_allclose(rank['loss'], history['loss'], rtol=TOLERANCE)
        assert_same_weights(rank['weights'], model.get_weights())


def test_models_of_one_scope_may_take_turns(show, plain):
    models = [plain(), plain()]
    losses = [fit(model, epochs=1)['loss'] for _ in range(2) for model in models]
    weights = [weight for model in models for weight in model.get_weights()]
    for rank in show('taking_turns'):
        np.testing.assert_allclose(rank['losses'], losses, rtol=TOLERANCE)
        assert_same_weights(rank['weights'], weights)


def test_what_rank_0_sets_between_two_fits_counts_for_all(show, plain, keras):
    model = plain()
    fit(model, epochs=1)
    model.set_weights([2 * weight for weight in model.get_weights()])
    keras.backend.set_value(model.optimizer.lr, 0.05)
    fit(model, epochs=1)
    ranks = show('set_between')
    for rank in ranks:
        assert_same_weights(rank['weights'], model.get_weights())
    (told,) = ranks[0]['told']
    assert "rank 0 has {'%s': 0.05" % RATE in told and "rank 1 has {'%s': 0.1" % RATE in told
    assert not ranks[1]['told']


def test_a_loss_that_is_no_number_on_one_rank_stops_all_at_the_batch_of_plain_keras(
    show, plain, keras
):
    model, ends = plain(), []
    ids, targets = recipes.data()
    targets[recipes.BAD_SAMPLE] = np.nan
    callbacks = [
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: ends.append(batch)),
    ]
    model.fit(
        ids, targets, batch_size=recipes.BATCH, epochs=3, shuffle=False, verbose=0,
        callbacks=callbacks,
    )  # fmt: skip
    assert ends == [0, 1, 2, 3, 4]
    for rank in show('not_a_number'):
        assert rank['ends'] == ends
        assert np.isnan(rank['loss']).all() and rank['nan']


def test_all_ranks_stop_where_one_does(show):
    for rank in show('one_stops'):
        assert rank['foreseen'] == [0, 1]
        # The code of the callback does not tell that it may stop, so the epoch goes on to its end.
        assert rank['unforeseen'] == list(range(recipes.BATCHES))
        assert rank['epochs'] == 2


def test_shares_of_different_sizes_are_told_once_by_rank_0(show):
    first, second = show('uneven')
    numbers = int(first['samples']), int(second['samples'])
    assert len(first['told']) == 1 and len(second['told']) == 0
    assert 'rank 0 on %d, rank 1 on %d' % numbers in str(first['told'][0])


def test_callbacks_decide_by_what_only_rank_0_validates(show, plain, keras):
    model = plain()
    callbacks = recipes.deciding(keras.callbacks, 'val_loss')
    history = fit(model, callbacks, validation_data=recipes.data(*recipes.HELD_OUT))
    assert len(set(history['lr'])) > 1
    ranks = show('chief_validates')
    for rank in ranks:
        assert_same_history(rank['history'], history)
        assert_same_weights(rank['weights'], model.get_weights())
    (told,) = ranks[0]['told']
    assert 'rank 1 lacks val_loss and val_mean_absolute_error' in told and not ranks[1]['told']


@pytest.mark.parametrize(
    'what, error, told',
    [
        ('validation', 'MetricMismatchError', 'rank 1 lacks val_loss and val_mean_absolute_error'),
        ('added', 'MetricMismatchError', 'rank 1 lacks auc'),
        ('callback', 'MetricMismatchError', 'rank 1 lacks MetricAverageCallback'),
        ('sharded', 'MetricMismatchError', 'rank 1 lacks ModelCheckpoint(sharded=True)'),
        ('steps', 'MetricMismatchError', 'rank 1 lacks ModelCheckpoint(save_steps=2)'),
        ('order', 'MetricMismatchError', 'their order must be the same'),
        ('batches', 'UnequalBatchesError', 'rank 0 has 2, rank 1 has 1'),
        ('epochs', 'UnequalBatchesError', 'rank 0 from initial_epoch=1 to epochs=14'),
        ('rates', 'ReplicaMismatchError', 'changed by LearningRateScheduler'),
        ('rates', 'ReplicaMismatchError', RATE + ' after epoch 2: rank 0 has 0.1'),
        ('set rate', 'ReplicaMismatchError', RATE + ' after epoch 3: rank 0 has 0.1'),
        ('set weights', 'ReplicaMismatchError', '/kernel after epoch 2: ranks 0 and 1 differ'),
    ],
)
def test_what_ranks_have_differently_is_told_on_each(what, error, told, show):
    for rank in show('different'):
        assert rank[what].startswith(error + ': '), rank[what]
        assert told in rank[what]


def test_moving_statistics_are_averaged_if_asked_and_each_ranks_own_otherwise(show):
    one, other = show('normalized')
    for name in ('left', 'averaged'):
        for own, theirs in zip(one[name]['dense'], other[name]['dense']):
            np.testing.assert_array_equal(own, theirs)
    for own, theirs in zip(one['left']['seen'], other['left']['seen']):
        # gamma, beta, moving_mean, moving_variance
        assert [np.array_equal(*pair) for pair in zip(own, theirs)] == [True, True, False, False]
    for place in (0, 2):  # before and after the callback, in two epochs
        before = [rank['averaged']['seen'][place] for rank in (one, other)]
        after = [rank['averaged']['seen'][place + 1] for rank in (one, other)]
        assert not np.array_equal(before[0][2], before[1][2])
        for weight in range(4):
            np.testing.assert_array_equal(after[0][weight], after[1][weight])
            mean = (before[0][weight] + before[1][weight]) / 2
            np.testing.assert_allclose(after[0][weight], mean, rtol=1e-6)


@pytest.mark.parametrize('architecture', ['hybrid', 'allreduce'])
def test_weights_that_rank_0_alone_restores_are_those_of_all_when_fit_ends(
    architecture, show, plain, keras
):
    model = plain()
    assert len(fit(model, [recipes.restoring(keras.callbacks)])['loss']) == 3
    restored = model.get_weights()
    # The slots stay those of the third epoch.
    fit(model, epochs=1)
    ranks = show('restored')
    for rank in ranks:
        first, second = rank[architecture]
        assert (first['epochs'], second['epochs']) == (3, 1)
        assert_same_weights(first['weights'], restored)
        assert_same_weights(second['weights'], model.get_weights())
    (told,) = ranks[0][architecture][0]['told']
    tables = ['table/embeddings'] if architecture == 'allreduce' else []
    for name in ['hidden/kernel', 'hidden/bias', 'out/kernel', 'out/bias', *tables]:
        assert '%s (rank 1, by about ' % name in told
    assert ('table/embeddings' in told) == bool(tables)
    assert not ranks[0][architecture][1]['told'] and not ranks[1][architecture][0]['told']


def test_moving_statistics_stay_each_ranks_own_unless_all_take_restored_weights(show):
    one, other = show('restored')
    own, theirs = one['own averages'], other['own averages']
    assert not own['told'] and not theirs['told']
    same = [np.array_equal(*pair) for pair in zip(own['weights'], theirs['weights'])]
    # table, gamma, beta, moving_mean, moving_variance, kernel, bias
    assert same == [True, True, True, False, False, True, True]
    assert len(one['averages']['told']) == 1 and 'moving' not in one['averages']['told'][0]
    for pair in zip(one['averages']['weights'], other['averages']['weights']):
        np.testing.assert_array_equal(*pair)


def test_a_weight_that_is_not_trained_is_compared_too_when_fit_ends(show):
    one, other = show('restored')
    (told,) = one['frozen']['told']
    assert 'frozen/kernel (rank 1, by about ' in told and 'out/' not in told
    for pair in zip(one['frozen']['weights'], other['frozen']['weights']):
        np.testing.assert_array_equal(*pair)


def test_each_rank_goes_on_from_its_own_recurrent_states(show):
    ranks = show('stateful')
    assert not np.array_equal(ranks[0]['before'], ranks[1]['before'])
    for rank in ranks:
        np.testing.assert_array_equal(rank['before'], rank['kept'])


def test_a_metric_that_reads_its_state_and_adds_to_it_counts_each_sample_once(show):
    ranks = show('counted')
    means = {
        name: np.mean([rank['positive'][name] for rank in ranks]) for name in ('count', 'val_count')
    }
    for rank in ranks:
        counts = rank['counts']
        assert counts.pop('tests') == [rank['positive']['tests']] * 20
        # Callbacks see the means of the workers.
        assert counts == {name: [mean] * 20 for name, mean in means.items()}


def test_only_rank_0_prints_unless_asked(show, plain, capsys):
    ranks, model = show('printed'), plain()
    model.evaluate(*recipes.data())
    # Keras 2.15 prints nothing of a graph's evaluation.
    prints = {'fit': True, 'evaluate': bool(capsys.readouterr().out)}
    for name in prints:
        assert bool(ranks[0][name]) == prints[name] and not ranks[1][name]
    for rank in ranks:
        assert bool(rank['asked evaluate']) == prints['evaluate']
        # The epoch's line has the metric of `History`.
        assert ' loss: %.4f' % rank['loss'][0] in rank['asked fit']


@pytest.fixture
def written(show, plain, keras, job, tmpdir):
    """The folders that the workers and plain Keras have written to, and the weights at the end."""
    ranks, model = show('written'), plain()
    named = {'validation_data': recipes.data(*recipes.HELD_OUT)}
    fit(model, recipes.writing(keras.callbacks, str(tmpdir)), epochs=2, **named)
    model.compile(reference.gated(recipes.optimizer(keras)), 'mse', metrics=['mae'])
    callbacks = recipes.writing(keras.callbacks, str(tmpdir))[1:]
    fit(model, callbacks, epochs=4, initial_epoch=2, **named)
    for rank in ranks:
        assert_same_weights(rank['weights'], model.get_weights())
    return os.path.join(job[0], 'written'), str(tmpdir)


def events_in(folder):
    """Values in the one file of events in a folder, a dict from tags to lists of floats."""
    (path,) = glob.glob(os.path.join(folder, 'events', 'events.*'))
    values = {}
    for event in tf.train.summary_iterator(path):
        for value in event.summary.value:
            number = value.histo.sum if value.HasField('histo') else value.simple_value
            values.setdefault(value.tag, []).append(number)
    return values


def assert_same_events(found, expected):
    for tag, values in expected.items():
        # Batches of each worker are smaller, but those of validation not unequal.
        if '_out' not in tag and 'batch_' not in tag:
            own, other = np.mean(found[tag]), np.mean(values)
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4, err_msg=tag)


def assert_same_lines(found, expected, count):
    rows = []
    for path in (found, expected):
        with open(path) as file:
            rows.append(list(csv.reader(file)))
    assert rows[0][0] == rows[1][0]
    assert [row[0] for row in rows[0][1:]] == [str(epoch) for epoch in range(count)]
    found, expected = (np.array(lines[1 : 1 + count], float) for lines in rows)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)


def test_what_all_ranks_would_write_rank_0_writes_once_with_the_numbers_of_plain_keras(written):
    found, expected = (events_in(place) for place in written)
    assert sorted(found) == sorted(expected)
    assert any(tag.endswith('_grad') for tag in found) and 'table/embeddings_0' in found
    assert_same_events(found, expected)
    assert_same_lines(*(os.path.join(place, 'log.csv') for place in written), 4)


def test_ranks_write_to_places_of_their_own_as_they_are_asked_to(written):
    folder, plainly = written
    for rank in range(RANKS):
        own = os.path.join(folder, 'rank%d' % rank)
        found, expected = (events_in(place) for place in (own, plainly))
        assert any('val_loss' in tag for tag in found)
        assert_same_events(found, {tag: expected[tag] for tag in found})
        paths = [os.path.join(place, 'log.csv') for place in (own, plainly)]
        assert_same_lines(*paths, 2)
    paths = os.path.join(folder, 'of_rank_1.csv'), os.path.join(plainly, 'log.csv')
    assert_same_lines(*paths, 2)


def test_callbacks_that_would_print_the_same_on_all_ranks_print_on_rank_0(
    show, plain, keras, tmpdir, capsys
):
    path = str(tmpdir.join('model.h5'))
    fit(plain(), recipes.printing(keras.callbacks, path))
    expected = capsys.readouterr().out
    assert [word in expected for word in ('saving', 'reducing', 'early')] == [True] * 3
    ranks = show('told')
    folder = ranks[0]['same'].split('saving model to ')[1].split('model.h5')[0]
    assert ranks[0]['same'].replace(folder, str(tmpdir) + os.sep) == expected
    assert ranks[1]['same'] == ''
    # A checkpoint for each worker, but one decision.
    assert 'saving model to' in ranks[1]['own'] and 'early' not in ranks[1]['own']
    assert ranks[1]['asked again'] == [1, 1, 1]


def test_wrappers_for_scikit_learn_still_know_the_arguments_of_fit(show, plain):
    history = fit(plain(), epochs=2)
    for rank in show('wrapped'):
        np.testing.assert_allclose(rank['loss'], history['loss'], rtol=TOLERANCE)


def test_ranks_that_wait_for_nobody_stop_on_their_own(show):
    ranks = show('asynchronous')
    assert [rank['epochs'] for rank in ranks] == [2, 4]
    assert 'val_loss' in ranks[0]['names'] and 'val_loss' not in ranks[1]['names']


def test_all_cases_follow_each_other_in_one_job_that_ends_well(job):
    assert job[1].code == 0, job[1].output[-5000:]


def test_sample_weights_and_masks_count_over_all_ranks_in_fit_and_in_its_metrics(
    show, plain, keras
):
    def compiled(build, **arguments):
        model = build(keras)
        model.compile(reference.gated(recipes.optimizer(keras)), **arguments)
        model.set_weights(cases.start_weights(model))
        return model

    model = compiled(recipes.model, loss='mse', metrics=['mae'], weighted_metrics=['mse', 'mae'])
    batches = [
        (*recipes.data(number, number + 1), recipes.weights(number, number + 1))
        for number in range(4)
    ]
    expected = recipes.weighted_fits(
        model, lambda **named: fit(model, epochs=2, **named), recipes.weights(), batches
    )
    # They do count: the workers' sums of weights are far from equal.
    assert expected['histories'][1]['loss'] != expected['histories'][2]['loss']
    masked = compiled(cases.masked_outputs, **recipes.MASKED)
    ids, targets, weights = recipes.masked_data()
    history = masked.fit(
        ids, targets, recipes.BATCH, 2, 0, sample_weight=weights, shuffle=False
    ).history
    ranks = show('weighted')
    for rank in ranks:
        for found, of_plain in zip(rank['histories'], expected['histories']):
            assert_same_history(found, of_plain)
        assert_same_weights(rank['weights'], expected['weights'])
        assert_same_history(rank['masked']['history'], history)
        assert_same_weights(rank['masked']['weights'], masked.get_weights())
        assert rank['refused'] is None or 'train_on_batch' in rank['refused']
    losses = np.mean([rank['losses'] for rank in ranks], 0)
    np.testing.assert_allclose(losses, expected['losses'], rtol=TOLERANCE)
