# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What users do with a model in a job of two, and what they must then see on both workers."""

import csv
import glob
import json
import os
from typing import List, NamedTuple

import cases
import launch
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES, TF2, tf
from google.protobuf import text_format

from keras_parallax.compat import keras_api
from keras_parallax.observing import critical_path, phases, trace

PACKAGES = KERAS_PACKAGES
RANKS = 2
#: As in the worker.
SAMPLED_ROWS = 7
TOLERANCE = 1e-5


class Results(dict):
    """What a worker has written; a list of arrays is found under its name."""

    def __missing__(self, name):
        parts = [self['%s.%d' % (name, n)] for n in range(99) if '%s.%d' % (name, n) in self]
        if not parts:
            raise KeyError(name)
        return parts


@pytest.fixture(scope='module', params=PACKAGES)
def package(request):
    return request.param


@pytest.fixture(scope='module')
def keras(package):
    return cases.keras_module(package)


class Shown(NamedTuple):
    """A behaviour: the `Results` of both workers, the place of its files, its argument if any."""

    ranks: List[Results]
    folder: str
    argument: str


def behaviour(*names):
    """Marks a test of behaviours, whose names are those of functions of the worker."""
    return pytest.mark.parametrize('shown', names, indirect=True)


class Jobs:
    """The jobs that show behaviours: all in one job, as far as it comes.

    A behaviour of which that job has no results gets a job of its own, so that the test fails of
    which the behaviour fails.
    """

    def __init__(self, package, folder, behaviours):
        self._package, self._folder = package, folder
        # Without a strategy, there must be none in the whole process.
        together = [name for name in behaviours if not name.startswith('no_strategy')]
        self.outcome = self._run(together)

    def _run(self, behaviours):
        return launch.run(
            RANKS,
            'parallel/behaviour_worker.py',
            self._folder,
            self._package,
            *behaviours,
        )

    def show(self, name):
        folder = os.path.join(self._folder, name)
        paths = [os.path.join(folder, '%d.npz' % rank) for rank in range(RANKS)]
        if not all(map(os.path.exists, paths)):
            outcome = self._run([name])
            assert outcome.code == 0, outcome.output[-5000:]
        return Shown([Results(np.load(path)) for path in paths], folder, name.partition(':')[2])


@pytest.fixture(scope='module')
def jobs(request, package, tmpdir_factory):
    """The `Jobs` for the selected tests of a package."""
    selected = [
        item.callspec.params
        for item in request.session.items
        if item.module is request.module
        and hasattr(item, 'callspec')
        and not item.get_closest_marker('skip')
    ]
    names = [
        params['shown'] for params in selected if params['package'] == package and 'shown' in params
    ]
    return Jobs(package, str(tmpdir_factory.mktemp('behaviour')), list(dict.fromkeys(names)))


@pytest.fixture
def shown(request, jobs):
    return jobs.show(request.param)


@pytest.fixture
def plain(keras):
    """Function from the name of a case to its model in plain Keras, with start weights."""
    keras.backend.clear_session()

    def make(case='adagrad', start=None, build=None):
        model = (build or cases.CASES[case].model)(keras)
        compile_plain(keras, model, case)
        model.set_weights(cases.start_weights(model) if start is None else start)
        return model

    yield make
    keras.backend.clear_session()


def compile_plain(keras, model, case):
    model.compile(reference.gated(cases.CASES[case].optimizer(keras)), 'mse', metrics=['mae'])


def joined(begin, end, case='adagrad'):
    """The batches of both workers together."""
    return cases.batches(cases.CASES[case], RANKS, begin, end)


def fit(model, begin, end, **arguments):
    ids, targets = zip(*joined(begin, end))
    return model.fit(
        np.concatenate(ids),
        np.concatenate(targets),
        batch_size=cases.joined_size(cases.CASES['adagrad'], RANKS),
        shuffle=False,
        verbose=0,
        **arguments,
    )


def own_data(rank, begin, end):
    """A worker's share of the joined batches, as one array of ids and one of targets."""
    shares = cases.batches(cases.CASES['adagrad'], RANKS, begin, end, rank)
    return [np.concatenate(parts) for parts in zip(*shares)]


def assert_all_equal(found, expected):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        np.testing.assert_array_equal(mine, theirs)


def assert_all_close(found, expected, tolerance=TOLERANCE):
    assert [np.shape(mine) for mine in found] == [np.shape(theirs) for theirs in expected]
    for mine, theirs in zip(found, expected):
        atol = tolerance * np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol)


def assert_both_end_with(ranks, weights):
    assert_all_equal(ranks[0]['end'], ranks[1]['end'])
    assert_all_close(ranks[0]['end'], weights)


# --- fit and callbacks -------------------------------------------------------------------------


@behaviour('fit')
def test_fit_with_callbacks_starts_all_ranks_from_rank_0_and_keeps_them_equal(shown, plain, keras):
    ranks = shown.ranks
    for rank in ranks:
        assert_all_equal(rank['start'], ranks[0]['own'])
    # The table is one for the whole job; the dense weights of rank 1 were others before.
    assert not np.array_equal(ranks[1]['own'][1], ranks[0]['own'][1])
    assert_all_equal(ranks[0]['end'], ranks[1]['end'])

    model = plain(start=ranks[0]['own'])
    plateau = keras.callbacks.ReduceLROnPlateau('loss', factor=0.5, patience=1, min_delta=0.03)
    # Of unequal amounts, as in the worker.
    held_out = [
        [part[: 6 * (1 + number)] for part in own_data(number, 20, 23)] for number in range(RANKS)
    ]
    held_out = tuple(map(np.concatenate, zip(*held_out)))
    history = fit(model, 0, 8, epochs=6, callbacks=[plateau], validation_data=held_out).history
    assert_both_end_with(ranks, model.get_weights())
    assert len(set(history['lr'])) > 1
    for rank in ranks:
        for name in ('loss', 'mean_absolute_error', 'lr', 'val_loss', 'val_mean_absolute_error'):
            assert_all_close([rank['history ' + name]], [np.array(history[name])])
        assert_all_equal([rank['history val_loss']], [ranks[0]['history val_loss']])


def bytes_by_hand(ids_of_ranks, machines, row_bytes):
    """Bytes that both hosts together send in a step: what is not at home comes, and goes."""
    total = 0
    for rank, ids in enumerate(ids_of_ranks):
        for row in np.unique(ids):
            if machines[row % len(machines)] != rank:
                total += row_bytes + row_bytes + 2 * 1  # Its number takes a byte.
    return total


@behaviour('step_metrics')
def test_step_metrics_are_what_is_counted_by_hand_in_every_log(shown, plain):
    ranks, batches = shown.ranks, []
    for number in range(RANKS):
        of_rank = cases.batches(cases.CASES['adagrad'], RANKS, 0, 4, number)
        batches.append([ids for ids, _ in of_rank])
    touched = np.mean([len(np.unique(ids)) for of_rank in batches for ids in of_rank])
    name, machines = str(ranks[0]['table']), list(ranks[0]['machines'])
    row_bytes = 4 * ranks[0]['shape'][1]
    sent = [bytes_by_hand(of_step, machines, row_bytes) for of_step in zip(*batches)]
    for rank in ranks:
        for key in ('rows/touched', 'rows/touched/' + name):
            np.testing.assert_allclose(rank['history ' + key], [touched] * 2)
        for key in ('bytes/rows_sent', 'bytes/rows_received', 'bytes/rows_sent/' + name):
            np.testing.assert_allclose(rank['history ' + key], [np.mean(sent) / RANKS] * 2)
        # Known from the first batch on, and told again after every second one.
        assert len(rank['on_batches']) == 8 and len(set(rank['on_batches'])) > 2
        parts = [rank['history seconds/%s' % part] for part in ('pull', 'compute', 'barrier')]
        assert (np.sum(parts, axis=0) <= rank['history seconds/step']).all()
        assert (rank['history job/examples_per_second'] > 0).all()
        # It sleeps; in the first epoch there is the first step of all.
        assert rank['history job/slowest_rank'][1] == 1
        assert rank['history seconds/slowest_rank_behind'][1] > 0
    for key in [key for key in ranks[0] if key.startswith('history ')]:
        assert_all_equal([ranks[0][key]], [ranks[1][key]])
    assert_both_end_with(ranks, ranks[0]['end'])
    with open(os.path.join(shown.folder, 'log-0.csv')) as file:
        log = [float(row['rows/touched']) for row in csv.DictReader(file)]
    np.testing.assert_allclose(log, [touched] * 2)


@behaviour('accumulated')
def test_batches_that_are_exchanged_together_train_and_cost_what_one_of_all_does(shown, plain):
    ranks, model, row_bytes = shown.ranks, plain(), 4 * shown.ranks[0]['shape'][1]
    of_joined, together = joined(0, 5), [(0, 2), (2, 4), (4, 5)]
    for begin, end in 2 * together:
        model.train_on_batch(*map(np.concatenate, zip(*of_joined[begin:end])))
    assert_both_end_with(ranks, model.get_weights())
    sent = 0
    for number in range(RANKS):
        ids = [ids for ids, _ in cases.batches(cases.CASES['adagrad'], RANKS, 0, 5, number)]
        pulled = [np.unique(of_batch) for of_batch in ids]
        pushed = [np.unique(np.concatenate(ids[begin:end])) for begin, end in together]
        machines = ranks[0]['machines']
        away = machines[np.concatenate(pulled + pushed) % len(machines)] != number
        sent += (row_bytes + 1) * np.sum(away)  # A row's number takes a byte.
    for rank in ranks:
        assert rank['iterations'] == 6
        np.testing.assert_allclose(rank['history bytes/rows_sent'], [sent / 5 / RANKS] * 2)
        # Half of what a ring of two hosts sends for each batch, as it is planned.
        assert rank['history bytes/dense_sent'].tolist() == [rank['dense_size'] / 2] * 2
        parts = [rank['history seconds/%s' % part] for part in ('pull', 'compute', 'barrier')]
        assert (np.sum(parts, axis=0) <= rank['history seconds/step']).all()
        refusal = str(rank['refusal'])
        assert 'rank 1 has settings of ParallaxOptimizer: ' in refusal
        assert "'accumulate_steps': 3" in refusal and "'accumulate_steps': 2" in refusal


def read_trace(*path):
    with open(os.path.join(*path)) as file:
        return trace.from_chrome(json.load(file), path[-1])


@behaviour('profile')
def test_a_profile_has_the_phases_of_all_ranks_and_does_not_change_what_is_trained(shown):
    ranks = shown.ranks
    for rank in ranks:
        for end in rank['ends'][1:]:
            np.testing.assert_allclose(end, rank['ends'][0], rtol=1e-5, atol=1e-7)
    found = read_trace(shown.folder, 'profile', 'trace-2-3.json')
    assert found.size == RANKS and sorted(found.steps) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    for key in found.steps:
        own = {span.phase for span in found.spans if (span.rank, span.step) == key}
        assert own == set(phases.PHASES)
    waited = {(span.rank, span.awaited) for span in found.spans if span.phase == phases.WAIT}
    assert {(0, 1), (1, 0)} <= waited
    for phase in (phases.PULL, phases.PUSH, phases.WAIT):
        tables = {span.table for span in found.spans if span.phase == phase}
        assert any('words' in table and 'items' in table for table in tables)
    for path in critical_path.paths_of(found):
        assert path.links[0].begin == path.begin and path.links[-1].end == path.end
    for rank in range(RANKS):
        (events,) = glob.glob(os.path.join(shown.folder, 'profile', 'rank-%d' % rank, '*'))
        tags = [event.tagged_run_metadata.tag for event in tf.train.summary_iterator(events)]
        assert [tag for tag in tags if tag] == ['step 2', 'step 3']


@behaviour('profile')
def test_of_a_profile_that_cannot_be_what_was_asked_for_there_is_what_can_be(shown):
    told = str(shown.ranks[0]['told'])
    assert 'the job has no rank 5: it has 2 workers' in told
    assert 'it was asked for the steps 4 to 8, but training had 6' in told
    assert 'it could not write to ' in told and told.count('Training goes on.') == 3
    assert str(shown.ranks[1]['told']) == ''
    found = read_trace(shown.folder, 'short', 'trace-4-8.json')
    assert sorted(found.steps) == [(1, 4), (1, 5)]


@behaviour('second_fit')
def test_fit_goes_on_where_the_last_one_ended(shown, plain):
    ranks = shown.ranks
    model = plain('adam')
    cases.train(model, joined(0, 16))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('generators')
def test_generators_and_sequences_train_on_all_ranks(shown, plain):
    ranks = shown.ranks
    model = plain()
    cases.train(model, joined(0, 8))
    cases.train(model, joined(8, 12))
    cases.train(model, joined(8, 12))
    assert_both_end_with(ranks, model.get_weights())
    for number, rank in enumerate(ranks):
        ids, _ = own_data(number, 8, 12)
        assert_all_close([rank['predicted']], [model.predict(ids)])


@behaviour('broadcast_from_1')
def test_start_values_of_another_rank_than_0_are_refused(shown):
    ranks = shown.ranks
    for rank in ranks:
        assert str(rank['error']).startswith('PlanError: ')
        assert 'root_rank=0' in str(rank['error'])


@behaviour('horovod_callback:adagrad', 'horovod_callback:adam', 'horovod_callback:tf_adam')
def test_horovods_own_broadcast_callback_may_be_used(shown, plain):
    ranks, _, case = shown
    model = plain(case)
    cases.train(model, joined(0, 8))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('schedule:adagrad')
def test_a_rate_that_changes_by_epoch_reaches_the_shards_at_the_next_step(shown, plain, keras):
    ranks = shown.ranks
    model = plain()
    for epoch in range(4):
        keras.backend.set_value(model.optimizer.lr, 0.1 * 0.5**epoch)
        cases.train(model, joined(0, 4))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('schedule:momentum')
def test_a_rate_that_changes_by_batch_corrects_the_momentum_on_the_shards_too(shown, plain, keras):
    ranks = shown.ranks
    model, rate = plain('momentum'), 0.1
    for step in range(16):
        # Goyal et al. (2017): the momentum of a step in which the rate changes changes with it.
        last, rate = rate, 0.1 * 0.5 ** (step / 4)
        keras.backend.set_value(model.optimizer.lr, rate)
        keras.backend.set_value(model.optimizer.momentum, 0.9 * rate / last)
        cases.train(model, joined(step % 4, step % 4 + 1))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('warmup')
def test_warmup_ends_with_the_full_rate(shown):
    ranks = shown.ranks
    steps = np.arange(1, 9) / 4
    expected = list(0.2 / RANKS * (1 + steps * (RANKS - 1) / 2)) + [0.2] * 4
    for rank in ranks:
        np.testing.assert_allclose(rank['rates'], expected, rtol=1e-6)
    assert_all_equal(ranks[0]['end'], ranks[1]['end'])


@behaviour('checkpoint')
def test_a_checkpoint_of_rank_0_holds_the_weights_of_the_end_of_its_epoch(shown, plain):
    ranks = shown.ranks
    model, saved = plain(), plain()
    for epoch in range(1, 4):
        cases.train(model, joined(0, 4))
        saved.load_weights(os.path.join(shown.folder, '%d.h5' % epoch))
        assert_all_close(saved.get_weights(), model.get_weights())
    assert_both_end_with(ranks, model.get_weights())


@behaviour('graphs')
def test_each_rank_exports_its_own_graph(shown):
    for number, rank in enumerate(shown.ranks):
        path, graph = os.path.join(shown.folder, 'rank-%d' % number, 'graph.pbtxt'), tf.GraphDef()
        with open(path) as file:
            text_format.Merge(file.read(), graph)
        # Later there are others, as of a read of the weights.
        exported = [node.name for node in graph.node]
        assert exported == list(rank['operations'][: len(exported)])
        # Each takes the gradients of the shard that it owns from a queue beside it.
        devices = {
            node.device
            for node in graph.node
            if 'Dequeue' in node.op
            and tf.float32.as_datatype_enum in node.attr['component_types'].list.type
        }
        assert devices == {'/job:worker/task:%d/device:CPU:0' % number}


def events_in(folder):
    """What a file of events in a folder shows: from tags and steps to numbers."""
    (path,) = glob.glob(os.path.join(folder, 'events.out.*'))
    shown = {}
    for event in tf.train.summary_iterator(path):
        for value in event.summary.value:
            if value.HasField('histo'):
                of = value.histo
                numbers = of.num, of.min, of.max, of.sum, of.sum_squares
            elif value.HasField('image'):
                numbers = value.image.height, value.image.width
            else:
                numbers = (value.simple_value,)
            shown[value.tag, event.step] = np.array(numbers)
    return shown


@behaviour('tensor_board')
def test_tensorboard_on_rank_0_has_what_keras_writes_and_a_sample_of_the_table(
    shown, plain, keras, tmpdir
):
    assert os.listdir(shown.folder).count('rank-1') == 0
    folder = os.path.join(shown.folder, 'rank-0')
    model = plain()
    board = keras_api.package_of(model).tensor_board(
        str(tmpdir), histogram_freq=1, write_grads=True, write_images=True
    )
    held_out = tuple(own_data(0, 20, 21))
    fit(model, 0, 4, epochs=3, callbacks=[board], validation_data=held_out)
    ours, theirs = events_in(folder), events_in(str(tmpdir))
    assert set(ours) == set(theirs)
    for tag, step in ours:
        found, expected = ours[tag, step], theirs[tag, step]
        if tag == 'table/embeddings_0':
            assert found[0] == SAMPLED_ROWS * cases.WIDTH
            assert expected[1] <= found[1] < found[2] <= expected[2]
        elif tag.startswith('table/embeddings_0_1/image'):
            # The longer side is laid across.
            assert sorted(found) == sorted([SAMPLED_ROWS, cases.WIDTH])
        elif not tag.startswith('batch_'):  # Those of rank 0.
            assert_all_close([found], [expected])
    assert_both_end_with(shown.ranks, model.get_weights())


@behaviour('tensor_board')
def test_the_projector_has_rows_of_the_table_with_their_numbers(shown):
    folder = os.path.join(shown.folder, 'rank-0')
    rows = np.loadtxt(os.path.join(folder, 'embedding-0.tsv'))
    numbers = np.loadtxt(os.path.join(folder, 'embedding-0-labels.tsv'), dtype=int)
    assert len(set(numbers)) == SAMPLED_ROWS
    assert_all_close([rows], [shown.ranks[0]['end'][0][numbers]])


# --- One worker alone ----------------------------------------------------------------------------


@behaviour('alone')
def test_one_rank_alone_may_predict_and_evaluate_while_the_other_waits(shown, plain):
    ranks = shown.ranks
    model = plain()
    cases.train(model, joined(0, 3))
    for number, rank in enumerate(ranks):
        ids, targets = own_data(number, 10, 13)
        assert_all_close([rank['predicted']], [model.predict(ids)])
        assert_all_close([rank['evaluated']], [model.evaluate(ids, targets, verbose=0)])
        assert_all_close(rank['weights'], model.get_weights())
        cases.train(model, joined(3 + number, 4 + number))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('whole_tables')
def test_weights_are_whole_tables_to_read_to_set_and_to_load(shown, plain):
    ranks = shown.ranks
    model = plain()
    cases.train(model, joined(0, 3))
    for rank in ranks:
        assert_all_close(rank['trained'], model.get_weights())
        assert_all_equal(rank['set'], [2 * weight for weight in ranks[0]['trained']])
        assert_all_equal(rank['loaded'], ranks[0]['trained'])
    # Training goes on from what was set; the optimizer's slots stay, as in plain Keras.
    model.set_weights([2 * weight for weight in model.get_weights()])
    cases.train(model, joined(3, 6))
    assert_all_close(ranks[1]['after set'], model.get_weights())
    model.set_weights(ranks[0]['trained'])
    cases.train(model, joined(6, 9))
    assert_both_end_with(ranks, model.get_weights())


# --- Several models on one table ---------------------------------------------------------------


@behaviour('new_lookup')
def test_a_lookup_made_after_training_began_pulls_and_trains_the_right_rows(shown, plain, keras):
    ranks = shown.ranks
    for rank in ranks:
        for name in ('first', 'second'):
            assert_all_equal([rank[name + ' found']], [rank[name + ' expected']])
        assert str(rank['bad']).startswith('IdOutOfRangeError: '), str(rank['bad'])
        assert 'layer table looked up id %d,' % cases.ROWS in str(rank['bad'])

    def build(keras):
        ids = keras.layers.Input((cases.LENGTH,))
        rows = keras.layers.Embedding(cases.ROWS, cases.WIDTH)(ids)
        return keras.models.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))

    model = plain(start=ranks[0]['start'], build=build)
    cases.train(model, joined(7, 11))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('tied_reader')
def test_a_model_that_reads_the_table_whole_predicts_from_its_rows_of_now(shown, plain):
    ranks = shown.ranks
    model = plain()
    tables = {'new': model.get_weights()[0]}
    cases.train(model, joined(0, 3))
    tables['before'] = tables['after'] = model.get_weights()[0]
    cases.train(model, joined(3, 5))
    tables['later before'] = tables['later after'] = model.get_weights()[0]
    for rank in ranks:
        assert str(rank['kind']) == 'sparse'
        for name, table in tables.items():
            assert_all_close([rank[name]], [rank['hidden'].dot(table.T)])
    assert_both_end_with(ranks, model.get_weights())


@behaviour('towers')
def test_a_tower_predicts_when_only_its_own_input_is_fed(shown, plain):
    ranks = shown.ranks
    model = plain('shared')
    cases.train(model, joined(0, 4, 'shared'))
    assert_both_end_with(ranks, model.get_weights())
    for rank in ranks:
        for name, table in (('new', rank['table']), ('trained', rank['end'][0])):
            rows = table[rank['ids']]
            assert_all_equal(rank[name], [rows.reshape(len(rows), -1), rows])


@behaviour('recompile')
def test_a_model_compiled_again_with_another_optimizer_trains_on(shown, plain, keras):
    ranks = shown.ranks
    model = plain()
    cases.train(model, joined(0, 4))
    for number, case in enumerate(('adam', 'momentum', 'adagrad'), 1):
        compile_plain(keras, model, case)
        cases.train(model, joined(4 * number, 4 * number + 4))
    assert_both_end_with(ranks, model.get_weights())


@behaviour('two_models')
def test_a_second_model_leaves_the_first_ones_optimizer_as_it_is(shown, plain):
    def build(keras):
        layers = [keras.layers.Embedding(24, cases.WIDTH, input_length=cases.LENGTH)]
        return keras.models.Sequential(layers + [keras.layers.Flatten(), keras.layers.Dense(1)])

    first, second = plain('adam', build=build), plain('adam', build=build)
    cases.train(first, joined(0, 8))
    cases.train(second, joined(0, 4))
    assert_both_end_with(shown.ranks, first.get_weights() + second.get_weights())


@behaviour('tables_later:at_once', 'tables_later:in_blocks')
def test_the_session_is_local_until_there_is_a_table_and_then_values_move_to_the_server(
    shown, plain
):
    def dense(keras):
        layers = [keras.layers.Dense(3, input_shape=(cases.LENGTH,)), keras.layers.Dense(1)]
        return keras.models.Sequential(layers)

    for rank in shown.ranks:
        (before, level_before), (after, level_after) = rank['sessions']
        assert before == '' and after.startswith('grpc://')
        assert int(level_before) == tf.OptimizerOptions.L0 != int(level_after)
    first, second = plain('adam', build=dense), plain('adam')
    cases.train(first, joined(0, 8))
    cases.train(second, joined(0, 4))
    assert_both_end_with(shown.ranks, first.get_weights() + second.get_weights())


# --- Arguments of ParallaxOptimizer ------------------------------------------------------------


@behaviour('reduction_sum')
def test_a_sum_moves_a_table_by_the_mean_times_the_number_of_ranks(shown, plain):
    ranks = shown.ranks
    model = plain('sgd')
    start = model.get_weights()
    cases.train(model, joined(0, 1))
    expected = model.get_weights()
    expected[0] = start[0] + RANKS * (expected[0] - start[0])
    assert_both_end_with(ranks, expected)


def lazy_adam(keras, model, batches):
    """LazyAdam in numpy, with the gradients of TensorFlow: rows of no gradient stand still."""
    compute, weights = cases.gradients_of(keras, model), model.get_weights()
    means = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    for step, (ids, wanted) in enumerate(batches):
        model.set_weights(weights)
        # The case's own: lr=0.01, decay=0.01, and Keras's default betas and epsilon.
        rate = 0.01 / (1 + 0.01 * step)
        rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        for number, gradient in enumerate(compute([ids, wanted])):
            rows = np.unique(ids) if number == 0 else slice(None)
            part = gradient[rows]
            means[number][rows] = 0.9 * means[number][rows] + 0.1 * part
            squares[number][rows] = 0.999 * squares[number][rows] + 0.001 * part**2
            weights[number][rows] -= (
                rate * means[number][rows] / (np.sqrt(squares[number][rows]) + 1e-7)
            )
    return weights


@behaviour('lazy')
def test_lazy_adam_moves_the_rows_of_the_joined_batch_only(shown, plain, keras):
    ranks = shown.ranks
    expected = lazy_adam(keras, plain('adam'), joined(0, 10))
    assert_both_end_with(ranks, expected)
    # Else the test could not tell it from Keras's own Adam.
    exact = plain('adam')
    cases.train(exact, joined(0, 10))
    assert np.abs(exact.get_weights()[0] - expected[0]).max() > 1e-3


@behaviour('of_tables')
def test_a_table_follows_its_own_optimizer_and_the_rest_that_of_the_model(shown, plain, keras):
    model = plain('sgd')
    compute, weights = cases.gradients_of(keras, model), model.get_weights()
    total = 0.1 if TF2 else 0.0  # Where Keras's Adagrad begins.
    for batch in joined(0, 10):
        model.set_weights(weights)
        of_table, *gradients = compute(list(batch))
        total = total + of_table**2
        weights[0] -= 0.2 * of_table / (np.sqrt(total) + 0.01)
        for weight, gradient in zip(weights[1:], gradients):
            weight -= 0.1 * gradient
    assert_both_end_with(shown.ranks, weights)


@behaviour('waiting')
def test_rows_that_are_needed_later_are_asked_for_when_the_others_are_there(shown):
    for rank in shown.ranks:
        assert not rank['words'] and rank['classes']
        assert np.isfinite(rank['losses']).all()


@behaviour('pulled_once')
def test_rows_that_two_inputs_share_are_asked_for_once(shown):
    for rank in shown.ranks:
        assert list(rank['got']) == list(rank['wanted'])


@behaviour('told:columns', 'told:regularized')
def test_a_server_is_sent_tensors_and_no_messages_that_only_tell_it_to_go_on(shown):
    for rank in shown.ranks:
        assert rank['there'] > 0
        assert rank['waits'] == ''


@behaviour('fp16')
def test_half_precision_on_the_way_is_near_the_numbers_of_full_precision(shown, plain):
    ranks = shown.ranks
    model = plain()
    losses = cases.train(model, joined(0, 20))
    assert_all_equal(ranks[0]['end'], ranks[1]['end'])
    assert_all_close(ranks[0]['end'], model.get_weights(), tolerance=1e-2)
    mean = (ranks[0]['losses'] + ranks[1]['losses']) / RANKS
    assert_all_close([mean], [np.array(losses)], tolerance=1e-2)
    # It was on: full precision is nearer than this.
    worst = max(np.abs(a - b).max() for a, b in zip(ranks[0]['end'], model.get_weights()))
    assert worst > 1e-6


@behaviour('measured:adam', 'measured:tf_adam')
def test_hot_tables_that_share_a_server_part_once_they_are_measured(shown, keras):
    ranks, _, case = shown
    hot = cases.CASES[case]._replace(
        model=cases.tables_in_one_piece, batch=cases.every_second_table_is_hot
    )
    assert_both_end_with(ranks, reference.run(hot, keras, RANKS, 20)[2])
    measured = np.mean([rank['touched'] for rank in ranks], 0)
    for rank in ranks:
        # By bytes alone, in order: nothing tells that tables 0 and 2 are busy.
        assert list(rank['before servers']) == [0, 1, 0, 1]
        assert np.isnan(rank['before traffic']).all()
        np.testing.assert_allclose(rank['density'], measured)
        lines = str(rank['summary']).splitlines()
        for number in range(4):
            _, line = [line for line in lines if line.startswith('table_%d/' % number)]
            assert '  %.3g measured  ' % measured[number] in line
        servers = list(rank['after servers'])
        assert servers[0] != servers[2] and rank['after traffic'].max() < 0.6


@behaviour("shared_trainers:{'partitions': 'search'}", "shared_trainers:{'architecture': 'auto'}")
def test_a_table_that_two_models_train_stays_where_it_is(shown, keras):
    keras.backend.clear_session()
    models = cases.two_on_one_table(keras)
    for model in models:
        compile_plain(keras, model, 'adam')
        model.set_weights(cases.start_weights(model))
    for step in range(13):
        for model in models:
            cases.train(model, joined(step, step + 1))
    weights = [weight for model in models for weight in model.get_weights()]
    assert_both_end_with(shown.ranks, weights)


@behaviour('joined_later:ps', 'joined_later:allreduce')
def test_a_model_that_is_compiled_after_another_was_moved_finds_its_variables(shown, keras):
    keras.backend.clear_session()
    models = cases.two_on_one_table(keras)
    for model in models:
        compile_plain(keras, model, 'sgd')
        model.set_weights(cases.start_weights(model))
    first, second = models
    for model, begin, end in (
        (first, 0, 2), (first, 2, 4), (second, 2, 4), (first, 2, 4), (first, 4, 6), (second, 4, 6)
    ):  # fmt: skip
        cases.train(model, joined(begin, end))
    weights = [weight for model in models for weight in model.get_weights()]
    assert_both_end_with(shown.ranks, weights)
    # They stay where they are.
    for rank in shown.ranks:
        on_servers = {name == 'servers' for name in np.ravel(rank['exchanges'])}
        assert on_servers == {shown.argument == 'ps'}


@behaviour('regularized_again')
def test_a_regularizer_is_there_when_a_model_is_compiled_again(shown, keras):
    keras.backend.clear_session()
    model = cases.CASES['regularized'].model(keras)
    compile_plain(keras, model, 'adam')
    model.set_weights(cases.start_weights(model))
    cases.train(model, joined(0, 2))
    compile_plain(keras, model, 'adam')
    cases.train(model, joined(2, 6))
    assert_both_end_with(shown.ranks, model.get_weights())


@behaviour('cannot_move')
def test_an_optimizer_whose_slots_cannot_move_is_refused_before_the_first_step(shown):
    for rank in shown.ranks:
        for name, told in (('search', "partitions='search'"), ('auto', "architecture='auto'")):
            assert str(rank[name]).startswith('PlanError: %s moves tables' % told), rank[name]
        for name in ('hybrid', 'given'):
            assert str(rank[name]) == 'nothing was raised'


@behaviour('refused_formulas')
def test_a_formula_that_needs_what_one_worker_knows_is_refused_before_the_first_step(shown):
    told = {
        'something_else': 'ParallaxError: The optimizer asks for the gradients of',
        'loss': 'ParallaxError: The updates of ByLoss depend on the batch of a worker',
    }
    for rank in shown.ranks:
        for name, words in told.items():
            assert str(rank[name]).startswith(words), rank[name]
        assert str(rank['tensors']) == 'nothing was raised'


@behaviour('refused_formulas')
def test_a_formula_that_takes_rows_as_they_come_is_refused_where_each_worker_adds_a_penalty(shown):
    for rank in shown.ranks:
        words = 'PlanError: The optimizer computes with the rows of gradients as they come'
        assert str(rank['slices']).startswith(words), rank['slices']


@behaviour('initializer_after_summary')
def test_after_a_summary_owners_make_start_values_and_rank_0_copies_none(shown):
    for rank in shown.ranks:
        assert list(rank['held']) == [False] and list(rank['initializers']) == [True]


@behaviour('interleaved_slots')
def test_files_with_slots_side_by_side_are_those_of_plain_keras_both_ways(shown):
    for rank in shown.ranks:
        # Weights, the number of steps, and two slots for each weight.
        assert len(rank['plain']) == 5 + 1 + 2 * 5
        for way in ('unbroken', 'from_plain', 'from_ours'):
            assert_all_close(rank[way], rank['plain'])


@behaviour('set_after_summary')
def test_weights_may_be_set_between_a_summary_and_the_first_step(shown, plain):
    model = plain('momentum')
    cases.train(model, joined(0, 4, 'momentum'))
    for rank in shown.ranks:
        assert_all_close(rank['weights'], model.get_weights())


@behaviour('shared_by_sub_models')
def test_a_layer_that_two_sub_models_share_is_resumed_or_refused_where_keras_trains_it_twice(
    shown, plain
):
    model = plain(build=cases.sub_models)
    if len(model.trainable_weights) > len(set(model.trainable_weights)):
        for rank in shown.ranks:
            error = str(rank['error'])
            assert error.startswith('PlanError') and 'table/embeddings (2 times)' in error
        return
    for _ in range(2):  # The steps between the save and the resume are undone.
        cases.train(model, cases.batches(cases.SUB_MODELS, RANKS, 0, 2))
    for rank in shown.ranks:
        assert_all_close(rank['weights'], model.get_weights())


@behaviour('increments_without_shards')
def test_incremental_checkpoints_hold_models_without_shards(shown):
    for rank in shown.ranks:
        assert rank['epochs'] == 2
        assert_all_equal(rank['resumed'], rank['trained'])


@behaviour('no_strategy:adagrad', 'no_strategy:adam')
def test_without_a_strategy_rows_are_gathered_and_numbers_stay_those_of_keras(shown, plain):
    ranks, _, case = shown
    assert not np.array_equal(ranks[0]['own'][0], ranks[1]['own'][0])
    for rank in ranks:
        assert_all_equal(rank['start'], ranks[0]['own'])
        # Four dense variables, and of the one sparse its row numbers and their gradients.
        allreduced, allgathered = (eval(str(rank[name])) for name in ('allreduced', 'allgathered'))
        assert [cases.ROWS, cases.WIDTH] not in allreduced and len(allreduced) == 4
        assert sorted(allgathered, key=len) == [[None], [None, cases.WIDTH]]
    model = plain(case, start=ranks[0]['own'])
    losses = cases.train(model, joined(0, 8))
    assert_both_end_with(ranks, model.get_weights())
    mean = (ranks[0]['losses'] + ranks[1]['losses']) / RANKS
    assert_all_close([mean], [np.array(losses)])
    for number, batch in enumerate(joined(8, 12)):
        weights = cases.some_weights(np.random.RandomState(number), (len(batch[0]),))
        model.train_on_batch(*batch, sample_weight=weights)
    for rank in ranks:
        assert_all_close(rank['weighted'], model.get_weights())


def test_behaviours_follow_each_other_in_one_job_that_ends_well(jobs):
    assert jobs.outcome.code == 0, jobs.outcome.output[-5000:]
